"""Fitting: the cache rules of an engine that explain every figure observed on a server."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

from wlgen import cache_rules, registry
from wlgen.cache_rules import CacheRule, Engine


class Observation(NamedTuple):
    """A prompt of which shared_len tokens had been sent before, and what was reported. Tokens."""

    prompt_len: int
    shared_len: int
    cached_len: int


def fitting_rules(seen: Sequence[Observation], engine: Engine, page_size: int | None) -> list[CacheRule]:
    """Return the rules that explain each observation: named ones first, then numbers, larger quanta first.

    page_size: what the server says, None to take the quantum for it.
    """
    widest = gcd(*(o.cached_len for o in seen))
    quanta = [q for q in range(widest, 0, -1) if widest % q == 0 and (not page_size or q % page_size == 0)]
    numbers = (
        CacheRule(
            name=engine, engine=engine, page_size=page_size or q, hit_quantum=q, speculative=speculative
        )
        for q in quanta
        for speculative in (False, True)
    )
    fits = [rule for rule in numbers if _explains(rule, seen)]
    named = [rule for rule in _named(engine) if any(_alike(rule, fit) for fit in fits)]
    return [*(r for r in named if _explains(r, seen) and r.page_size == (page_size or r.page_size)), *fits]


def _explains(rule: CacheRule, seen: Sequence[Observation]) -> bool:
    return all(rule.cached_len(o.shared_len, o.prompt_len) == o.cached_len for o in seen)


def _alike(rule: CacheRule, fit: CacheRule) -> bool:
    return (rule.hit_quantum, rule.speculative) == (fit.hit_quantum, fit.speculative)


def _named(engine: Engine) -> list[CacheRule]:
    """Return the engine's named rules that have numbers of their own, with their default options."""
    found = []
    for name in registry.names(cache_rules):
        module = registry.load(cache_rules, name, place=name)
        rule = module.rule(module.Options(), place=name)
        if rule.engine == engine and rule.name != engine:
            found.append(rule)
    return found
