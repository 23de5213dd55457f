"""What every two rows share is found without comparing every two rows: never another verdict than theirs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracle import shared

from wlgen.encodings import Message
from wlgen.sharing import Sharing
from wlgen.workload import Finding, Row

HEAD = [9, 9]


def row_of(name: str, group: str, shared_len: int, prompt_len: int) -> Row:
    return Row(
        id=name,
        split="formal",
        dp_rank=0,
        group=group,
        round=0,
        messages=(Message("user", name),),
        body_len=prompt_len,
        prompt_len=prompt_len,
        shared_len=shared_len,
        cached_len=0,
        output_len=1,
        prompt_sha256="",
    )


def findings_of(rows: list[tuple[str, int, list[int]]], crowded: int = 0) -> list[Finding]:
    """Return the findings of rows given as (group, shared_len, ids behind the head)."""
    sharing = Sharing(len(HEAD), crowded)
    found = []
    for number, (group, shared_len, body) in enumerate(rows):
        ids = np.array(HEAD + body, dtype=np.uint32)
        found += sharing.add(row_of(f"row-{number}", group, shared_len, len(ids)), ids)
    return found


def test_rows_that_share_as_planned():
    assert (
        findings_of([("a", 4, [1, 2, 3, 4]), ("a", 4, [1, 2, 4, 4]), ("b", 3, [5, 6]), ("b", 3, [5, 7])])
        == []
    )


def test_a_zero_set_shares_the_head_alone():
    assert findings_of([("none", 2, [1, 7]), ("none", 2, [2, 7]), ("none", 2, [3])]) == []


def test_a_row_that_shares_less_is_named_with_the_row_it_should_share_with():
    (finding,) = findings_of([("a", 4, [1, 2, 3]), ("a", 4, [1, 8, 3])])
    assert finding == Finding(
        id="row-1", promise="shared_len", expected="the first 4 tokens of row-0", got="others"
    )


def test_a_row_that_shares_more_is_named_with_the_row_it_shares_with():
    (finding,) = findings_of([("a", 4, [1, 2, 3]), ("a", 4, [1, 2, 4]), ("a", 4, [1, 2, 3, 5])])
    assert finding == Finding(id="row-2", promise="shared_len", expected=4, got="at least 5 with row-0")


def test_groups_that_share_more_than_the_head_are_named():
    (finding,) = findings_of([("a", 3, [1, 2]), ("b", 3, [1, 3])])
    expected = "at most 2 with group a"
    assert finding == Finding(
        id="row-1", promise="shared_len", expected=expected, got="at least 3 with row-0"
    )


def test_a_row_of_a_zero_class_that_shares_with_a_warm_group_is_found():
    assert [f.id for f in findings_of([("a", 3, [1, 2]), ("a", 3, [1, 3]), ("none", 2, [1, 9])])] == ["row-2"]


def test_a_row_with_another_shared_len_than_its_group_is_found():
    (finding,) = findings_of([("a", 4, [1, 2, 3]), ("a", 3, [1, 2, 4])])
    assert (finding.id, finding.expected, finding.got) == ("row-1", 4, 3)


def test_as_many_rows_as_are_planned_may_share_one_token_more_and_never_two():
    rows = [("a", 3, [1, 5, 6]), ("a", 3, [1, 5, 7]), ("a", 3, [1, 5, 8])]
    assert findings_of(rows, crowded=2) == []
    assert [f.id for f in findings_of(rows, crowded=1)] == ["row-2"]
    assert [f.id for f in findings_of([*rows, ("a", 3, [1, 5, 6, 6])], crowded=9)] == ["row-3"]


def test_a_row_that_ends_within_the_prefix_is_found():
    assert [f.id for f in findings_of([("a", 5, [1, 2, 3, 4]), ("a", 5, [1, 2])])] == ["row-1"]


tokens = st.lists(st.integers(0, 2), min_size=3, max_size=5)


@given(st.lists(st.tuples(st.sampled_from("ab"), tokens), max_size=7), st.integers(3, 5), st.integers(3, 5))
def test_the_verdict_is_that_of_every_pair(rows, shared_a, shared_b):
    lengths = {"a": shared_a, "b": shared_b}
    pairs = combinations([(group, HEAD + body) for group, body in rows], 2)
    agrees = all(
        shared(one, other) == lengths[group] if group == other_group else shared(one, other) == len(HEAD)
        for (group, one), (other_group, other) in pairs
    )
    assert (findings_of([(group, lengths[group], body) for group, body in rows]) == []) == agrees
