"""Figures of a run in a window, from the client's own times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.audits import good, row

from wlgen.audit.run_figures import Setting, Timeline, figures

RATE = 0.5


def run(count=8, seconds=10.0, **changes: Any):
    """Return results of `count` requests sent every two seconds, first token after 1 s, 64 tokens each."""
    content = [row("formal", 0, number) for number in range(count)]
    return [
        replace(r, **{"start": i / RATE, "first_token": i / RATE + 1, "end": i / RATE + seconds} | changes)
        for i, r in enumerate(good(content))
    ]


def of(results, **setting: Any):
    return figures(Timeline.of(results), Setting(**setting))


def test_throughput_counts_members_whole_over_the_duration():
    whole, *_ = of(run(), cards=4)
    assert (whole.members, whole.duration) == (8, 7 / RATE + 10)
    assert whole.output_tokens_per_s == pytest.approx(8 * 64 / 24)
    assert whole.output_tokens_per_s_per_card == pytest.approx(8 * 64 / 24 / 4)
    assert whole.requests_per_s == pytest.approx(8 / 24)


def test_latencies_are_those_of_the_members():
    whole, *_ = of(run())
    assert whole.ttft.mean == pytest.approx(1)
    assert whole.e2el.p99 == pytest.approx(10)
    assert whole.tpot.p50 == pytest.approx(9 / 63)


def test_percentiles_interpolate_as_the_clients_do():
    results = [replace(r, end=r.start + 1 + i) for i, r in enumerate(run(count=5))]
    whole, *_ = of(results)
    assert (whole.e2el.p50, whole.e2el.p90) == (pytest.approx(3), pytest.approx(4.6))


def test_tpot_is_of_requests_with_more_than_one_token():
    whole, *_ = of(run(output_tokens=1))
    assert whole.tpot is None


def test_the_limit_is_the_observed_peak_unless_it_is_given():
    assert {f.concurrency for f in of(run())} == {5}
    assert {f.concurrency for f in of(run(), concurrency=9)} == {9}


def test_no_figure_of_a_missing_window_is_borrowed():
    _, v1, v2 = of(run(), concurrency=9)
    for window in (v1, v2):
        assert window.missing
        assert window.members == 0
        assert window.output_tokens_per_s is None
        assert window.ttft is None


def test_floor_is_128_requests_and_60_seconds():
    many, *_ = of(run(count=128))
    assert many.meets_floor
    few, *_ = of(run(count=127))
    assert not few.meets_floor
    short, *_ = of([replace(r, start=0.0, first_token=0.5, end=59.0) for r in run(count=128)])
    assert not short.meets_floor


def test_spacing_stands_beside_the_plan():
    whole, *_ = of(run(), rate=RATE)
    assert whole.spacing.mean == pytest.approx(2)
    assert whole.planned_spacing == pytest.approx(2)


def test_one_unknown_token_count_leaves_no_throughput():
    """A total without it would be too low, and look exact."""
    results = run()
    results[3] = replace(results[3], output_tokens=None)
    whole, *_ = of(results)
    assert (whole.output_tokens, whole.output_tokens_per_s) == (None, None)
    assert whole.members == 8


def test_failed_requests_and_those_without_an_end_are_no_part_of_it():
    results = run()
    results[0] = replace(results[0], success=False)
    results[1] = replace(results[1], end=None)
    assert of(results)[0].members == 6


def test_durations_alone_give_latencies_and_no_window():
    results = [replace(r, start=None, first_token=1.0, end=10.0) for r in run()]
    whole, v1, v2 = of(results)
    assert (whole.e2el.mean, whole.ttft.mean, whole.duration) == (10, 1, None)
    assert "when each request started" in whole.missing
    assert v1.missing
    assert v2.members == 0


def test_no_times_at_all():
    untimed = of(run(start=None, first_token=None, end=None))
    assert all("no times of a successful request" in figures.missing for figures in untimed)
    assert all(f.missing for f in of([]))
