"""Reports of an audit: the page stands alone and stays small, the terminal fits 80 columns."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import orjson
import pytest
from audits import CACHED, good, manifest, row
from rich.console import Console

from wlgen.audit import audit
from wlgen.figures import Setting
from wlgen.report.answer import answer
from wlgen.report.page import page
from wlgen.report.svg import Axis
from wlgen.report.terminal import terminal
from wlgen.report.words import shown_ratio

MIB = 1 << 20
VOID = {"meta", "br"}


def audited(count=12, ranks=2, spoil=lambda _number, result: result):
    content = [row("formal", rank, number) for rank in range(ranks) for number in range(count // ranks)]
    results = [spoil(number, result) for number, result in enumerate(good(content))]
    return audit(content, [("r", results)], manifest(ranks=ranks), setting=Setting(cards=2, rate=1.0))


def short(number, result):
    return replace(result, cached_tokens=CACHED - 128) if number % 10 == 3 else result


class Strict(HTMLParser):
    """Fails on a tag that is not closed in its order, and keeps text and outside references."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.text, self.references, self.tags = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, _attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text.append(data)


def parsed(found):
    parser = Strict()
    parser.feed(page(found))
    parser.close()
    assert parser.open == []
    return parser


@pytest.mark.parametrize("spoil", [lambda _n, r: r, short])
@pytest.mark.parametrize("count", [2, 12, 2000])
def test_the_page_is_well_formed_and_needs_no_network_and_no_script(count, spoil):
    parser = parsed(audited(count, spoil=spoil))
    assert parser.references == []
    assert "script" not in parser.tags
    assert "url(" not in page(audited(2))


def test_the_page_shows_promises_findings_and_windows():
    text = " ".join(parsed(audited(spoil=short)).text)
    for words in (
        "80.0000 %",
        "81.0916 %",
        "1 x cached_bound",
        "formal-r00-000003",
        "Whole run",
        "stable V2",
    ):
        assert words in text


def test_a_request_with_a_finding_is_drawn_apart_by_shape_and_colour():
    found = page(audited(spoil=short))
    assert found.count('<circle class="kept"') == 2 * 11  # by rank, and by first token
    assert re.search(r'<rect class="broken"[^>]*><title>formal-r00-000003: cached_bound', found)


def test_20000_rows_are_binned_and_say_so():
    found = audited(20000, ranks=16, spoil=short)
    content = page(found)
    assert len(content) < MIB
    assert "20,000 requests, so they are counted in 140 bins" in content
    assert "one request in 14 of 20,000" in content


def test_text_of_a_set_or_client_cannot_become_markup():
    found = audited(spoil=lambda _n, r: replace(r, success=False, error="<img src=x onerror=alert(1)>"))
    content = page(replace(found, name="<b>&set"))
    assert "<img" not in content
    assert "&lt;b&gt;&amp;set" in content


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _n, r: replace(r, cached_tokens=None),
        lambda _n, r: replace(r, success=False),
        lambda _n, r: replace(r, start=None, first_token=None, end=None),
        lambda _n, r: replace(r, start=None),
        lambda _n, r: replace(r, first_token=None),
        lambda _n, r: replace(r, start=1.0, first_token=1.0, end=1.0),
    ],
)
def test_every_report_is_made_of_whatever_was_recorded(spoil):
    found = audited(spoil=spoil)
    assert parsed(found).text
    assert render(found)
    json.loads(orjson.dumps(answer(found)))


def render(found, width=80):
    text = io.StringIO()
    Console(width=width, file=text).print(terminal(found))
    return text.getvalue()


def test_the_terminal_tables_fit_80_columns():
    lines = render(audited(400, ranks=16, spoil=short)).splitlines()
    table = [line for line in lines if line.startswith(("cached", "formal", "  rank"))]
    assert len(table) > 16
    assert not any("…" in line for line in table)
    assert max(map(len, table)) <= 80


def test_the_terminal_lists_the_ranks_that_are_lowest():
    lines = render(audited(400, ranks=40, spoil=lambda n, r: short(3, r) if n == 395 else r))
    assert "  rank 39" in lines
    assert "24 more ranks" in lines


def test_a_ratio_never_rounds_up_to_a_bound():
    assert shown_ratio(0.9) == "90.0000 %"
    assert shown_ratio(0.89999999) == "89.9999 %"


@pytest.mark.parametrize(
    ("axis", "most", "ticks"),
    [
        (Axis(0, 100), 8, [0, 20, 40, 60, 80, 100]),
        (Axis(89.5, 91.1), 8, [89.6, 89.8, 90, 90.2, 90.4, 90.6, 90.8, 91]),
        (Axis(0, 349.3), 7, [0, 50, 100, 150, 200, 250, 300]),
        (Axis(0, 4.4), 5, [0, 1, 2, 3, 4]),
    ],
)
def test_ticks_are_round_values_inside_the_axis(axis, most, ticks):
    assert axis.ticks(most) == pytest.approx(ticks)
