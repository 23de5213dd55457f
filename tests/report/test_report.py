"""Reports of an audit: the page stands alone and stays small, the terminal fits 80 columns."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import orjson
import pytest
from kit.audits import CACHED, PROMPT, good, manifest, row
from rich.console import Console

from wlgen.audit.audit import audit
from wlgen.audit.run_figures import Setting
from wlgen.plan.tree import PrefixNode, Tree
from wlgen.report.answer import answer
from wlgen.report.page import page
from wlgen.report.provenance import Provenance
from wlgen.report.sharing import trajectory, tree_picture
from wlgen.report.svg import Axis
from wlgen.report.terminal import terminal
from wlgen.report.words import promises, shown_ratio

MIB = 1 << 20
VOID = {"meta", "br"}


SOURCE = Provenance.of(manifest(), clients=[], results=[], witnesses=[], options={"late": 0.5})


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
    kept = found.count('<circle class="kept"')
    assert kept == 5 * 11  # by rank, over time, by first token, TTFT and TPOT beside the ratio
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
    json.loads(orjson.dumps(answer(found, SOURCE)))


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


# The sharing.


TREE = Tree([PrefixNode(0, "all", 1024, 12), PrefixNode(1, "0", 512, 9), PrefixNode(1, "<1>", 640, 3)])


def test_prefixes_are_drawn_as_wide_as_their_rows_and_as_high_as_their_tokens():
    text = tree_picture(TREE)
    whole, first, second = re.findall(r'<rect class="node" (.*?)><title>(.*?)</title>', text)
    assert whole[1] == "all: 1,024 tokens, 12 rows"
    assert 'width="100%"' in whole[0]
    assert re.findall(r'x="(.*?)%?" y="(.*?)%" width="(.*?)%"', first[0]) == [("0", "61.54", "75")]
    assert second[1] == "&lt;1&gt;: 640 tokens, 3 rows"
    assert 'width="25%"' in second[0]
    assert "Prefixes" in page(audited(), TREE)


def test_one_prefix_and_a_level_ratio_are_not_drawn():
    text = page(audited(), Tree([PrefixNode(0, "", 1024, 12)]))
    assert "<h2>Prefixes" not in text
    assert "Hit ratio in the order sent" not in text


def test_a_tree_that_is_not_known_says_why():
    assert "The prefixes are not drawn: no &lt;tokenizer&gt;" in page(audited(), Tree((), "no <tokenizer>"))


def test_the_trajectory_shows_observed_and_planned_in_the_order_sent():
    """Planned: four rows of 0, then of 81 %; sent backwards, so the last planned comes first."""
    content = [row("formal", 0, n, cached_len=CACHED * (n >= 4)) for n in range(8)]
    results = [replace(r, start=100.0 - r.start) for r in good(content)]
    results[7] = replace(results[7], cached_tokens=0)
    found = audit(content, [("r", results)], manifest(ranks=1))
    seen, plan = (re.search(rf'class="{kind}" d="(.*?)"', trajectory(found))[1] for kind in ("seen", "plan"))
    high = f"{1000 - 1000 * CACHED / PROMPT:.1f}"
    heights = [part.split("H")[0] for part in plan.removeprefix("M0 ").split("V")]
    assert heights == [high] * 4 + ["1000.0"] * 4
    assert seen.removeprefix("M0 ").split("V")[0].split("H")[0] == "1000.0"


def test_classes_are_told_in_both_reports_and_in_the_answer():
    content = [
        row("formal", 0, n, request_class="warm" if n else "cold", cached_len=CACHED * n) for n in (0, 1)
    ]
    spec = {
        "dp_ranks": 1,
        "requests": [
            {"name": "cold", "cached": {"max_tokens": 0}},
            {"name": "warm", "cached": {"aggregate": 0.81, "tolerance": 0.01}},
            {"name": "least", "cached": {"min_ratio": 0.8}},
        ],
    }
    content.append(row("formal", 0, 2, request_class="least"))
    found = audit(content, [("r", good(content))], replace(manifest(ranks=1), spec=spec))
    lines = render(found).splitlines()
    assert max(map(len, lines)) <= 80
    (cold,) = [line.split() for line in lines if line.startswith("cold")]
    assert cold == ["cold", "at", "most", "0", "tokens", "0.0000", "0.0000", "0.0000", "0.0000"]
    assert any(line.split()[:5] == ["least", "at", "least", "80", "%"] for line in lines)
    assert any(line.startswith("warm") and "81 +- 1 % in all" in line for line in lines)
    assert "at most 0 tokens" in " ".join(parsed(found).text)
    assert [(each["name"], each["asked"]) for each in answer(found, SOURCE)["classes"]] == [
        ("cold", "at most 0 tokens"),
        ("warm", "81 +- 1 % in all"),
        ("least", "at least 80 %"),
    ]


def test_a_set_that_bounds_no_request_says_so():
    cold = replace(manifest(ranks=1), spec={"dp_ranks": 1, "requests": {"cached": {"cold": True}}})
    found = audit([row("formal", 0, 0)], [("r", good([row("formal", 0, 0)]))], cold)
    assert promises(found)[0] == ("configured (no bound)", "none", "")
    assert "as planned" in " ".join(parsed(found).text)


def test_turns_that_found_recorded_answers_are_told():
    turn = row("formal", 0, 0, session="s000000", turn=1, cached_len_recorded=CACHED + 128)
    found = audit([turn], [("r", good([turn], cached_tokens=CACHED + 128))], manifest(ranks=1))
    said = "1 row found recorded answers cached, too: the server reused its own output"
    assert said in render(found)
    assert f"<p>{said}.</p>" in page(found)
    assert answer(found, SOURCE)["found_recorded_answers"] == 1


def test_an_aggregate_that_is_missed_marks_its_tile():
    half = replace(manifest(ranks=1), spec={"dp_ranks": 1, "requests": {"cached": {"aggregate": 0.5}}})
    found = audit([row("formal", 0, 0)], [("r", good([row("formal", 0, 0)]))], half)
    assert '<div class="tile broken">on aggregate' in page(found)
    assert "1 x aggregate" in render(found)
