"""Predict: what each planned row will find cached, replayed through the rule before any text exists.

The replay takes made-up ids in place of text, which two rows share exactly where their texts will share
tokens.

No other row has a row's own part. Under a rule that keeps whole pages wherever they end, its first two tokens
can therefore stand for all of it: the row finds the same tokens cached, and the cache holds shared prefixes
alone. For 100,000 rows of 2048 tokens over 1000 prefixes of 1024 it holds 1000 prefixes and hardly any of
the own parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np

from wlgen.cache.made_up import END, INNER, NO_TEXT, MadeUp
from wlgen.cache.rule import CacheRule, Ids
from wlgen.encodings import Framing
from wlgen.engines import new_cache
from wlgen.errors import error
from wlgen.plan.rows import Plan, RowPlan
from wlgen.streams import answer_to


class Predictor:
    """The cache of one rank, which planned rows fill in the order in which they are sent."""

    def __init__(self, rule: CacheRule, frame: Callable[[tuple[str, ...]], Framing]) -> None:
        self._cache = new_cache(rule)
        self._hybrid = rule.hybrid
        self._frame = frame
        self._made_up = MadeUp()

    def send(self, row: RowPlan, answer_len: int = 0) -> int:
        """Return the cached tokens of a row, and keep its prompt and its recorded answer.

        answer_len: tokens of the answer that the next turn sends again; 0 if no row repeats it.
        """
        return self.send_together([row], answer_len)[0]

    def send_together(self, rows: list[RowPlan], answer_len: int = 0) -> list[int]:
        """Return the cached tokens of rows that run together: none finds what another computes."""
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
                ids[at] = self._made_up.first(segment.stream)
                at += segment.tokens
            ids[at : at + len(gap)] = gap[: max(0, length - at)]
            at += len(gap)
        return ids

    def _answer(self, row: RowPlan, answer_len: int) -> Ids:
        """Return the ids of a row's answer: the session's next message, or one id that no text has."""
        if answer_len:
            answer = self._made_up.run(answer_to(row.messages[-1].segments[-1].stream), answer_len + 1)
            answer[-1] = END
            return answer
        return NO_TEXT


def gate(plan: Plan, ranks: Iterable[int]) -> None:
    """Replay each row of these ranks; WlgenError names a row that does not find its cached_len."""
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
    """Return each row of one rank with the tokens it finds cached when `in_flight` rows run at a time.

    before: the rows that the rank got earlier, one after another: its seeds and checks.
    """
    predictor = Predictor(rule, frame)
    for row in before:
        predictor.send(row)
    found: list[tuple[RowPlan, int]] = []
    while together := list(islice(rows, in_flight)):
        found += zip(together, predictor.send_together(together), strict=True)
    return found
