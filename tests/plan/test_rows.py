"""A plan is every row in integers: which segments, how long, on which rank, and nothing that may grow."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from kit.sets import framed, spec_of

from wlgen.plan.rows import Plan, RowPlan
from wlgen.plan.solve import solve
from wlgen.workload.splits import SPLITS

WARM = {"min_ratio": 0.5}
ZERO = {"max_tokens": 0}


def plan_of(**changes: Any) -> Plan:
    return solve(spec_of(**changes), framed(2, 2), lambda *_: 3)


def rows_of(plan: Plan, *splits: str) -> list[RowPlan]:
    ranks = range(plan.spec.dp_ranks)
    return [row for split in splits or SPLITS for rank in ranks for row in plan.rows(split, rank)]


def test_a_row_says_everything_about_itself():
    row = rows_of(plan_of(body_len=320, output_len=8), "formal")[4]
    assert (row.id, row.split, row.dp_rank, row.group, row.round) == (
        "formal-r01-000001",
        "formal",
        1,
        "all",
        0,
    )
    assert (row.prompt_len, row.body_len, row.shared_len, row.cached_len) == (324, 320, 176, 176)
    assert (row.output_len, row.passage_len) == (8, 8)
    ((prefix, own),) = [message.segments for message in row.messages]
    assert (prefix.tokens, prefix.kept, own.tokens, own.kept) == (174, True, 146, False)


def test_the_lengths_of_a_prompt_add_up():
    """| head | shared | own | tail |."""
    for row in rows_of(plan_of()):
        (segments,) = [message.segments for message in row.messages]
        assert 2 + sum(segment.tokens for segment in segments) + 2 == row.prompt_len
        assert 2 + sum(segment.tokens for segment in segments if segment.kept) == row.shared_len
        assert row.body_len == row.prompt_len - 4


def test_a_zero_set_has_no_prefix_no_seeds_and_one_group():
    plan = plan_of(cached=ZERO, prefix={"shared_by": "rank"}, formal={"total": 8})
    assert rows_of(plan, "seed") == []
    for row in rows_of(plan):
        ((own,),) = [message.segments for message in row.messages]
        assert (own.kept, own.tokens, row.group, row.shared_len, row.cached_len) == (
            False,
            320,
            "none",
            2,
            0,
        )


@pytest.mark.parametrize(
    ("total", "ranks", "expected"),
    [(640, 16, [40] * 16), (10, 4, [3, 3, 2, 2]), (2, 3, [1, 1, 0]), (7, 1, [7])],
)
def test_the_formal_rows_are_dealt_to_the_ranks_evenly(total, ranks, expected):
    plan = plan_of(dp_ranks=ranks, formal={"total": total})
    assert [plan.count("formal", rank) for rank in range(ranks)] == expected


def test_counts_a_rank():
    plan = plan_of(
        dp_ranks=3,
        prefix={"shared_by": "group", "groups": 4},
        seed={"per_rank": 2},
        check={"per_rank": 3},
        formal={"per_rank": 5},
    )
    assert [plan.count(split, 1) for split in SPLITS] == [2 * 4, 3 * 4, 5]
    by_rank = plan_of(prefix={"shared_by": "rank"}, seed={"per_rank": 2}, check={"per_rank": 3})
    assert [by_rank.count(split, 1) for split in SPLITS] == [2, 3, 3]


def test_no_checks_where_none_are_asked_for():
    assert rows_of(plan_of(check={"per_rank": 0}), "check") == []


def test_every_rank_seeds_and_checks_every_group_that_it_serves():
    plan = plan_of(dp_ranks=2, prefix={"shared_by": "group", "groups": 3}, formal={"total": 12})
    for split, rank in product(("seed", "check", "formal"), range(2)):
        assert {row.group for row in plan.rows(split, rank)} == {"g0000", "g0001", "g0002"}
    by_rank = plan_of(prefix={"shared_by": "rank"})
    assert {row.group for row in by_rank.rows("seed", 1)} == {"r01"}


def test_seeds_end_early_and_ask_for_one_token():
    for row in rows_of(plan_of(), "seed"):
        assert (row.prompt_len, row.output_len) == (176 + 3, 1)
    for row in rows_of(plan_of(seed={"per_rank": 1, "shape": "full"}), "seed"):
        assert (row.prompt_len, row.output_len) == (324, 1)


def test_the_output_of_checks_is_the_specs():
    assert {row.output_len for row in rows_of(plan_of(), "check")} == {1}
    plan = plan_of(check={"per_rank": 1, "output_len": 5})
    assert {row.output_len for row in rows_of(plan, "check")} == {5}
    assert {row.passage_len for row in rows_of(plan, "check")} == {8}


def test_a_first_seed_finds_nothing_and_a_second_one_the_prefix():
    plan = plan_of(dp_ranks=1, seed={"per_rank": 2}, prefix={"shared_by": "group", "groups": 2})
    assert [row.cached_len for row in plan.rows("seed", 0)] == [0, 176, 0, 176]


def test_a_seed_of_another_group_finds_the_pages_of_the_framing_head():
    spec = spec_of(dp_ranks=1, prefix={"shared_by": "group", "groups": 2}, formal={"total": 2})
    plan = solve(spec, framed(40, 2), lambda *_: 3)
    assert [row.cached_len for row in plan.rows("seed", 0)] == [0, 32]


def test_the_second_of_two_full_seeds_finds_no_state_under_a_hybrid_rule():
    """As in vLLM's hybrid models: 0, then 0 for the first sibling, then full."""
    plan = plan_of(
        dp_ranks=1,
        cache_rule={"engine": "vllm", "page_size": 16, "sliding_window": 64},
        seed={"per_rank": 3, "shape": "full"},
    )
    assert [row.cached_len for row in plan.rows("seed", 0)] == [0, 0, 176]


@pytest.mark.parametrize(
    "changes",
    [
        {"formal": {"total": 10}},
        {"formal": {"total": 10}, "prefix": {"shared_by": "group", "groups": 3}},
        {"formal": {"per_rank": 3}, "prefix": {"shared_by": "rank"}},
        {"formal": {"total": 10}, "cached": ZERO},
    ],
)
@pytest.mark.parametrize("growth", [1, 2, 7])
def test_growing_formal_keeps_every_row_as_it_was(changes, growth):
    small = plan_of(dp_ranks=3, **changes)
    key, rows = next(iter(changes["formal"].items()))
    large = plan_of(dp_ranks=3, **changes | {"formal": {key: rows + growth}})
    for split, rank in product(SPLITS, range(3)):
        before, after = list(small.rows(split, rank)), list(large.rows(split, rank))
        assert after[: len(before)] == before


def test_every_id_is_given_once():
    plan = plan_of(
        dp_ranks=4, prefix={"shared_by": "group", "groups": 3}, formal={"total": 30}, seed={"per_rank": 2}
    )
    ids = [row.id for row in rows_of(plan)]
    assert len(set(ids)) == len(ids) == 4 * 3 * 2 + 4 * 3 + 30


@pytest.mark.parametrize("cached", [WARM, ZERO])
@pytest.mark.parametrize("shared_by", ["all", "rank", "group"])
def test_streams_that_begin_at_one_point_have_ordinals_of_their_own(shared_by, cached):
    groups = {"groups": 3} if shared_by == "group" else {}
    plan = plan_of(
        dp_ranks=4,
        cached=cached,
        prefix={"shared_by": shared_by, **groups},
        formal={"per_rank": 5},
        seed={"per_rank": 2} if cached == WARM else None,
        check={"per_rank": 2},
    )
    begun: dict[object, object] = {}
    for row in rows_of(plan):
        path: object = None
        for segment in row.messages[0].segments:
            assert begun.setdefault((path, segment.ordinal), segment.stream) == segment.stream
            path = segment.stream


def test_a_later_round_has_fresh_rows_over_the_same_prefix():
    plan = plan_of()
    (first, second) = (list(plan.rows("formal", 0, round_)) for round_ in (0, 1))
    for one, other in zip(first, second, strict=True):
        assert one.messages[0].segments[0] == other.messages[0].segments[0]
        assert one.messages[0].segments[1].stream != other.messages[0].segments[1].stream
        assert (other.round, other.id) == (1, one.id + "-k1")


@pytest.mark.parametrize(
    ("cached", "configured"),
    [(WARM, 0.5), ({"tokens": 160}, 160 / 324), ({"tokens": 176, "min_ratio": 0.5}, 0.5), (ZERO, 0.0)],
)
def test_the_three_promises(cached, configured):
    plan = plan_of(cached=cached)
    assert plan.promises.configured == configured
    assert (
        plan.promises.aggregate
        == plan.promises.per_request_min
        == next(plan.rows("formal", 0)).cached_len / 324
    )
