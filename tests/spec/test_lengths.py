"""Lengths: the stream is part of the format, growth adds and changes none, each kind keeps its support."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from wlgen.errors import WlgenError
from wlgen.spec.lengths import Column, Distribution, column_values, describe, draw, longest

STREAM = ("body_len", 7, 0)
NORMAL = {"mean": 300, "stddev": 90, "min": 250, "max": 420}
HISTOGRAM = [{"low": 1, "high": 10, "count": 1}, {"low": 100, "high": 100, "count": 0.5}]
KINDS: dict[str, dict[str, Any]] = {
    "uniform": {"uniform": [200, 400]},
    "normal": {"normal": NORMAL},
    "choice": {"choice": [64, 512], "weights": [3, 1]},
    "choice, no weights": {"choice": [64, 128, 512]},
    "histogram": {"histogram": HISTOGRAM},
    "values": {"values": [5, 3, 9]},
}
FIRST_DRAWS = {
    "uniform": [358, 235, 397, 290, 226, 326, 315, 255],
    "normal": [378, 254, 309, 325, 274, 332, 264, 371],
    "choice": [512, 64, 512, 64, 64, 64, 64, 64],
    "choice, no weights": [512, 64, 512, 128, 64, 128, 128, 64],
    "histogram": [8, 2, 10, 5, 2, 100, 100, 3],
    "values": [5, 3, 9, 5, 3, 9, 5, 3],
}


def drawn(kind: str, count: int) -> list[int]:
    return [int(n) for n in draw(Distribution.model_validate(KINDS[kind]), STREAM, count)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_draws_are_what_they_were(kind):
    """Else every set that people have built of such a spec would be another."""
    assert drawn(kind, 8) == FIRST_DRAWS[kind]


@pytest.mark.parametrize("kind", KINDS)
@given(few=st.integers(0, 40), more=st.integers(0, 40))
def test_growth_keeps_the_lengths_that_were_there(kind, few, more):
    assert drawn(kind, few + more)[:few] == drawn(kind, few)


@pytest.mark.parametrize(
    ("kind", "support"),
    [
        ("uniform", set(range(200, 401))),
        ("normal", set(range(250, 421))),
        ("choice", {64, 512}),
        ("choice, no weights", {64, 128, 512}),
        ("histogram", {*range(1, 11), 100}),
        ("values", {3, 5, 9}),
    ],
)
def test_every_length_of_the_support_is_drawn_and_no_other(kind, support):
    assert set(drawn(kind, 20_000)) == support
    assert longest(Distribution.model_validate(KINDS[kind])) == max(support)


def test_weights_are_kept():
    lengths = drawn("choice", 20_000)
    assert abs(lengths.count(64) / 20_000 - 0.75) < 0.01
    assert abs(drawn("histogram", 20_000).count(100) / 20_000 - 1 / 3) < 0.01


def test_a_weight_of_nothing_is_never_drawn():
    length = Distribution.model_validate({"choice": [1, 2, 3], "weights": [0, 1, 0]})
    assert set(draw(length, STREAM, 1000).tolist()) == {2}


def test_a_normal_has_its_mean_and_deviation_where_nothing_is_cut():
    wide = {"normal": {"mean": 5000, "stddev": 100, "min": 1, "max": 10_000}}
    lengths = draw(Distribution.model_validate(wide), STREAM, 20_000)
    assert abs(lengths.mean() - 5000) < 3
    assert abs(lengths.std() - 100) < 3


@given(mean=st.integers(1, 1000), stddev=st.integers(1, 2**24), down=st.integers(0, 3), up=st.integers(0, 3))
def test_a_truncated_normal_stays_inside_however_narrow(mean, stddev, down, up):
    ends = {"min": max(1, mean - down), "max": mean + up}
    length = Distribution.model_validate({"normal": {"mean": mean, "stddev": stddev, **ends}})
    lengths = draw(length, STREAM, 50)
    assert lengths.min() >= ends["min"]
    assert lengths.max() <= ends["max"]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"uniform": [1, 2], "values": [3]},
        {"uniform": [2, 1]},
        {"uniform": [0, 1]},
        {"choice": [1], "weights": [1, 2]},
        {"choice": [1, 2], "weights": [0, 0]},
        {"choice": []},
        {"weights": [1]},
        {"values": []},
        {"normal": NORMAL | {"mean": 249}},
        {"normal": NORMAL | {"stddev": 0}},
        {"histogram": [{"low": 2, "high": 1, "count": 1}]},
        {"histogram": [{"low": 1, "high": 2, "count": 0}]},
    ],
)
def test_a_distribution_that_is_none_is_refused(wrong):
    with pytest.raises(ValidationError):
        Distribution.model_validate(wrong)


def test_lengths_are_described_by_their_order_and_bins_that_hold_all():
    said = describe(np.arange(1, 101))
    assert (said["min"], said["p50"], said["p90"], said["max"]) == (1, 50, 90, 100)
    assert sum(count for _, _, count in said["bins"]) == 100
    assert describe(np.array([5, 5]))["bins"] == [[5, 5, 2]]


CSV = Column(path="a.csv", column="len")
JSONL = Column(path="a.jsonl", column="len")


@pytest.mark.parametrize(
    ("column", "content"),
    [
        (CSV, b"id,len\na,5\nb,6\n"),
        (CSV, b"\xef\xbb\xbflen,id\r\n5,a\r\n 6 ,b\r\n"),
        (CSV, b'len,id\n\n5,"two\nlines"\n6,b\n'),
        (JSONL, b'{"len": 5}\n{"x": 1, "len": "6"}'),
    ],
)
def test_a_column_is_read_from_csv_and_jsonl(column, content):
    assert column_values(column, content) == [5, 6]


@pytest.mark.parametrize(
    ("column", "content", "message"),
    [
        (CSV, b"id,other\na,5\n", "a.csv:2: expected the column len, found the columns id, other"),
        (CSV, b"len\n\n5\n\nx\n", "a.csv:5 len: expected a whole number of at least 1"),
        (CSV, b"len\n0\n", "a.csv:2 len: expected a whole number of at least 1"),
        (CSV, b"len\n5.5\n", "found '5.5'"),
        (CSV, b"len,id\n5\n" + b"9" * 6000 + b",a\n", "a.csv:3 len: expected a whole number"),
        (CSV, b"len\n", "a.csv: expected numbers in the column len, found no rows"),
        (CSV, b"\xff\xfe", "a.csv: expected a CSV or JSONL file"),
        (JSONL, b'{"len": 5}\n{"len":', "a.jsonl:2: expected a JSON object a line"),
        (JSONL, b"[5]", "a.jsonl:1: expected a JSON object a line, found list"),
        (JSONL, b'{"len": true}', "found True"),
        (JSONL, b'{"n": 5}', "a.jsonl:1: expected the column len, found the columns n"),
    ],
)
def test_a_column_that_is_none_is_refused_with_its_line(column, content, message):
    with pytest.raises(WlgenError) as failure:
        column_values(column, content)
    assert message in str(failure.value)
