"""Predict: what each planned row will find cached, replayed through the rule before any text exists.

Streams are replaced by made-up ids, a range of its own for each: two rows share the same run of ids exactly
where their texts will.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from wlgen.cache_rules import CacheRule
from wlgen.cache_rules._replay import new_cache
from wlgen.encodings import Framing
from wlgen.plan import RowPlan, Segment
from wlgen.streams import Coordinates

Ids = NDArray[np.uint32]
FIRST = 1 << 21  # above every id of a vocabulary
SPAN = 1 << 18  # ids of a shared stream, of which rows may take different amounts
LAST = 1 << 32


class Predictor:
    """The cache of one rank, filled by planned rows in the order they are sent."""

    def __init__(self, rule: CacheRule, frame: Callable[[tuple[str, ...]], Framing]) -> None:
        self._cache = new_cache(rule)
        self._frame = frame
        self._starts: dict[Coordinates, int] = {}
        self._next = FIRST

    def send(self, row: RowPlan, answer_len: int = 0) -> int:
        """Return the cached tokens of a row, and keep what it leaves: its prompt, and a recorded answer.

        answer_len: tokens of its answer that the next turn sends again; 0 for an answer nobody repeats.
        """
        return self.send_together([row], answer_len)[0]

    def send_together(self, rows: list[RowPlan], answer_len: int = 0) -> list[int]:
        """Return the cached tokens of rows that are admitted together: none finds what another computes."""
        matches = [self._cache.match(self._ids(row)) for row in rows]
        for row, match in zip(rows, matches, strict=True):
            self._cache.insert(match, self._answer(row, answer_len))
        return [match.cached_len for match in matches]

    def _ids(self, row: RowPlan) -> Ids:
        gaps = self._frame(tuple(m.role for m in row.messages)).ids
        runs = [np.array(gaps[0], dtype=np.uint32)]
        for message, gap in zip(row.messages, gaps[1:], strict=True):
            runs += [self._run(segment) for segment in message.segments]
            runs.append(np.array(gap, dtype=np.uint32))
        return np.concatenate(runs)

    def _run(self, segment: Segment) -> Ids:
        start = self._starts.get(segment.stream)
        if start is None:
            start = self._starts[segment.stream] = self._next
            self._next += max(SPAN, segment.tokens) if segment.kept else segment.tokens
            if self._next > LAST:  # a run's start still tells it from its neighbours
                self._next = FIRST
        return np.arange(start, start + segment.tokens, dtype=np.int64).astype(np.uint32)

    def _answer(self, row: RowPlan, answer_len: int) -> Ids:
        """Return the ids of what the model is taken to answer: the session's next message, or no text's."""
        if answer_len:
            *session, number = row.messages[-1].segments[-1].stream
            stream = (*session, int(number) + 1)
            answer = self._run(Segment(stream=stream, ordinal=0, tokens=answer_len, kind="message"))
            return np.append(
                answer, np.uint32(FIRST - 1)
            )  # the end token, which is sampled and never computed
        return np.array([FIRST - 1], dtype=np.uint32)


def trajectory(
    rows: Iterator[RowPlan], rule: CacheRule, frame: Callable[[tuple[str, ...]], Framing], in_flight: int
) -> list[tuple[RowPlan, int]]:
    """Return each row of one rank with what it finds cached when `in_flight` rows are admitted at a time."""
    predictor = Predictor(rule, frame)
    found: list[tuple[RowPlan, int]] = []
    while together := list(islice(rows, in_flight)):
        found += zip(together, predictor.send_together(together), strict=True)
    return found
