"""The plan: what each request must be, in integers, before any text exists. All quantities are tokens.

head | shared pages ............ | unique part ......... | tail
     |<------------- body_len ------------------------->|
|<--- shared_len -------------->|
|<--- prompt_len -------------------------------------------->|
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wlgen.encodings import Framing
from wlgen.spec import Spec
from wlgen.streams import Coordinates
from wlgen.workload import Bound, Promises, Split

LEAD = 2  # tokens of a stream that plan and compose keep for themselves: the lead and what follows it


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of tokens from the start of one stream.

    stream: the stream's coordinates. ordinal: its place among the streams that begin at the same point,
    which picks its lead. shared: whether other rows have the same tokens; a row's own segment is its last.
    """

    stream: Coordinates
    ordinal: int
    tokens: int
    shared: bool


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
class RowPlan:
    """One request in integers; the fields are those of Row, with segments for text.

    passage_len: the output that the task's text prepares for.
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

    @property
    def body_len(self) -> int:
        """Tokens of the message text."""
        return sum(message.tokens for message in self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Every row of a workload as integers. cached_len is that of a check or formal row."""

    spec: Spec
    framing: Framing
    bound: Bound
    shared_len: int
    cached_len: int
    seed_len: int

    @property
    def prompt_len(self) -> int:
        """Tokens of a formal prompt, framing included."""
        return self.spec.requests.body_len + self.framing.tokens

    @property
    def head_len(self) -> int:
        """Tokens of the framing in front of the body, which every prompt shares."""
        return len(self.framing.ids[0])

    @property
    def warm(self) -> bool:
        """Whether rows share more than the framing head."""
        return self.shared_len > self.head_len

    @property
    def groups(self) -> int:
        """Prefix groups of the workload; a zero set has one, whose rows share the framing head only."""
        prefix, ranks = self.spec.requests.prefix, self.spec.dp_ranks
        return {"all": 1, "rank": ranks, "group": prefix.groups or 1}[prefix.shared_by] if self.warm else 1

    @property
    def promises(self) -> Promises:
        """The three promises, as ratios of prompt_len."""
        reached = self.cached_len / self.prompt_len
        return Promises(configured=self.configured, aggregate=reached, per_request_min=reached)

    @property
    def configured(self) -> float:
        """The bound that the spec names, as a ratio of prompt_len."""
        if self.bound.min_ratio is not None:
            return float(self.bound.min_ratio)
        return (self.bound.tokens or self.bound.max_tokens or 0) / self.prompt_len

    def count(self, split: Split, rank: int) -> int:
        """Return the rows of a split on one rank."""
        splits = self.spec.splits
        if split == "formal":
            base, extra = divmod(splits.formal.total or 0, self.spec.dp_ranks)
            return splits.formal.per_rank or base + (rank < extra)
        if split == "check":
            return splits.check.per_rank * len(self.groups_of(rank))
        return splits.seed.per_rank * len(self.groups_of(rank)) if splits.seed and self.warm else 0

    def groups_of(self, rank: int) -> range:
        """Return the groups whose rows a rank serves."""
        return range(rank, rank + 1) if self._by_rank else range(self.groups)

    @property
    def _by_rank(self) -> bool:
        return self.warm and self.spec.requests.prefix.shared_by == "rank"

    def rows(self, split: Split, rank: int, round_: int = 0) -> Iterator[RowPlan]:
        """Yield a split's rows on one rank; row i is the same whatever the count, rank for rank."""
        for index in range(self.count(split, rank)):
            yield self._row(split, rank, index, round_)

    def _row(self, split: Split, rank: int, index: int, round_: int) -> RowPlan:
        groups = self.groups_of(rank)
        turn, which = divmod(index, len(groups))
        group = groups[which]
        # The place among the group's rows of this split: no two (rank, index) of a group have the same.
        place = turn if self._by_rank else turn * self.spec.dp_ranks + rank
        splits, requests = self.spec.splits, self.spec.requests
        full = split != "seed" or (splits.seed is not None and splits.seed.shape == "full")
        prompt_len = self.prompt_len if full else self.seed_len
        own = Segment(
            stream=("row", split, rank, index, round_),
            ordinal=sibling(split, place, round_),
            tokens=prompt_len - self.framing.tokens - (self.shared_len - self.head_len),
            shared=False,
        )
        segments = (self._prefix(group), own) if self.warm else (own,)
        output_len = {"seed": 1, "check": splits.check.output_len, "formal": requests.output_len}[split]
        return RowPlan(
            id=f"{split}-r{rank:02d}-{index:06d}" + (f"-k{round_}" if round_ else ""),
            split=split,
            dp_rank=rank,
            group=self.group_name(group),
            round=round_,
            messages=(MessagePlan(role="user", segments=segments),),
            prompt_len=prompt_len,
            shared_len=self.shared_len,
            cached_len=self._cached_len(split, prompt_len, index, turn),
            output_len=output_len,
            passage_len=requests.output_len,
        )

    def _cached_len(self, split: Split, prompt_len: int, index: int, turn: int) -> int:
        if split != "seed":
            return self.cached_len
        if index == 0:
            return 0
        # Behind one seed that does not fit, the second one finds no state where the prefix ends.
        primed = turn > 1 or self.spec.cache.seed_fits(prompt_len, self.shared_len)
        held = self.head_len if turn == 0 else self.shared_len if primed else 0
        return self.spec.cache.cached_len(held, prompt_len)

    def _prefix(self, group: int) -> Segment:
        return Segment(
            stream=("prefix", group),
            ordinal=sibling("branch", group, 0),
            tokens=self.shared_len - self.head_len,
            shared=True,
        )

    def group_name(self, group: int) -> str:
        """Return the name of a group, as rows carry it."""
        if not self.warm:
            return "none"
        return {"all": "all", "rank": f"r{group:02d}", "group": f"g{group:04d}"}[
            self.spec.requests.prefix.shared_by
        ]


def sibling(kind: str, place: int, round_: int) -> int:
    """Return the ordinal of a stream among those that begin at the same point.

    It depends on nothing that may grow (counts, rounds): formal rows of round 0 count up from the front,
    all others down from the back, where later rounds of formal rows have every other place.
    """
    if kind == "formal":
        return place if round_ == 0 else -1 - 2 * _spread(place, round_ - 1)
    lane = ("branch", "seed", "check").index(kind)
    return -1 - (2 * (3 * (_spread(place, round_) if kind == "check" else place) + lane) + 1)


def _spread(place: int, round_: int) -> int:
    """Map (place, round) one to one to the counting numbers: three rounds a level, a quarter of it each."""
    level, lane = divmod(round_, 3)
    spread = 4 * place + lane
    for _ in range(level):
        spread = 4 * spread + 3
    return spread
