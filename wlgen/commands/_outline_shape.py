"""The keys of what `wlgen plan --json` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wlgen.commands._answer import shape_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSizes:
    """The cache rule of a plan: its name and its two sizes, in tokens."""

    name: str
    page_size: int
    hit_quantum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FramingSizes:
    """Tokens of the chat framing before and behind a single user message."""

    head: int
    tail: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthsDrawn:
    """A length that differs from row to row, in tokens. bins: [least, most, rows] each."""

    min: int
    p50: int
    p90: int
    max: int
    bins: list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalsPlanned:
    """How the formal rows of a round arrive. left_out: lines of a trace that the plan leaves out."""

    rows: int
    span_s: float
    rows_per_s: float | None
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlanned:
    """One split: its rows, in all and by rank, and the figures of its first row. alike: so are all rows."""

    rows: int
    per_rank: list[int]
    prompt_len: int
    cached_len: int
    output_len: int
    alike: bool
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StretchCached:
    """The cached ratio of the rows from the first number up to the second, in the order sent."""

    rows: tuple[int, int]
    cached_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCounted:
    """A prefix of the tree: its depth from 0, its most tokens, and how many formal rows begin with it."""

    depth: int
    name: str
    tokens: int
    rows: int


def outline_shape() -> Any:
    """Return the model of what `wlgen plan --json` prints. Lengths are tokens of the formal rows."""
    from wlgen.workload.manifest import Promises

    names = ("body_len", "prompt_len", "shared_len", "cached_len", "output_len", "unique_len", "computed_len")
    lengths: dict[str, Any] = dict.fromkeys(names, int | LengthsDrawn)
    return shape_of(
        "plan",
        name=str,
        rule=RuleSizes,
        framing=FramingSizes,
        **lengths,
        promises=Promises,
        arrivals=ArrivalsPlanned | None,
        groups=int,
        rounds=int,
        splits=dict[str, SplitPlanned],
        rows_that_share_a_lead=int,
        bytes=int,
        tree=list[PrefixCounted],
        trajectory=list[StretchCached],
    )
