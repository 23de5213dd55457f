"""Rows cut out of their lines are the rows that the lines hold, whatever their texts."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit import audits

from wlgen.encodings import Message
from wlgen.errors import WlgenError
from wlgen.export.rows import in_turn, parse_line
from wlgen.exporters import Prompt
from wlgen.workload.rows import parse_row

PIECES = [
    '"},{"role":"user","content":"',
    '"}],"body_len":',
    '"messages":[{"role":"',
    "\\",
    '"',
    "{",
    "}",
    "\n",
    "好",
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=6).map("".join)


def line_of(*messages: Message) -> bytes:
    return orjson.dumps(audits.line(audits.row("formal", 1, 0, messages=messages))) + b"\n"


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), TEXTS), min_size=1, max_size=4))
@example([("user", '"},{"role":"user","content":"')])
@example([("system", "\\"), ("user", '\\"},{"role":"')])
def test_a_cut_line_is_the_row_it_holds(said: list[tuple[str, str]]):
    """Texts may hold every mark by which a line is cut: a quote in a text has a backslash before it."""
    line = line_of(*(Message(role, text) for role, text in said))
    prompt = parse_line(line, place="here")
    assert prompt.row() == parse_row(line, place="here")
    assert [content.raw for _, content in prompt.messages] == [orjson.dumps(text) for _, text in said]


def test_a_line_of_another_shape_is_decoded_whole():
    """White space between the keys is JSON too."""
    row = audits.row("formal", 1, 0)
    line = orjson.dumps(audits.line(row), option=orjson.OPT_INDENT_2).replace(b"\n", b"") + b"\n"
    assert parse_line(line, place="here").row() == row


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda line: line[:60], "here: expected a whole JSON row"),
        (lambda _line: b"\n", "here: expected a whole JSON row"),
        (lambda line: b"\xff" + line, "here: expected a whole JSON row"),
        (lambda _line: b"[1]", "here: expected the keys id, split"),
        (
            lambda line: line.replace(b'"output_len":64', b'"output_len":"64"'),
            "here output_len: expected int",
        ),
        (lambda line: line.replace(b'"group"', b'"gruop"'), "here: expected the keys id, split"),
        (lambda line: line.replace(b'"role"', b'"rule"'), r"here messages: expected \[\{role, content\}"),
        (lambda line: line.replace(b'"messages":[{', b'"messages":{'), "here: expected a whole JSON row"),
    ],
)
def test_a_spoilt_line_is_one_clear_message(spoil, message: str):
    with pytest.raises(WlgenError, match=message):
        parse_line(spoil(line_of(Message("user", "text"))), place="here")


def test_a_prompt_is_its_row_and_back():
    row = audits.row("formal", 1, 3, messages=(Message("system", "a\n"), Message("user", '"好"')))
    assert Prompt.of(row).row() == row
    assert replace(Prompt.of(row), ids=None) == Prompt.of(row)


@pytest.mark.parametrize(
    ("sources", "order"),
    [([], ""), (["abc"], "abc"), (["ab", "", "cde"], "acbde"), (["a", "bcd", "e"], "abecd")],
)
def test_sources_take_turns_until_each_is_empty(sources: list[str], order: str):
    assert "".join(in_turn(map(iter, sources))) == order  # type: ignore[arg-type] (letters stand for prompts)
