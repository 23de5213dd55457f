"""Every stream that begins at one point has an ordinal of its own, and no first token is left unused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wlgen.plan.ordinals import Numbering

SMALL = st.integers(0, 9)


def ordinals_of(numbering: Numbering, formal: int) -> list[int]:
    rounds = range(numbering.rounds)
    return [
        *(numbering.formal(number, round_) for round_ in rounds for number in range(formal)),
        *(numbering.check(number, round_) for round_ in rounds for number in range(numbering.checks)),
        *map(numbering.seed, range(numbering.seeds)),
        *map(numbering.branch, range(numbering.branches)),
    ]


NUMBERINGS = st.builds(
    Numbering, rounds=st.integers(1, 9), branches=SMALL, seeds=SMALL, checks=SMALL, dense=st.booleans()
)


@given(NUMBERINGS, st.integers(1, 12))
def test_no_two_streams_have_the_same_ordinal_and_none_is_below_the_bound(numbering, formal):
    found = ordinals_of(numbering, formal)
    assert len(set(found)) == len(found)
    assert numbering.least(formal - 1) <= min(found)


@given(SMALL, SMALL, SMALL)
def test_the_first_round_is_numbered_as_it_always_was(branches, seeds, checks):
    """The bytes of sets with one round are keyed by these numbers."""
    numbering = Numbering(rounds=1, branches=branches, seeds=seeds, checks=checks)
    assert [numbering.formal(number, 0) for number in range(4)] == [0, 1, 2, 3]
    assert [numbering.branch(number) for number in range(3)] == [-2, -8, -14]
    assert [numbering.seed(number) for number in range(3)] == [-4, -10, -16]
    assert [numbering.check(number, 0) for number in range(3)] == [-6, -30, -54]


@pytest.mark.parametrize(("rounds", "formal"), [(9, 640), (3, 9_000), (12, 640)])
def test_later_rounds_leave_no_first_token_unused(rounds, formal):
    """DeepSeek-V4 has 36,977 first tokens: 640 rows in 9 rounds asked for the place 54,590 once."""
    numbering = Numbering(rounds=rounds, branches=1, seeds=16, checks=16)
    used = formal - numbering.least(formal - 1)
    streams = rounds * (formal + 16) + 16 + 1
    assert streams <= used <= streams + 24 * 16
    assert used < 36_977


def test_many_checks_of_one_round_are_numbered_densely_where_lanes_run_out():
    """100 checks a rank on 16 ranks: their lane ends at the place 38,382, densely they need 1,617."""
    lanes = Numbering(rounds=1, branches=1, seeds=16, checks=1600)
    dense = Numbering(rounds=1, branches=1, seeds=16, checks=1600, dense=True)
    assert (lanes.least(639), dense.least(639)) == (-38_382, -1_617)
