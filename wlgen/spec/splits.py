"""Splits: how many seeds, checks and formal rows a set has."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Protocol, Self

from pydantic import Field, model_validator

from wlgen.spec.lengths import MOST_ROWS
from wlgen.strict.model import Strict, key, refusal
from wlgen.workload.bounds import Tokens
from wlgen.workload.splits import Split

Rows = Annotated[int, Field(ge=1, le=MOST_ROWS)]
RowsOrNone = Annotated[int, Field(ge=0, le=MOST_ROWS)]


class PerPrefix(Protocol):
    """What the spec says of a split whose rows it counts for each prefix on each rank.

    per_rank: rows of each prefix on each rank. output_len: tokens that the server generates for each.
    """

    @property
    def per_rank(self) -> int:
        """Rows of each prefix on each rank."""
        ...

    @property
    def output_len(self) -> int:
        """Tokens that the server generates for each row."""
        ...


class SeedSplit(Strict):
    """Seeds: the requests that load each shared prefix into each rank's cache before anything is measured."""

    output_len: ClassVar[int] = 1

    per_rank: RowsOrNone = key("Seeds of each prefix on each rank.", unit="rows", example="1", default=1)
    shape: Literal["short", "full"] = key(
        "short: the shared prefix and just enough tokens behind it to end inside the next hit quantum. full: "
        "as long as body_len.",
        example="full",
        default="short",
    )


class CheckSplit(Strict):
    """Checks: rows like the formal ones, not measured, that prove each prefix is in the cache."""

    per_rank: RowsOrNone = key("Checks on each rank in each round.", unit="rows", example="1", default=1)
    output_len: Tokens = key(
        "Tokens that the server generates for a check.", unit="tokens", example="1", default=1
    )


class TraceFormal(Strict):
    """Formal rows of a trace."""

    total: Rows | None = key(
        "Formal rows of all ranks together, in each round. Of a trace: the most rows that are taken.",
        unit="rows",
        example="640",
        default=None,
    )

    def rows(self, dp_ranks: int) -> int:
        """Return the most formal rows of all ranks."""
        del dp_ranks
        return self.total or MOST_ROWS


class FormalSplit(TraceFormal):
    """Formal rows, the measured ones: their number in all, or for each rank."""

    per_rank: Rows | None = key(
        "Formal rows of each rank, in each round.", unit="rows", example="40", default=None
    )

    @model_validator(mode="after")
    def _one_count(self) -> Self:
        if (self.total is None) == (self.per_rank is None):
            found = "neither" if self.total is None else "both"
            remedy = "Write {total: 640}, for example." if self.total is None else "Delete one of them."
            raise refusal(expected="total or per_rank", found=found, remedy=remedy)
        return self

    def rows(self, dp_ranks: int) -> int:
        """Return the formal rows of all ranks."""
        return self.total or (self.per_rank or 0) * dp_ranks


class _ByPrefix(Strict):
    """What the splits say of each split that is counted for each prefix on each rank."""

    def of(self, split: Split) -> PerPrefix | None:
        """Return what a split has for each prefix on each rank; None for one left out, or of formal rows."""
        found: PerPrefix | None = getattr(self, split, None) if split.per_prefix else None
        return found

    def per_rank(self, split: Split) -> int:
        """Return the rows that a split has of each prefix on each rank in one round."""
        found = self.of(split)
        return found.per_rank if found else 0


class Splits(_ByPrefix):
    """The splits of a set whose rows are drawn: a key for each member of `Split`."""

    seed: SeedSplit | None = key(
        "Seeds. Left out, a warm set has one for each prefix on each rank, and other sets have none.",
        example="{per_rank: 1}",
        default=None,
    )
    check: CheckSplit = key("Checks. A cold set has none.", example="{per_rank: 1}", default=CheckSplit())
    formal: FormalSplit = key("Formal rows.", example="{total: 640}")


class TraceSplits(_ByPrefix):
    """The splits of a trace: formal rows alone."""

    seed: ClassVar[None] = None
    check: ClassVar[CheckSplit] = CheckSplit(per_rank=0)

    formal: TraceFormal = key("Formal rows.", example="{total: 640}", default=TraceFormal())
