"""What every two rows share is found without comparing every two rows: never another verdict than theirs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kit.oracle import shared

from wlgen.encodings import Framing, Message
from wlgen.plan.rows import MessagePlan, RowPlan, Segment
from wlgen.verify.sharing import Sharing
from wlgen.workload.bounds import UNBOUNDED
from wlgen.workload.rows import Finding, Row

HEAD = [9, 9]
FRAMING = Framing(texts=("head", ""), ids=(tuple(HEAD), ()))


def plan_of(name: str, group: str, shared_len: int, prompt_len: int) -> RowPlan:
    """Return the plan of a row: its group's prefix, where it shares more than the head, and its own part."""
    prefix = Segment(stream=("prefix", group), ordinal=0, tokens=shared_len - len(HEAD), kind="prefix")
    own = Segment(stream=("row", name), ordinal=0, tokens=prompt_len - shared_len, kind="own")
    segments = (prefix, own) if prefix.tokens else (own,)
    return RowPlan(
        id=name,
        split="formal",
        dp_rank=0,
        group=group,
        round=0,
        messages=(MessagePlan(role="user", segments=segments),),
        prompt_len=prompt_len,
        shared_len=shared_len,
        cached_len=0,
        output_len=1,
        passage_len=1,
        task=0,
        bound=UNBOUNDED,
    )


def row_of(plan: RowPlan) -> Row:
    return Row(
        id=plan.id,
        split="formal",
        dp_rank=0,
        group=plan.group,
        round=0,
        messages=(Message("user", plan.id),),
        body_len=plan.body_len,
        prompt_len=plan.prompt_len,
        shared_len=plan.shared_len,
        cached_len=0,
        output_len=1,
        prompt_sha256="",
    )


def findings_of(rows: list[tuple[str, int, list[int]]], crowded: int = 0) -> list[Finding]:
    """Return the findings of rows given as (group, shared_len, ids behind the head)."""
    sharing = Sharing(crowded)
    found = []
    for number, (group, shared_len, body) in enumerate(rows):
        ids = np.array(HEAD + body, dtype=np.uint32)
        plan = plan_of(f"row-{number}", group, shared_len, max(len(ids), shared_len + 1))
        found += sharing.add(row_of(plan), plan, ids, FRAMING)
    return found


def test_rows_that_share_as_planned():
    assert (
        findings_of([("a", 4, [1, 2, 3, 4]), ("a", 4, [1, 2, 4, 4]), ("b", 3, [5, 6]), ("b", 3, [5, 7])])
        == []
    )


def test_a_zero_set_shares_the_head_alone():
    assert findings_of([("none", 2, [1, 7]), ("none", 2, [2, 7]), ("none", 2, [3])]) == []


def test_a_row_that_shares_less_is_found_with_what_it_shares():
    (finding,) = findings_of([("a", 4, [1, 2, 3]), ("a", 4, [1, 8, 3])])
    assert finding == Finding(id="row-1", promise="shared_len", expected=4, got=3)


def test_a_row_that_shares_more_is_named_with_the_row_it_shares_with():
    (finding,) = findings_of([("a", 4, [1, 2, 3]), ("a", 4, [1, 2, 4]), ("a", 4, [1, 2, 3, 5])])
    assert finding == Finding(id="row-2", promise="shared_len", expected=4, got="at least 5 with row-0")


def test_groups_that_share_more_than_the_head_are_named():
    (finding,) = findings_of([("a", 3, [1, 2]), ("b", 3, [1, 3])])
    assert finding == Finding(id="row-1", promise="shared_len", expected=2, got="at least 3 with row-0")


def test_a_row_of_a_zero_class_that_shares_with_a_warm_group_is_found():
    assert [f.id for f in findings_of([("a", 3, [1, 2]), ("a", 3, [1, 3]), ("none", 2, [1, 9])])] == ["row-2"]


def test_rows_may_leave_a_prefix_earlier_where_they_go_on_otherwise():
    rows = [("a", 5, [1, 2, 3, 4]), ("a", 4, [1, 2, 7]), ("a", 3, [1, 8])]
    assert findings_of(rows) == findings_of(rows[::-1]) == []


def test_a_row_that_leaves_a_prefix_earlier_and_goes_on_alike_is_found_whichever_comes_first():
    rows = [("a", 5, [1, 2, 3, 4]), ("a", 4, [1, 2, 3])]
    assert [f.id for f in findings_of(rows)] == ["row-1"]
    assert [f.id for f in findings_of(rows[::-1])] == ["row-1"]


def test_as_many_rows_as_are_planned_may_share_one_token_more_and_never_two():
    rows = [("a", 3, [1, 5, 6]), ("a", 3, [1, 5, 7]), ("a", 3, [1, 5, 8])]
    assert findings_of(rows, crowded=2) == []
    assert [f.id for f in findings_of(rows, crowded=1)] == ["row-2"]
    assert [f.id for f in findings_of([*rows, ("a", 3, [1, 5, 6, 6])], crowded=9)] == ["row-3"]


def test_a_token_more_that_moves_a_page_is_found_whatever_was_planned():
    """A manifest that states a million such rows hides nothing: with pages of 4, the fifth token is a hit."""
    sharing = Sharing(1_000_000, lambda shared_len, _row: shared_len // 4 * 4)
    found = []
    for number, body in enumerate(([1, 5, 6], [1, 5, 7])):
        ids, plan = np.array(HEAD + body, dtype=np.uint32), plan_of(f"row-{number}", "a", 3, 6)
        found += sharing.add(row_of(plan), plan, ids, FRAMING)
    assert [f.id for f in found] == ["row-1"]


def test_a_row_that_ends_within_the_prefix_is_found():
    assert [f.id for f in findings_of([("a", 5, [1, 2, 3, 4]), ("a", 5, [1, 2])])] == ["row-1"]


tokens = st.lists(st.integers(0, 2), min_size=4, max_size=6)  # a row has a token of its own


@given(st.lists(st.tuples(st.sampled_from("ab"), tokens), max_size=7), st.integers(3, 5), st.integers(3, 5))
def test_the_verdict_is_that_of_every_pair(rows, shared_a, shared_b):
    lengths = {"a": shared_a, "b": shared_b}
    pairs = combinations([(group, HEAD + body) for group, body in rows], 2)
    agrees = all(
        shared(one, other) == lengths[group] if group == other_group else shared(one, other) == len(HEAD)
        for (group, one), (other_group, other) in pairs
    )
    assert (findings_of([(group, lengths[group], body) for group, body in rows]) == []) == agrees
