"""Chains: each planned row as runs of tokens, for a replay that needs no text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from wlgen.plan.rows import Plan, RowPlan


def chains(plan: Plan) -> Iterator[tuple[str, tuple[tuple[object, int], ...]]]:
    """Yield (id, chain) of each row of a plan: two rows share tokens as far as their chains are alike."""
    for file in plan.files():
        for row in plan.rows(*file):
            yield row.id, chain(plan, row)


def chain(plan: Plan, row: RowPlan) -> tuple[tuple[object, int], ...]:
    """Return a row's chain, (stream, tokens) from its first token to its last.

    Each token of the framing is a run by itself, so that two prompts share it wherever both have it: the end
    of a turn's last message is also the end of that message in the next turn.
    """
    roles = tuple(message.role for message in row.messages)
    head, *gaps = plan.frame(roles).ids
    found = [_run(token, 1) for token in head]
    for message, gap in zip(row.messages, gaps, strict=True):
        found += [_run(segment.stream, segment.tokens) for segment in message.segments]
        found += [_run(token, 1) for token in gap]
    return tuple(found)


@lru_cache(maxsize=4096)
def _run(stream: object, tokens: int) -> tuple[object, int]:
    """Return the same run for all rows that share it, so that 100,000 rows hold their prefixes once."""
    return stream, tokens
