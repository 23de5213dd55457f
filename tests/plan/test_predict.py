"""Predicted before any text exists: what the replay of the built rows finds."""

from __future__ import annotations

from typing import Any

import pytest
from kit.shaped import RULES, UNIFORM, plan_of

from wlgen.plan.predict import Predictor, trajectory
from wlgen.plan.rows import RowPlan

COLD: dict[str, Any] = {
    "body_len": UNIFORM,
    "cached": {"cold": True},
    "prefix": {"shared_by": "group", "groups": 2, "tokens": 128},
    "formal": {"total": 24},
    "dp_ranks": 1,
    "check": {"per_rank": 0},
}


def ratios(in_flight: int, **changes: Any) -> float:
    plan = plan_of(**COLD | changes)
    found = trajectory(plan.rows("formal", 0), plan.spec.cache, plan.frame, in_flight)
    assert len(found) == 24
    return sum(cached for _, cached in found) / sum(row.prompt_len for row, _ in found)


def test_one_row_at_a_time_finds_what_the_plan_says():
    plan = plan_of(**COLD)
    found = trajectory(plan.rows("formal", 0), plan.spec.cache, plan.frame, 1)
    assert [cached for _, cached in found] == [row.cached_len for row in plan.rows("formal", 0)]
    assert found[0][1] == 0


@pytest.mark.parametrize("rule", RULES)
def test_rows_admitted_together_do_not_share_so_the_trajectory_is_lower(rule):
    alone, four, all_ = (ratios(n, cache_rule=RULES[rule]) for n in (1, 4, 24))
    assert alone >= four >= all_
    assert alone > all_ == 0


def test_a_stranger_finds_the_framing_alone():
    plan = plan_of(cached={"max_tokens": 8}, dp_ranks=1, cache_rule=RULES["token"] | {"page_size": 8})
    rows: list[RowPlan] = list(plan.rows("formal", 0))
    predictor = Predictor(plan.spec.cache, plan.frame)
    assert [predictor.send(row) for row in rows[:2]] == [0, 8]


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("page_size", [8, 64])
@pytest.mark.parametrize("speculative", [False, True])
def test_two_tokens_stand_for_an_own_part_and_the_cache_holds_prefixes_alone(engine, page_size, speculative):
    rule = {"engine": engine, "page_size": page_size, "speculative": speculative}
    plan = plan_of(**COLD | {"cache_rule": rule, "dp_ranks": 1})
    rows = [row for split in ("seed", "check", "formal") for row in plan.rows(split, 0)]
    short, whole = Predictor(plan.spec.cache, plan.frame), Predictor(plan.spec.cache, plan.frame)
    whole._hybrid = True
    assert [short.send(row) for row in rows] == [whole.send(row) for row in rows]
    shared = {row.group: row.shared_len for row in rows}
    assert short._cache.held_len <= sum(shared.values()) + len(rows) * max(2, page_size)
    assert whole._cache.held_len > 2 * short._cache.held_len
