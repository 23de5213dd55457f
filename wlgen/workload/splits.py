"""Splits: the kinds of rows that a set has, each a value with its facts.

A server gets the seeds first, and once, however many rounds there are; then each round's checks and formal
rows. A set of 16 ranks and two rounds has the files seed/rank-00 to -15, check/rank-00 to -15,
formal/rank-00 to -15, and then check and formal of round 1.

A new kind is one member of `Split`, at its place in that order, and a key of the same name in the spec's
`splits` (spec/splits.py) that says how many rows it has; the key may be left out, so that older specs and
their sets stay as they are.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple, Self


class _Facts(NamedTuple):
    """What the rest of wlgen asks of a split, instead of comparing its name.

    primes: its rows put a prefix into a server's cache, and have no bound themselves.
    measured: its rows are the benchmark itself; rows of other splits are sent before them.
    each_round: each round has new rows of this split; if not, the split comes once, before the first round.
    per_prefix: the spec counts its rows for each prefix on each rank (seed: {per_rank: 2}); if not, it counts
    the rows of all ranks (formal: {total: 640}), which are drawn from the classes.
    """

    primes: bool
    measured: bool
    each_round: bool
    per_prefix: bool


class Split(StrEnum):
    """A kind of rows, in the order in which a server gets them; equal to its name in files and folders."""

    primes: bool
    measured: bool
    each_round: bool
    per_prefix: bool

    def __new__(cls, name: str, facts: _Facts) -> Self:  # noqa: D102 (Python's own)
        split = str.__new__(cls, name)
        split._value_ = name
        split.primes, split.measured, split.each_round, split.per_prefix = facts
        return split

    SEED = "seed", _Facts(primes=True, measured=False, each_round=False, per_prefix=True)
    CHECK = "check", _Facts(primes=False, measured=False, each_round=True, per_prefix=True)
    FORMAL = "formal", _Facts(primes=False, measured=True, each_round=True, per_prefix=False)

    def within(self, round_: int, rounds: Container[int]) -> bool:
        """Return whether a row of this split and round belongs to `rounds`; a seed belongs to all rounds."""
        return not self.each_round or round_ in rounds


SPLITS: tuple[Split, ...] = tuple(Split)
BY_NAME: Mapping[str, Split] = {split.value: split for split in SPLITS}
PRIMING = tuple(split for split in SPLITS if split.primes)
BEFORE = tuple(split for split in SPLITS if not split.measured)  # what prepares a server for the benchmark
MEASURED = tuple(split for split in SPLITS if split.measured)
LISTED = (
    Split.SEED,
    Split.CHECK,
    Split.FORMAL,
)  # in each manifest, with rows or without; others with rows only


def in_order(rounds: Iterable[int]) -> Iterator[tuple[Split, int]]:
    """Yield (split, round) as a server gets them: (seed, 0), then (check, r) and (formal, r) for each r."""
    yield from ((split, 0) for split in SPLITS if not split.each_round)
    for round_ in rounds:
        yield from ((split, round_) for split in SPLITS if split.each_round)
