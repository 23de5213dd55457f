"""Fitting: the rules of the server's engine that explain a probe's figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.engines import cache_rule
from wlgen.simulate.infer import Observation, infer

MOST_USUAL = 1 << 14


def fitting_rules(
    seen: Sequence[Observation], engine: str, page_size: int | None, *, window: int = 0
) -> list[CacheRule]:
    """Return the engine's rules that explain all observations: named ones first, then usual and small quanta.

    page_size: what the server says; None: take the quantum. window: the sliding window of rules by numbers;
    the figures depend on whether there is a window, not on its size. Empty if no rule explains them all.
    """
    cached = max((o.cached_len for o in seen), default=0)
    named = [
        kind.rule
        for candidate in infer(seen).candidates
        for kind in candidate.rules
        if kind.rule.engine == engine != kind.rule.name and page_size in (None, kind.rule.page_size)
    ]
    quanta = [q for q in range(page_size or 1, cached + 1, page_size or 1) if cached % q == 0]
    usual = sorted(quanta, key=lambda q: (q & (q - 1) != 0 or q > MOST_USUAL, q))
    fitting = [rule for rule in named if _explains(rule, seen)]
    return [
        *fitting,
        *(rule for rule in _by_numbers(engine, usual, page_size, window) if _explains(rule, seen)),
    ]


def _by_numbers(
    engine: str, quanta: Sequence[int], page_size: int | None, window: int
) -> Iterator[CacheRule]:
    for quantum in quanta:
        for speculative in (False, True):
            sizes = {"page_size": page_size or quantum, "hit_quantum": quantum, "sliding_window": window}
            yield cache_rule(RuleNumbers(name=engine, engine=engine, speculative=speculative, **sizes))


def _explains(rule: CacheRule, seen: Sequence[Observation]) -> bool:
    return all(rule.cached_len(o.shared_len, o.prompt_len) == o.cached_len for o in seen)
