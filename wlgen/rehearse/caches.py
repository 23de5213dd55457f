"""The caches of the simulated ranks, made from a cache rule."""

from __future__ import annotations

import numpy as np

from wlgen import cache_rules, registry
from wlgen.cache_rules import CacheRule
from wlgen.rehearse import Ids, Settings


def named_rule(name: str, *, place: str) -> CacheRule:
    """Return the cache rule of a name with its default options; WlgenError lists the known names."""
    module = registry.load(cache_rules, name, place=place)
    rule: CacheRule = module.rule(module.Options(), place=place)
    return rule


class ListCache:
    """Keeps every sequence whole and compares with each."""

    def __init__(self, rule: CacheRule) -> None:
        self._rule = rule
        self._held: list[Ids] = []

    def match(self, ids: Ids) -> int:
        """Return the cached tokens that the rule gives for the longest prefix held."""
        shared = max((_common(ids, held) for held in self._held), default=0)
        return self._rule.cached_len(shared, len(ids))

    def insert(self, ids: Ids) -> None:
        """Keep a sequence."""
        self._held.append(ids)


def new_cache(settings: Settings) -> ListCache:
    """Return an empty cache of one rank."""
    return ListCache(settings.rule)


def _common(left: Ids, right: Ids) -> int:
    size = min(len(left), len(right))
    differs = np.flatnonzero(left[:size] != right[:size])
    return int(differs[0]) if len(differs) else size
