"""AISBench's steady windows: worked examples, each figure taken from AISBench's own calculator."""

from __future__ import annotations

import numpy as np
import pytest

from wlgen.audit.windows import running, stable_v1, stable_v2, whole, windows

STEADY = [(0, 10), (1, 11), (10.5, 20), (11.5, 21), (20.5, 30), (21.5, 31)]
DIP = [(0, 10), (1, 11), (10.0005, 20), (11.0005, 21), (30, 40), (31, 41), (40.0005, 50), (41.0005, 51)]
RAMP = [(i * 0.01, 100 + i * 0.01) for i in range(100)]
WAVE = [*RAMP, (100.0005, 200), (100.0105, 200.01), (100.0205, 200.02), (100.035, 200.03)]
BELOW = [*RAMP, (100.0005, 200), (100.0105, 200.01), (100.0205, 200.02), (100.0405, 200.03)]


def arrays(requests):
    return (np.array(side, dtype=np.float64) for side in zip(*requests, strict=True))


@pytest.mark.parametrize(
    ("requests", "limit", "v1", "v2"),
    [
        # V1 closes with the first end after all have started, V2 with the last event at the limit
        (STEADY, 2, (10.5, 30, [2, 3, 4, 5]), (10.5, 21.5, [2, 3, 4, 5])),
        # a pause of nine seconds ends V1 for good; V2 spans it
        (DIP, 2, (10.0005, 21, [2, 3]), (10.0005, 41.0005, [2, 3, 4, 5, 6, 7])),
        # an end made up for by a start within a millisecond does not end V1
        (WAVE, 100, (100.0005, 100.04, [100, 101, 102, 103]), (100.0005, 100.035, [100, 101, 102, 103])),
        # V1 also takes a start at 99 of 100, once three have reached the limit
        (BELOW, 100, (100.0005, 100.05, [100, 101, 102, 103]), (100.0005, 100.0205, [100, 101, 102])),
    ],
)
def test_both_definitions_on_worked_examples(requests, limit, v1, v2):
    start, end = arrays(requests)
    for found, expected in ((stable_v1(start, end, limit), v1), (stable_v2(start, end, limit), v2)):
        assert (found.start, found.end, found.members.tolist()) == expected
        assert not found.missing


@pytest.mark.parametrize("requests", [[(0, 1), (2, 3), (4, 5)], [(0, 9), (1, 9)], [(0, 1)]])
def test_no_window_where_two_starts_do_not_reach_the_limit(requests):
    """A window exists only where latency exceeds about limit / rate."""
    start, end = arrays(requests)
    for found in (stable_v1(start, end, 2), stable_v2(start, end, 2)):
        assert "no steady window" in found.missing
        assert len(found.members) == 0


def test_ties_fall_in_the_order_of_the_records():
    """At equal times the earlier record's event comes first, as in AISBench's stable sort."""
    first_ends_first = [(0.0, 5.0), (1.0, 6.0), (5.0, 10.0), (6.0, 11.0)]
    start, end = arrays(first_ends_first)
    assert stable_v2(start, end, 2).members.tolist() == [2, 3]
    # The new request's record stands first: it starts before the old one ends, and the limit is passed.
    start, end = arrays([first_ends_first[i] for i in (2, 3, 0, 1)])
    assert stable_v2(start, end, 2).missing


def test_the_whole_run_is_first_start_to_last_end():
    start, end = arrays(STEADY)
    found = whole(start, end)
    assert (found.start, found.end, found.duration, len(found.members)) == (0, 31, 31, 6)


def test_an_empty_run_has_no_window():
    nothing = np.empty(0)
    assert all(window.missing for window in windows(nothing, nothing, 4))


def test_concurrency_in_a_span_counts_what_runs_through_it():
    start, end = arrays([(0, 10), (2, 4), (5, 6)])
    assert running(start, end, 0, 10) == (2, (10 + 2 + 1) / 10)
    assert running(start, end, 6.5, 9.5) == (1, 1.0)
    assert running(start, end, 3, 3) == (2, 0.0)
