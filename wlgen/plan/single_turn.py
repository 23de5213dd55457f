"""Single turns: makes the RowPlan of a row with one turn from its integers. All quantities are tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache

from wlgen import streams
from wlgen.plan.ordinals import Numbering
from wlgen.plan.request_class import RequestClass
from wlgen.plan.rows import MessagePlan, RowPlan, Segment, row_id
from wlgen.plan.table import Path
from wlgen.workload.splits import Split

CHAINS = 1 << 14  # chains of prefixes that memory holds at once, about 8 MB


class SingleTurns:
    """Makes the rows of one turn: formal rows, seeds and checks."""

    def __init__(self, classes: tuple[RequestClass, ...], numbering: Numbering) -> None:
        self.classes = classes
        self._numbering = numbering
        self._names: dict[Path, str] = {}

    def row(
        self,
        of: RequestClass,
        path: Path,
        shared_len: int,
        *,
        split: Split,
        rank: int,
        index: int,
        round_: int,
        ordinal: int,
        group: str,
        body_len: int,
        cached_len: int,
        output_len: int,
        passage_len: int,
        timestamp_ms: int | None = None,
    ) -> RowPlan:
        """Return a row of a single turn: the chain of its prefixes, then its own part."""
        chain = self._chain(path, shared_len)
        own = Segment(
            stream=streams.row(split, rank, index, round_),
            ordinal=ordinal,
            tokens=of.own_len(body_len, shared_len),
            kind="own",
        )
        messages = [MessagePlan(role="system", segments=chain)] if of.in_system else []
        messages.append(MessagePlan(role="user", segments=(own,) if of.in_system else (*chain, own)))
        return RowPlan(
            id=row_id(split, rank, index, round_),
            split=split,
            dp_rank=rank,
            group=group,
            round=round_,
            messages=tuple(messages),
            prompt_len=of.prompt_len(body_len),
            shared_len=shared_len,
            cached_len=cached_len,
            output_len=output_len,
            request_class=of.name or None,
            timestamp_ms=timestamp_ms,
            passage_len=passage_len,
            task=of.number,
            bound=of.bound,
        )

    @cached_property
    def _chain(self) -> Callable[[Path, int], tuple[Segment, ...]]:
        """The segments of a path that rows of one shared_len have, made once for all such rows."""
        return lru_cache(CHAINS)(self._make_chain)

    def _make_chain(self, path: Path, shared_len: int) -> tuple[Segment, ...]:
        of = self.classes[path[0]]
        left, segments = shared_len - of.offset, []
        for depth, tokens in enumerate(of.chain, 1):
            if left <= 0:
                break
            take = left if tokens is None else min(left, tokens)
            segments.append(self._prefix(of, path[1 : depth + 1], take))
            left -= take
        return tuple(segments)

    def _prefix(self, of: RequestClass, groups: tuple[int, ...], tokens: int) -> Segment:
        first = groups[0] * len(self.classes) + of.number
        return Segment(
            stream=streams.prefix(of.name, groups),
            ordinal=self._numbering.branch(groups[-1] if len(groups) > 1 else first),
            tokens=tokens,
            kind="prefix",
        )

    def group_name(self, path: Path) -> str:
        """Return the name of a prefix, as rows carry it: all, r03, g0007, or a chain of them."""
        if path not in self._names:
            self._names[path] = self._make_name(path)
        return self._names[path]

    def _make_name(self, path: Path) -> str:
        of = self.classes[path[0]]
        letters = {"all": "all", "rank": "r{:02d}", "group": "g{:04d}"}
        names = [letters[level.shared_by].format(g) for level, g in zip(of.levels, path[1:], strict=False)]
        return "/".join(([of.name] if of.name else []) + (names or ["none"]))
