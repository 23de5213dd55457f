"""Ordinals: which first token each stream takes, among the streams that begin behind the same tokens.

Rows of one group differ from their first own token on, so each row needs a token there that no other row has.
A plan knows no vocabulary. It gives each stream a number, its ordinal, and build/openings.py gives each
ordinal a first token of the vocabulary's list, from its front (0, 1, 2) or from its back (-1, -2, -3):

    0   1   2   3  ...   formal rows of the first round
    ... -14  -8  -2      prefixes: number p takes -2 - 6p, so they have a lane of their own
    ... -16 -10  -4      seeds: number p takes -4 - 6p
    ... -54 -30  -6      checks of the first round: number p takes -6 - 24p
    ... -5  -3  -1       rows of later rounds, at the places that no lane takes

The lanes are part of the format, since the bytes of sets with one round are keyed by them. A kind of rows
that a later version adds gets no lane: it takes places that no lane takes, like the rows of later rounds, and
moves neither a seed nor a check. No ordinal depends on how many formal rows there are, so a set that grows
keeps its first rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wlgen.workload.splits import Split

_LANES = {Split.SEED: (3, 6), Split.CHECK: (5, 24)}  # the first place from the back, and the step to the next
NUMBERING = 2  # in the manifest of a set that has several rounds, or is numbered densely


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """The ordinals of one plan.

    branches: the most prefixes that begin at one point. counts: for each split, in the order of `Split`, the
    most rows of one round that begin at one point, for example {SEED: 16, CHECK: 16}; formal rows have no
    count. Both follow from the spec. dense: whether seeds and checks take free places too, as in a set whose
    lanes run out of first tokens: the last of 1600 checks takes the place 38,382 from the back in its lane,
    and the place 1,601 without.
    """

    rounds: int
    branches: int = 0
    counts: Mapping[Split, int] = field(default_factory=dict)
    dense: bool = False

    def formal(self, number: int, round_: int) -> int:
        """Return the ordinal of a formal row. number: its index among the rows that begin at its point."""
        if round_ == 0:
            return number
        later = self.rounds - 1
        return self._free(sum(map(self._places, self.counts)) + number * later + round_ - 1)

    def of(self, split: Split, number: int, round_: int = 0) -> int:
        """Return the ordinal of a seed, a check or another row that the spec counts by prefix.

        number: below the count of its split.
        """
        lane = self._has_lane(split)
        if lane and round_ == 0:
            first, step = _LANES[split]
            return -1 - first - step * number
        earlier = list(self.counts)[: list(self.counts).index(split)]
        return self._free(sum(map(self._places, earlier)) + self.counts[split] * (round_ - lane) + number)

    @staticmethod
    def branch(number: int) -> int:
        """Return the ordinal of a prefix; number: below `branches`."""
        return -2 - 6 * number

    def least(self, most_formal: int) -> int:
        """Return a number that no ordinal is below, if formal rows are numbered from 0 to most_formal."""
        found = [0, self.formal(most_formal, self.rounds - 1)]
        if self.branches:
            found.append(self.branch(self.branches - 1))
        for split, count in self.counts.items():
            if count:
                found += [self.of(split, count - 1, round_) for round_ in {0, self._rounds_of(split) - 1}]
        return min(found)

    def _rounds_of(self, split: Split) -> int:
        return self.rounds if split.each_round else 1

    def _has_lane(self, split: Split) -> bool:
        """Return whether the rows that a split has in the first round stand in a lane."""
        return split in _LANES and not self.dense

    def _places(self, split: Split) -> int:
        """Return how many free places a split takes in all rounds."""
        return self.counts[split] * (self._rounds_of(split) - self._has_lane(split))

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
        lanes += [(*_LANES[split], n) for split, n in self.counts.items() if self._has_lane(split)]
        return sum(min(count, max(0, (place - first) // step + 1)) for first, step, count in lanes)
