"""Ordinals: which first token each stream takes, among the streams that begin behind the same tokens.

Rows of one group part at their first own token, so each needs a token there that no other row has. A plan
knows no vocabulary. It gives each stream a number, its ordinal, and build/openings.py gives each ordinal one
of the vocabulary's first tokens, counted from the front (0, 1, 2) or from the back (-1, -2, -3):

    0   1   2   3  ...   formal rows of the first round
    ... -14  -8  -2      prefixes, in a lane of their own: prefix p takes -2 - 6p
    ... -16 -10  -4      seeds: seed p takes -4 - 6p
    ... -54 -30  -6      checks of the first round: check p takes -6 - 24p
    ... -5  -3  -1       rows of later rounds, in the places that no lane takes

The lanes are part of the format, since the bytes of sets with one round are keyed by them. No ordinal depends
on how many formal rows there are, so a set that grows keeps its first rows.
"""

from __future__ import annotations

from dataclasses import dataclass

NUMBERING = 2  # of sets with several rounds, or numbered densely; their manifest says so


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """The ordinals of one plan.

    branches, seeds, checks: the most prefixes, seeds and checks of one round that begin at one point, as the
    spec alone says. dense: seeds and checks take free places too, for a set whose lanes run out of first
    tokens. 1600 checks ask for the place 38,382 from the back in their lane, and for the place 1,601 without.
    """

    rounds: int
    branches: int = 0
    seeds: int = 0
    checks: int = 0
    dense: bool = False

    def formal(self, number: int, round_: int) -> int:
        """Return the ordinal of a formal row; number: its place among the rows that begin where it does."""
        if round_ == 0:
            return number
        later = self.rounds - 1
        return self._free(self._first_round + self.checks * later + number * later + round_ - 1)

    def check(self, number: int, round_: int) -> int:
        """Return the ordinal of a check; number: below `checks`."""
        if round_ == 0:
            return self._free(self.seeds + number) if self.dense else -6 - 24 * number
        return self._free(self._first_round + self.checks * (round_ - 1) + number)

    def seed(self, number: int) -> int:
        """Return the ordinal of a seed; number: below `seeds`."""
        return self._free(number) if self.dense else -4 - 6 * number

    @staticmethod
    def branch(number: int) -> int:
        """Return the ordinal of a prefix; number: below `branches`."""
        return -2 - 6 * number

    def least(self, most_formal: int) -> int:
        """Return a bound that no ordinal is below, where formal rows are numbered from 0 to most_formal."""
        found = [0, self.formal(most_formal, self.rounds - 1)]
        if self.branches:
            found.append(self.branch(self.branches - 1))
        if self.seeds:
            found.append(self.seed(self.seeds - 1))
        if self.checks:
            found += [self.check(self.checks - 1, round_) for round_ in (0, self.rounds - 1)]
        return min(found)

    @property
    def _first_round(self) -> int:
        """Free places that seeds and checks of the first round take."""
        return self.seeds + self.checks if self.dense else 0

    def _free(self, number: int) -> int:
        """Return the ordinal of a free place, counted from the back.

        A place's number is its own less the lanes' places up to it, so the place is the least fixed point of
        place = number + taken(place); counting up from `number` ends there.
        """
        place = number
        while (found := number + self._taken(place)) != place:
            place = found
        return -1 - place

    def _taken(self, place: int) -> int:
        """Return how many places from 0 to `place` belong to lanes."""
        lanes = [(1, 6, self.branches)]
        if not self.dense:
            lanes += [(3, 6, self.seeds), (5, 24, self.checks)]
        return sum(min(count, max(0, (place - first) // step + 1)) for first, step, count in lanes)
