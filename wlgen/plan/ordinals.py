"""Ordinals: which first token each stream takes, among the streams that begin behind the same tokens.

Rows of one group differ from their first own token on, so each row needs a token there that no other row has.
A plan knows no vocabulary. It gives each stream a number, its ordinal, and build/openings.py gives each
ordinal a first token of the vocabulary's list, from its front (0, 1, 2) or from its back (-1, -2, -3):

    0   1   2   3  ...   formal rows of the first round
    ... -14  -8  -2      prefixes: number p takes -2 - 6p, so they have a lane of their own
    ... -16 -10  -4      seeds: number p takes -4 - 6p
    ... -54 -30  -6      checks of the first round: number p takes -6 - 24p
    ... -5  -3  -1       rows of later rounds, at the places that no lane takes

The lanes are part of the format, since the bytes of sets with one round are keyed by them. No ordinal depends
on how many formal rows there are, so a set that grows keeps its first rows.
"""

from __future__ import annotations

from dataclasses import dataclass

NUMBERING = 2  # in the manifest of a set that has several rounds, or is numbered densely


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """The ordinals of one plan.

    branches, seeds, checks: the most prefixes, seeds and checks of one round that begin at one point; they
    follow from the spec. dense: whether seeds and checks take free places too, as in a set whose lanes run
    out of first tokens: the last of 1600 checks takes the place 38,382 from the back in its lane, and the
    place 1,601 without.
    """

    rounds: int
    branches: int = 0
    seeds: int = 0
    checks: int = 0
    dense: bool = False

    def formal(self, number: int, round_: int) -> int:
        """Return the ordinal of a formal row. number: its index among the rows that begin at its point."""
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
        """Return a number that no ordinal is below, if formal rows are numbered from 0 to most_formal."""
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
        """How many free places the seeds and checks of the first round take."""
        return self.seeds + self.checks if self.dense else 0

    def _free(self, number: int) -> int:
        """Return the ordinal of the free place `number`, counted from the back.

        Free places are numbered without the lanes' places, so the wanted place is the least one for which
        place = number + taken(place); the loop counts up to it.
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
