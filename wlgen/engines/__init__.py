"""Engines under test: one file each, which holds the facts of an engine as one value, `ENGINE`.

Nothing here calls a network.

An engine is known by the name of its file. To add an engine, write `engines/NAME.py` with an `Engine` in it,
and a class in `cache/` if no class there reuses prefixes as the engine does. A name without a file is an
error, never another engine.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

from wlgen import registry
from wlgen.cache.rule import CacheRule, PrefixCache, RuleNumbers
from wlgen.engines._engine import Counters as Counters
from wlgen.engines._engine import Engine as Engine
from wlgen.engines._engine import Launch as Launch
from wlgen.engines._engine import PairWay as PairWay

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT = "sglang"  # the engine of a rehearsal, if neither a set nor an option names one
CHUNK = 8192  # tokens of a prefill chunk, if no option says how many


@cache
def engine(name: str, *, place: str = "engine") -> Engine:
    """Return the engine of this name; WlgenError at `place` lists the known names."""
    found: Engine = registry.load(sys.modules[__name__], name, place=place).ENGINE
    return found


def every_engine() -> Iterator[Engine]:
    """Yield each known engine, by name."""
    return (engine(name) for name in registry.names(sys.modules[__name__]))


def cache_rule(numbers: RuleNumbers, *, place: str = "engine") -> CacheRule:
    """Return the rule of these numbers with its engine's facts; WlgenError at `place` if unknown."""
    return engine(numbers.engine, place=place).rule(numbers)


def new_cache(rule: CacheRule, capacity: int | None = None, *, chunk: int = CHUNK) -> PrefixCache:
    """Return an empty cache that replays the rule as its engine does.

    capacity: tokens that the cache holds, None for no limit. chunk: tokens of a prefill chunk, for engines
    that insert a prompt chunk by chunk.
    """
    return engine(rule.engine).new_cache(rule, capacity, chunk)
