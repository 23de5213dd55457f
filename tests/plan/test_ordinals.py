"""Every stream that begins at one point has an ordinal of its own, and no first token is left unused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wlgen.plan.ordinals import Numbering
from wlgen.workload.splits import Split

SMALL = st.integers(0, 9)


def ordinals_of(numbering: Numbering, formal: int) -> list[int]:
    rounds = range(numbering.rounds)
    return [
        *(numbering.formal(number, round_) for round_ in rounds for number in range(formal)),
        *(
            numbering.of(split, number, round_)
            for split, count in numbering.counts.items()
            for round_ in (rounds if split.each_round else [0])
            for number in range(count)
        ),
        *map(numbering.branch, range(numbering.branches)),
    ]


NUMBERINGS = st.builds(
    Numbering,
    rounds=st.integers(1, 9),
    branches=SMALL,
    # FORMAL stands for a kind that has no lane, as each kind has none that a later version adds.
    counts=st.fixed_dictionaries(dict.fromkeys(Split, SMALL)),
    dense=st.booleans(),
)


@given(NUMBERINGS, st.integers(1, 12))
def test_no_two_streams_have_the_same_ordinal_and_none_is_below_the_bound(numbering, formal):
    found = ordinals_of(numbering, formal)
    assert len(set(found)) == len(found)
    assert numbering.least(formal - 1) <= min(found)


@given(SMALL, SMALL, SMALL, SMALL)
def test_the_first_round_is_numbered_as_it_always_was(branches, seeds, checks, others):
    """The bytes of sets with one round are keyed by these numbers, which rows of a new kind do not move."""
    counts = {Split.SEED: seeds, Split.CHECK: checks, Split.FORMAL: others}
    numbering = Numbering(rounds=1, branches=branches, counts=counts)
    assert [numbering.formal(number, 0) for number in range(4)] == [0, 1, 2, 3]
    assert [numbering.branch(number) for number in range(3)] == [-2, -8, -14]
    assert [numbering.of(Split.SEED, number) for number in range(3)] == [-4, -10, -16]
    assert [numbering.of(Split.CHECK, number) for number in range(3)] == [-6, -30, -54]


def test_later_checks_are_numbered_as_they_were_before_a_kind_without_a_lane_came():
    """Checks of round 1 take the first free places from the back, and the new kind those behind them."""
    counts = {Split.SEED: 2, Split.CHECK: 3}
    before = Numbering(rounds=2, branches=2, counts=counts)
    after = Numbering(rounds=2, branches=2, counts=counts | {Split.FORMAL: 4})
    for numbering in (before, after):
        assert [numbering.of(Split.CHECK, number, 1) for number in range(3)] == [-1, -3, -5]
    assert after.of(Split.FORMAL, 0) < -5


@pytest.mark.parametrize(("rounds", "formal"), [(9, 640), (3, 9_000), (12, 640)])
def test_later_rounds_leave_no_first_token_unused(rounds, formal):
    """DeepSeek-V4 has 36,977 first tokens: 640 rows in 9 rounds asked for the place 54,590 once."""
    numbering = Numbering(rounds=rounds, branches=1, counts={Split.SEED: 16, Split.CHECK: 16})
    used = formal - numbering.least(formal - 1)
    streams = rounds * (formal + 16) + 16 + 1
    assert streams <= used <= streams + 24 * 16
    assert used < 36_977


def test_many_checks_of_one_round_are_numbered_densely_where_lanes_run_out():
    """100 checks a rank on 16 ranks: their lane ends at the place 38,382, densely they need 1,617."""
    counts = {Split.SEED: 16, Split.CHECK: 1600}
    lanes = Numbering(rounds=1, branches=1, counts=counts)
    dense = Numbering(rounds=1, branches=1, counts=counts, dense=True)
    assert (lanes.least(639), dense.least(639)) == (-38_382, -1_617)
