"""The plan: what each request must be, in integers, before any text exists. All quantities are tokens.

head | shared pages ............ | unique part ......... | tail
     |<------------- body_len ------------------------->|
|<--- shared_len -------------->|
|<--- prompt_len -------------------------------------------->|
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from wlgen.encodings import Framing
from wlgen.plan.ordinals import NUMBERING, Numbering
from wlgen.spec.model import Spec
from wlgen.streams import Coordinates
from wlgen.workload.bounds import Bound
from wlgen.workload.manifest import Promises
from wlgen.workload.rows import OptionalKeys
from wlgen.workload.splits import BY_NAME, LISTED, SPLITS, Split, in_order

File: TypeAlias = tuple[Split, int, int]
"""A file of rows: split, rank, round."""

LEAD = 2  # the first tokens of a stream, which wlgen chooses and no task: the lead and the token behind it


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of tokens from the start of one stream.

    stream: the stream's coordinates. ordinal: its number among the streams that begin at the same point,
    which decides its first token. kind: prefix, which a group's rows share; block, of a trace; own, a row's
    own part, in which the task writes its instruction; message, of a conversation, without instruction.
    """

    stream: Coordinates
    ordinal: int
    tokens: int
    kind: Literal["prefix", "block", "own", "message"]

    @property
    def kept(self) -> bool:
        """Whether other rows may have the same tokens, so that the build composes them once."""
        return self.kind in ("prefix", "block")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePlan:
    """One message: its role and the segments of its content, in order."""

    role: str
    segments: tuple[Segment, ...]

    @property
    def tokens(self) -> int:
        """Tokens of the message's content."""
        return sum(segment.tokens for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan(OptionalKeys):
    """One request in integers: the fields of Row, with segments in place of text.

    passage_len: the output_len for which the task writes the text. task: the number of the class whose task
    writes it.
    """

    id: str
    split: Split
    dp_rank: int
    group: str
    round: int
    messages: tuple[MessagePlan, ...]
    prompt_len: int
    shared_len: int
    cached_len: int
    output_len: int
    passage_len: int
    task: int
    bound: Bound

    @property
    def body_len(self) -> int:
        """Tokens of the message text."""
        return sum(message.tokens for message in self.messages)


class RowSource(Protocol):
    """Where the rows of a plan come from: drawn from the spec, or read from a trace."""

    @property
    def chained(self) -> bool:
        """Whether a message of some row may have more than one segment."""
        ...

    def count(self, split: Split, rank: int, round_: int) -> int:
        """Return the rows of a split on one rank in one round."""
        ...

    def rows(self, split: Split, rank: int, round_: int) -> Iterator[RowPlan]:
        """Yield the rows in the order of their file. A row is the same however many rows there are."""
        ...

    def ordinals(self) -> tuple[int, int]:
        """Return the least and the greatest ordinal that a segment may have.

        Streams that begin at the same point have different ordinals.
        """
        ...

    @property
    def numbering(self) -> Numbering:
        """How the source numbers its streams."""
        ...

    def densely(self) -> RowSource:
        """Return the same rows, with seeds and checks numbered so that no first token stays unused."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Every row of a workload as integers. frame: the framing of a conversation's roles."""

    spec: Spec
    frame: Callable[[tuple[str, ...]], Framing]
    source: RowSource
    promises: Promises

    @property
    def head_len(self) -> int:
        """The tokens of the framing in front of the body, which every prompt shares."""
        return len(self.frame(("user",)).ids[0])

    def count(self, split: Split, rank: int, round_: int = 0) -> int:
        """Return the rows of a split on one rank in one round."""
        return self.source.count(BY_NAME[split], rank, round_)

    def rows(self, split: Split, rank: int, round_: int = 0) -> Iterator[RowPlan]:
        """Yield a split's rows on one rank in one round, in the order of their file."""
        return self.source.rows(BY_NAME[split], rank, round_)

    @property
    def numbering(self) -> int | None:
        """The `numbering` of the manifest; None for a set of one round in lanes, as older sets are."""
        return NUMBERING if self.spec.rounds > 1 or self.source.numbering.dense else None

    def files(self) -> Iterator[File]:
        """Return (split, rank, round) of each file in the order in which they are sent."""
        parts = in_order(range(self.spec.rounds))
        return ((split, rank, round_) for split, round_ in parts for rank in range(self.spec.dp_ranks))

    def counts(self) -> dict[str, dict[str, Any]]:
        """Return the rows of each split in one round, as the manifest keeps them."""
        per_rank = {s: [self.count(s, rank) for rank in range(self.spec.dp_ranks)] for s in SPLITS}
        return {
            s.value: {"rows": sum(counts), "per_rank": counts}
            for s, counts in per_rank.items()
            if s in LISTED or any(counts)
        }


def row_id(split: str, rank: int, index: int, round_: int) -> str:
    """Return a row's id, unique in the workload."""
    return f"{split}-r{rank:02d}-{index:06d}" + (f"-k{round_}" if round_ else "")
