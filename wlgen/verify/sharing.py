"""Sharing: what every two rows of a set share, proved from their ids without comparing every two rows.

A row is a path through a tree. Each segment that the row shares by its plan must have the ids that the tree
holds there, and where rows part, each must go on with a first token that no other row has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from wlgen.encodings import Framing
from wlgen.plan.rows import RowPlan, Segment
from wlgen.workload.rows import Finding, Row

Ids = NDArray[np.uint32]


class Sharing:
    """Takes rows with their plans and ids, and finds rows that share more or fewer tokens than planned.

    crowded: how many rows the build planned to share one token more than planned, since a group has more
    rows, or the set more prefixes, than the vocabulary has first tokens; their first two tokens differ
    together. hit: the cached tokens of a row that shares so many tokens. A token more that moves the hit is a
    finding whatever was planned.
    """

    def __init__(self, crowded: int, hit: Callable[[int, Row], int] = lambda _shared_len, _row: 0) -> None:
        self._crowded = crowded
        self._last_crowded = ""  # the id of the row that was taken off `crowded` last
        self._hit = hit
        self._streams: dict[Any, Ids] = {}
        self._said: dict[int, int] = {}
        self._left: defaultdict[Any, set[tuple[int, int]]] = defaultdict(set)
        self._begun: defaultdict[Any, dict[tuple[int, ...], tuple[Any, str]]] = defaultdict(dict)

    def add(self, row: Row, plan: RowPlan, ids: Ids, framing: Framing) -> Iterator[Finding]:
        """Yield what is wrong with a row, compared with the rows before it; `plan` is the row's own."""
        node: Any = None
        at, behind = 0, None
        for gap, message in zip(framing.ids, plan.messages, strict=False):
            at += len(gap)
            for segment in message.segments:
                finding = self._begin(node, segment, row, at, ids) or self._leave(behind, row, at, ids)
                if finding is None and segment.kept:
                    finding = self._hold(node, segment, row, at, ids)
                elif finding is None and segment.kind == "message":
                    finding = self._repeat(node, segment, row, at, ids)
                if finding is not None:
                    yield finding
                    return
                behind = ((node, segment.stream), segment.tokens) if segment.kept else None
                node = hash((node, segment.stream, segment.tokens))
                at += segment.tokens
            node, behind = hash((node, "next message")), None

    def _begin(self, node: Any, segment: Segment, row: Row, at: int, ids: Ids) -> Finding | None:
        """Check that a segment begins with a token that no other stream has at this node."""
        first = ids[at : at + 2].tolist()
        seen = self._begun[node]
        one, other = seen.setdefault(tuple(first[:1]), (segment.stream, row.id))
        # A seed's own part may be one token: it then differs by ending where the other row goes on.
        two, _ = seen.setdefault((*first, -1), (segment.stream, row.id))
        if one == segment.stream:
            return None
        moves = self._hit(at, row) != self._hit(at + 1, row)
        planned = self._crowded > 0 or self._last_crowded == row.id
        if two == segment.stream and planned and not moves:
            self._crowded -= self._last_crowded != row.id
            self._last_crowded = row.id
            return None
        return Finding(id=row.id, promise="shared_len", expected=at, got=f"at least {at + 1} with {other}")

    def _leave(self, behind: tuple[Any, int] | None, row: Row, at: int, ids: Ids) -> Finding | None:
        """Check that a row does not go on as the shared stream does, which other rows may follow further."""
        if behind is None:
            return None
        key, tokens = behind
        first, held = int(ids[at]) if at < len(ids) else -1, self._streams[key]
        self._left[key].add((tokens, first))
        if len(held) > tokens and held[tokens] == first:
            return Finding(id=row.id, promise="shared_len", expected=at, got=f"at least {at + 1}")
        return None

    def _repeat(self, node: Any, segment: Segment, row: Row, at: int, ids: Ids) -> Finding | None:
        """Check that a message of a conversation has the same ids in every turn."""
        end = at + segment.tokens
        mine = xxhash.xxh3_64_intdigest(ids[at:end].tobytes())
        if self._said.setdefault(hash((node, segment.stream)), mine) == mine:
            return None
        return Finding(
            id=row.id, promise="shared_len", expected=end, got="another text than an earlier turn's"
        )

    def _hold(self, node: Any, segment: Segment, row: Row, at: int, ids: Ids) -> Finding | None:
        """Check that a shared segment has the same ids as in other rows, as far as both reach."""
        mine = ids[at : at + segment.tokens]
        if len(mine) < segment.tokens:
            return Finding(id=row.id, promise="shared_len", expected=at + segment.tokens, got=at + len(mine))
        key = (node, segment.stream)
        held = self._streams.get(key)
        if held is None or len(held) < len(mine):
            self._streams[key] = mine.copy()
            for tokens, first in self._left[key]:
                if tokens < len(mine) and mine[tokens] == first:
                    got = f"at least {at + tokens + 1} with a row that leaves there"
                    return Finding(id=row.id, promise="shared_len", expected=at + tokens, got=got)
        if held is None or np.array_equal(held[: len(mine)], mine[: len(held)]):
            return None
        both = min(len(held), len(mine))
        differs = int((held[:both] != mine[:both]).argmax())
        return Finding(id=row.id, promise="shared_len", expected=at + segment.tokens, got=at + differs)
