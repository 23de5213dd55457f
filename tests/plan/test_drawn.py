"""Rows of classes and prefix levels: seeded by the least set of seeds, each finds exactly what it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kit.shaped import (
    RULES,
    UNIFORM,
    broken,
    broken_pairs,
    built,
    bytes_of,
    plan_of,
    promises,
    retold,
    rewrite,
    rows_of,
)
from kit.verified import verify

from wlgen.workload.opened import Workload

pytestmark = pytest.mark.usefixtures("small_bank")

LEVELS = {"levels": [{"shared_by": "all", "tokens": 64}, {"shared_by": "group", "groups": 3}]}
EARLY = {"levels": [{"shared_by": "all", "tokens": 256}, {"shared_by": "group", "groups": 3}]}
ONE = {"shared_by": "group", "groups": 3, "ranks": "one", "popularity": {"weights": [1, 5, 1]}}
SYSTEM = {"shared_by": "group", "groups": 2, "message": "system"}
CLASSES = [
    {"name": "cold", "count": 4, "body_len": UNIFORM, "output_len": 4, "cached": {"max_tokens": 6}},
    {
        "name": "warm",
        "count": 6,
        "body_len": 400,
        "output_len": 8,
        "cached": {"min_ratio": 0.6},
        "prefix": LEVELS,
    },
]
SHAPES: dict[str, dict[str, Any]] = {
    "lengths": {"body_len": UNIFORM},
    "levels": {"body_len": UNIFORM, "prefix": LEVELS},
    "rows that leave early": {"body_len": UNIFORM, "prefix": EARLY, "cached": {"min_ratio": 0.3}},
    "groups on one rank": {"body_len": UNIFORM, "prefix": ONE},
    "a system message": {"body_len": UNIFORM, "prefix": SYSTEM},
    "an aggregate": {"body_len": UNIFORM, "cached": {"aggregate": 0.4, "tolerance": 0.05}},
    "an aggregate, system": {
        "body_len": UNIFORM,
        "cached": {"aggregate": 0.1, "tolerance": 0.05},
        "prefix": {"shared_by": "all", "message": "system"},
    },
    "an aggregate of a fixed prefix": {
        "body_len": UNIFORM,
        "cached": {"aggregate": 0.25, "tolerance": 0.1},
        "prefix": {"shared_by": "all", "tokens": 160},
    },
    "classes": {"requests": CLASSES, "formal": {"total": 10}, "order": "shuffled"},
    "a rank without rows": {
        "dp_ranks": 3,
        "formal": {"total": 2},
        "prefix": {"shared_by": "group", "groups": 2},
    },
}


def seeds(**changes: Any) -> list[str]:
    plan = plan_of(**changes)
    return [row.group for rank in range(plan.spec.dp_ranks) for row in plan.rows("seed", rank)]


@pytest.mark.parametrize(
    "rule", ["dense", "hybrid", *(pytest.param(rule, marks=pytest.mark.slow) for rule in ("token", "window"))]
)
@pytest.mark.parametrize("name", SHAPES)
def test_after_its_seeds_each_row_finds_exactly_its_cached_len(name, rule, tmp_path):
    """By the stateful cache, in the order sent, and by the ids of a server."""
    asked = {"cache_rule": RULES[rule], "formal": {"total": 10}} | SHAPES[name]
    if (name, rule) == ("classes", "token"):
        pytest.skip("the framing alone is cached under it")
    workload = built(tmp_path, **asked)
    assert verify(workload, full=True).findings == []
    assert broken(workload) == []
    assert broken_pairs(workload, gap=6 if "system" in name else 0) == []


def test_a_dense_rule_takes_one_seed_a_leaf_and_a_hybrid_one_each_depth():
    asked: dict[str, Any] = {
        "body_len": {"values": [200, 400]},
        "prefix": LEVELS,
        "dp_ranks": 1,
        "formal": {"total": 12},
    }
    assert seeds(**asked, cache_rule=RULES["dense"]) == ["all/g0000", "all/g0001", "all/g0002"]
    assert len(seeds(**asked, cache_rule=RULES["hybrid"])) == 6


def test_a_longer_prefix_covers_its_ancestors():
    """A row of 300 tokens leaves the first level, those of 900 tokens prime it with their own prefix."""
    asked: dict[str, Any] = {"body_len": {"values": [900, 300]}, "prefix": EARLY, "dp_ranks": 1}
    assert seeds(**asked, cache_rule=RULES["dense"]) == ["all/g0000", "all/g0002", "all/g0001"]


def test_checks_stand_in_their_ranks_file_though_the_rank_has_no_rows(tmp_path):
    workload = built(tmp_path, **SHAPES["a rank without rows"])
    for path, content in bytes_of(workload).items():
        rank = int(path.removesuffix(".jsonl")[-2:])
        assert content.count(b'"dp_rank":%d,' % rank) == content.count(b"\n"), path


def test_each_system_message_of_its_own_length_has_a_seed(tmp_path):
    """A shorter one goes on in framing where the longer one goes on in words, so it is not covered."""
    workload = built(
        tmp_path,
        body_len={"values": [200, 400]},
        prefix={"shared_by": "all", "message": "system"},
        dp_ranks=1,
    )
    seeded = {row["messages"][0]["content"] for row in rows_of(workload, "seed")}
    assert {row["messages"][0]["content"] for row in rows_of(workload, "formal")} == seeded
    assert len(seeded) == 2
    assert all(row["messages"][0]["role"] == "system" for row in rows_of(workload))


def test_each_class_is_held_to_its_own_bound(tmp_path):
    workload = built(tmp_path, **SHAPES["classes"])
    by_class = {
        name: [r for r in rows_of(workload, "check", "formal") if r["request_class"] == name]
        for name in ("cold", "warm")
    }
    assert [sum(r["split"] == "formal" for r in rows) for rows in by_class.values()] == [4, 6]
    assert all(any(r["split"] == "check" for r in rows) for rows in by_class.values())
    assert all(row["cached_len"] == 0 for row in by_class["cold"])
    assert all(row["cached_len"] >= 0.6 * row["prompt_len"] for row in by_class["warm"])
    assert {row["output_len"] for row in rows_of(workload, "formal")} == {4, 8}


@pytest.mark.parametrize("rule", RULES)
def test_an_aggregate_is_reached_within_its_tolerance_and_on_each_rank(rule):
    cached = {"aggregate": 0.5, "tolerance": 0.005}
    plan = plan_of(body_len=UNIFORM, cached=cached, cache_rule=RULES[rule], formal={"total": 80})
    ranks = [list(plan.rows("formal", rank)) for rank in range(2)]
    for rows in (*ranks, ranks[0] + ranks[1]):
        ratio = sum(row.cached_len for row in rows) / sum(row.prompt_len for row in rows)
        assert abs(ratio - 0.5) <= 0.005
    assert abs(plan.promises.aggregate - 0.5) <= 0.005
    assert plan.promises.per_request_min < 0.5


COLD = {
    "body_len": UNIFORM,
    "cached": {"cold": True},
    "prefix": {"shared_by": "group", "groups": 2, "tokens": 128},
    "check": {"per_rank": 0},
    "formal": {"total": 12},
    "order": "short_to_long",
}


@pytest.mark.parametrize("rule", RULES)
def test_a_cold_set_fills_from_row_to_row(rule, tmp_path):
    workload = built(tmp_path, **COLD, cache_rule=RULES[rule])
    assert verify(workload, full=True).findings == []
    assert broken(workload) == []
    assert rows_of(workload, "seed") == []
    for rank in range(2):
        rows = [row for row in rows_of(workload) if row["dp_rank"] == rank]
        assert rows[0]["cached_len"] == 0
        assert [row["body_len"] for row in rows] == sorted(row["body_len"] for row in rows)
    assert any(row["cached_len"] for row in rows_of(workload))


def order_of(order: str) -> list[tuple[str, int]]:
    asked: dict[str, Any] = {
        "body_len": UNIFORM,
        "prefix": {"shared_by": "group", "groups": 3},
        "dp_ranks": 1,
    }
    rows = plan_of(**asked, order=order, formal={"total": 9}).rows("formal", 0)
    return [(row.group, int(row.id[-6:])) for row in rows]


def test_an_order_moves_rows_and_changes_none():
    generated = order_of("generated")
    assert [n for _, n in generated] == list(range(9))
    for order in ("group", "interleaved", "shuffled", "short_to_long"):
        assert sorted(order_of(order)) == sorted(generated)
        assert order_of(order) == order_of(order)
    assert order_of("group") == sorted(generated)
    assert [group for group, _ in order_of("interleaved")] == ["g0000", "g0001", "g0002"] * 3
    assert order_of("shuffled") != generated


@pytest.mark.parametrize("name", sorted(set(SHAPES) - {"classes", "a rank without rows"}))
def test_more_formal_rows_keep_those_that_were_there(name):
    """A count of a class is a part of the spec; all else grows by rows behind the others."""
    asked = {key: value for key, value in SHAPES[name].items() if key != "formal"}

    def formal(total: int) -> dict[str, Any]:
        plan = plan_of(**asked, formal={"total": total}, arrivals={"rate": 3, "process": "poisson"})
        return {row.id: row for rank in range(2) for row in plan.rows("formal", rank)}

    few, more = formal(8), formal(20)
    assert {id_: more[id_] for id_ in few} == few


def test_arrivals_never_fall_in_the_order_sent():
    for order in ("generated", "shuffled"):
        plan = plan_of(formal={"total": 20}, arrivals={"rate": 3, "process": "poisson"}, order=order)
        for rank in range(2):
            times = [row.timestamp_ms or 0 for row in plan.rows("formal", rank)]
            assert times == sorted(times)
            assert times[-1] > 0


ROUNDS: dict[str, Any] = {"body_len": UNIFORM, "prefix": LEVELS, "formal": {"total": 6}}


def test_a_set_is_the_union_of_its_ranks_and_rounds_built_alone(tmp_path):
    whole = bytes_of(build_rounds(tmp_path / "whole", 3))
    parts: dict[str, bytes] = {}
    for rank in range(2):
        for round_ in range(3):
            part = bytes_of(build_rounds(tmp_path / f"{rank}-{round_}", 3, ranks=[rank], of=[round_]))
            assert all(parts.get(path, content) == content for path, content in part.items())
            parts |= part
    assert parts == whole
    assert any("round-2" in path for path in whole)


def build_rounds(place: Path, count: int, ranks: Sequence[int] = (), of: Sequence[int] = ()) -> Workload:
    return built(place, only=(ranks, of), **ROUNDS, rounds=count)


def test_a_later_round_changes_no_earlier_one_and_shares_the_prefix_alone(tmp_path):
    one, three = build_rounds(tmp_path / "one", 1), build_rounds(tmp_path / "three", 3)
    assert bytes_of(one).items() <= bytes_of(three).items()
    assert verify(three, full=True).findings == []
    assert broken_pairs(three) == []
    texts = [row["messages"][-1]["content"] for row in rows_of(three)]
    assert len(set(texts)) == len(texts)


def test_each_round_finds_what_the_first_did(tmp_path):
    """Replayed without a flush: another concurrency meets the same cache."""
    assert broken(build_rounds(tmp_path, 3)) == []


def test_a_row_moved_to_another_tenants_prefix_is_found(tmp_path):
    workload = built(tmp_path, prefix=LEVELS, formal={"total": 12}, dp_ranks=1)
    path = "formal/rank-00.jsonl"
    rows = rows_of(workload, "formal")
    mine, theirs = rows[0], rows[1]
    assert mine["group"] != theirs["group"]
    text = theirs["messages"][0]["content"]
    cut = len(text) * 2 // 3
    moved = text[:cut] + mine["messages"][0]["content"][cut:]
    rows[0] = retold(workload, mine, [{"role": "user", "content": moved}])
    found = promises(verify(rewrite(workload, path, rows), full=True).findings)
    assert {"shared_len"} <= {promise for _, promise in found}


def test_a_text_that_two_rows_have_is_found(tmp_path):
    workload = built(tmp_path, prefix=LEVELS, formal={"total": 12}, dp_ranks=1)
    rows = rows_of(workload, "formal")
    twin = next(row for row in rows[1:] if row["group"] == rows[0]["group"])
    rows[rows.index(twin)] = retold(workload, twin, rows[0]["messages"])
    found = verify(rewrite(workload, "formal/rank-00.jsonl", rows), full=True).findings
    assert (twin["id"], "shared_len") in promises(found)
