"""Arrivals: whole milliseconds that never fall, at the rate asked for, which growth keeps."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from wlgen.errors import WlgenError
from wlgen.spec.arrivals import Arrivals, timestamps

STREAM = ("arrivals", 7)
COLUMN = {"column": {"path": "a.csv", "column": "ms"}}
KINDS: dict[str, dict[str, Any]] = {
    "constant": {"rate": 3},
    "poisson": {"rate": 3, "process": "poisson"},
    "bursty": {"rate": 3, "process": "gamma", "burstiness": 0.5},
    "even": {"rate": 3, "process": "gamma", "burstiness": 4},
    "bursts": {"bursts": {"size": 3, "every_ms": 50}},
}
FIRST_TIMES = {
    "constant": [0, 333, 666, 1000],
    "poisson": [0, 506, 1265, 1574],
    "bursty": [0, 73, 165, 183],
    "even": [0, 121, 208, 439],
    "bursts": [0, 0, 0, 50],
}


def times(kind: str, count: int) -> list[int]:
    return timestamps(Arrivals.model_validate(KINDS[kind]), STREAM, count)


def column(found: list[int], count: int) -> list[int]:
    arrivals = Arrivals.model_validate(COLUMN)
    arrivals.column._numbers = found
    return timestamps(arrivals, STREAM, count)


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_times_are_what_they_were(kind):
    assert times(kind, 4) == FIRST_TIMES[kind]


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)  # a busy machine is no fault of the times
@given(few=st.integers(0, 20), more=st.integers(0, 20))
def test_times_start_at_0_never_fall_and_growth_keeps_them(kind, few, more):
    found = times(kind, few + more)
    assert found[:few] == times(kind, few)
    assert found[:1] in ([], [0])
    assert all(a <= b for a, b in pairwise(found))


@pytest.mark.parametrize(
    ("kind", "deviation"), [("constant", 0), ("poisson", 1), ("bursty", 2), ("even", 0.5)]
)
def test_the_mean_gap_is_one_over_the_rate_and_its_deviation_that_of_the_process(kind, deviation):
    """A gamma process of shape k has gaps whose deviation is 1 / sqrt(k) of their mean: here 1/2 and 4."""
    gaps = [b - a for a, b in pairwise(times(kind, 4001))]
    mean = sum(gaps) / len(gaps)
    found = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5 / mean
    assert abs(mean - 1000 / 3) < 20
    assert abs(found - deviation**0.5 if kind == "bursty" else found - deviation) < 0.08


def test_a_column_starts_at_its_first_time():
    assert column([100, 100, 130, 900], 3) == [0, 0, 30]


@pytest.mark.parametrize(
    ("found", "count", "message"),
    [
        (
            [0, 5],
            3,
            "expected 3 times in milliseconds that never fall from one line to the next, found 2 times",
        ),
        ([0, 5, 4], 3, "found falling times"),
    ],
)
def test_a_column_of_too_few_or_falling_times_is_refused(found, count, message):
    with pytest.raises(WlgenError, match=message):
        column(found, count)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"rate": 1, "bursts": {"size": 1, "every_ms": 1}},
        {"rate": 0},
        {"rate": 1, "process": "gamma"},
        {"rate": 1, "process": "poisson", "burstiness": 2},
        {"bursts": {"size": 0, "every_ms": 1}},
    ],
)
def test_arrivals_that_are_none_are_refused(wrong):
    with pytest.raises(ValidationError):
        Arrivals.model_validate(wrong)
