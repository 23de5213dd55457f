"""Predict: what each planned row will find cached, replayed through the rule before any text exists.

Streams are replaced by made-up ids: each begins with one of its own and goes on alike, so that two rows
share a run of ids exactly where their texts will, however many streams there are.

A row's own part is in no other row, so under a rule that keeps whole pages wherever they end, its first two
tokens stand for all of it: what the row finds is the same, and the cache holds the shared prefixes alone. Of
100,000 rows of 2048 tokens over 1000 prefixes of 1024 it holds 1000 prefixes, and not 100,000 own parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from wlgen.cache.rule import CacheRule
from wlgen.encodings import Framing
from wlgen.engines import new_cache
from wlgen.errors import error
from wlgen.plan.rows import Plan, RowPlan
from wlgen.streams import Coordinates, answer_to

Ids = NDArray[np.uint32]
FIRST = 1 << 21  # above every id of a vocabulary
INNER, END = FIRST - 2, FIRST - 1  # the tokens of a stream behind its first; the end of an answer
_NO_TEXT = np.array([END], dtype=np.uint32)


class Predictor:
    """The cache of one rank, filled by planned rows in the order they are sent."""

    def __init__(self, rule: CacheRule, frame: Callable[[tuple[str, ...]], Framing]) -> None:
        self._cache = new_cache(rule)
        self._hybrid = rule.hybrid
        self._frame = frame
        self._starts: dict[Coordinates, int] = {}

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
        head, *gaps = self._frame(tuple(m.role for m in row.messages)).ids
        last, length = row.messages[-1].segments[-1], row.prompt_len
        if last.kind == "own" and not self._hybrid:
            length -= max(0, last.tokens + len(gaps[-1]) - 2)
        ids = np.full(length, INNER, dtype=np.uint32)
        at = len(head)
        ids[:at] = head
        for message, gap in zip(row.messages, gaps, strict=True):
            for segment in message.segments:
                ids[at] = self._first(segment.stream)
                at += segment.tokens
            ids[at : at + len(gap)] = gap[: max(0, length - at)]
            at += len(gap)
        return ids

    def _first(self, stream: Coordinates) -> int:
        return FIRST + self._starts.setdefault(stream, len(self._starts))

    def _answer(self, row: RowPlan, answer_len: int) -> Ids:
        """Return the ids of what the model is taken to answer: the session's next message, or no text's."""
        if answer_len:
            answer = np.full(answer_len + 1, INNER, dtype=np.uint32)
            answer[0] = self._first(answer_to(row.messages[-1].segments[-1].stream))
            answer[-1] = END  # which is sampled and never computed
            return answer
        return _NO_TEXT


def gate(plan: Plan, ranks: Iterable[int]) -> None:
    """Replay each row of some ranks; WlgenError for a row that does not find its cached_len."""
    for rank in ranks:
        predictor = Predictor(plan.spec.cache, plan.frame)
        files = [(split, at, round_) for split, at, round_ in plan.files() if at == rank]
        for row in (row for file in files for row in plan.rows(*file)):
            found = predictor.send(row)
            if found != row.cached_len:
                raise error(
                    plan.spec.at("cache"),
                    expected=f"row {row.id} to find {row.cached_len} of its {row.prompt_len} tokens cached",
                    found=f"{found} in a replay of the rule {plan.spec.cache.name}",
                    remedy="Use seed: {per_rank: 2}, or prompts whose shared prefix ends on another quantum.",
                )


def trajectory(
    rows: Iterator[RowPlan],
    rule: CacheRule,
    frame: Callable[[tuple[str, ...]], Framing],
    in_flight: int,
    before: Iterable[RowPlan] = (),
) -> list[tuple[RowPlan, int]]:
    """Return each row of one rank with what it finds cached when `in_flight` rows are admitted at a time.

    before: what the rank was sent before them, one after another: its seeds and checks.
    """
    predictor = Predictor(rule, frame)
    for row in before:
        predictor.send(row)
    found: list[tuple[RowPlan, int]] = []
    while together := list(islice(rows, in_flight)):
        found += zip(together, predictor.send_together(together), strict=True)
    return found
