"""Splits: each kind of rows with its facts, in the order in which a server meets them."""

from __future__ import annotations

import orjson
import pytest

from wlgen.errors import WlgenError
from wlgen.workload.rows import parse_row
from wlgen.workload.splits import BEFORE, MEASURED, PRIMING, SPLITS, in_order


def test_a_server_meets_seeds_once_and_then_each_rounds_checks_and_formal_rows():
    found = [(str(split), round_) for split, round_ in in_order([0, 2])]
    assert found == [("seed", 0), ("check", 0), ("formal", 0), ("check", 2), ("formal", 2)]


def test_each_fact_names_its_splits():
    assert (PRIMING, BEFORE, MEASURED) == (("seed",), ("seed", "check"), ("formal",))
    assert [split.within(0, [1]) for split in SPLITS] == [True, False, False]


def test_a_line_of_no_known_split_is_refused():
    text = dict.fromkeys(("id", "split", "group", "prompt_sha256"), "formul")
    lengths = dict.fromkeys(("body_len", "prompt_len", "shared_len", "cached_len", "output_len"), 1)
    keys = ("id", "split", "dp_rank", "group", "round", "messages", *lengths, "prompt_sha256")
    row = {key: (text | lengths | {"dp_rank": 0, "round": 0, "messages": []})[key] for key in keys}
    with pytest.raises(WlgenError, match="f:1 split: expected seed or check or formal, found 'formul'"):
        parse_row(orjson.dumps(row), place="f:1")
