"""Refusals of shapes name the rows, by how much they miss, and the nearest that works - which does work."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kit.shaped import RULES, UNIFORM, plan_of

from wlgen.errors import WlgenError


def refusal(**changes: Any) -> str:
    with pytest.raises(WlgenError) as failure:
        plan_of(**changes)
    (problem,) = failure.value.problems
    return str(problem)


@pytest.mark.parametrize("rule", RULES)
def test_an_unreachable_aggregate_names_its_interval_and_a_nearest_that_passes(rule):
    asked: dict[str, Any] = {"body_len": UNIFORM, "cache_rule": RULES[rule], "formal": {"total": 40}}
    message = refusal(**asked, cached={"aggregate": 0.999})
    interval = re.search(r"([\d.]+) % to ([\d.]+) % can be reached", message)
    nearest = re.search(r"aggregate: ([\d.]+)", message.partition("nearest that passes")[2])
    assert interval
    assert nearest
    assert float(interval[1]) / 100 <= float(nearest[1]) <= float(interval[2]) / 100 + 1e-6
    plan = plan_of(**asked, cached={"aggregate": float(nearest[1])})
    assert abs(plan.promises.aggregate - float(nearest[1])) <= 0.005


def test_rows_that_miss_their_bound_are_named_with_their_class():
    warm = {"name": "warm", "body_len": {"values": [40, 400]}, "output_len": 8, "cached": {"min_ratio": 0.9}}
    message = refusal(requests=[warm], formal={"total": 8})
    assert "each row of the class warm to find at least 90 % cached" in message
    assert "4 rows that miss it, by up to" in message
    assert "formal-r00-000000" in message


def test_a_class_of_which_no_row_is_drawn_is_refused():
    rare = {"body_len": 320, "output_len": 8, "cached": {"min_ratio": 0.5}}
    requests = [rare | {"name": "often", "weight": 1}, rare | {"name": "never", "weight": 0}]
    assert "expected a formal row of the class never, found none among the 6 formal rows" in refusal(
        requests=requests
    )


def test_a_tolerance_is_kept():
    asked: dict[str, Any] = {"body_len": 320, "dp_ranks": 1, "formal": {"total": 1}}
    assert "within 1 %" in refusal(**asked, cached={"aggregate": 0.5, "tolerance": 0.01})
    assert plan_of(**asked, cached={"aggregate": 0.5, "tolerance": 0.05}).promises.aggregate > 0.45
