"""The sliding window of a model, told from how long a prompt may be before its first sibling falls short.

An engine keeps the window's state where a prompt ends. With a window of 1024 tokens, a seed of 1027 keeps
state from its first token on, and any sibling hits. A seed of 1043 does not, and its first sibling, which
differs from it before that state, finds nothing. So each length that is tried rules out the windows under
which a replay of the same prompts through the engine's cache class finds other hits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import NamedTuple

import numpy as np

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.engines import cache_rule, new_cache
from wlgen.pages import ceil_to

SIBLINGS = 3
_USUAL = (0, *(1 << power for power in range(5, 14)))  # 32 to 8192 tokens; 0: a hybrid model without a window
_BEYOND = 3  # tokens of a prompt behind its last whole quantum
_ANSWER = np.array([1], dtype=np.uint32)


class Family(NamedTuple):
    """A full-length prompt of `size` tokens, and the hits of its siblings, which share its first `shared`."""

    size: int
    shared: int
    hits: tuple[int, ...]


def with_window(rule: CacheRule, window: int) -> CacheRule:
    """Return a rule with another window."""
    numbers = {of.name: getattr(rule, of.name) for of in fields(RuleNumbers)}
    return cache_rule(RuleNumbers(**numbers | {"sliding_window": window}))


def fitting_windows(rule: CacheRule, seen: Sequence[Family]) -> list[int]:
    """Return the usual windows under which a replay finds what the server's siblings found."""
    return [
        w for w in _USUAL if all(_replayed(with_window(rule, w), f.size, f.shared) == f.hits for f in seen)
    ]


def telling_size(rule: CacheRule, windows: Sequence[int], longest: int) -> tuple[int, int] | None:
    """Return (size, shared) of the family that splits the windows most evenly; None if none splits them."""
    best: tuple[int, int] | None = None
    least = len(windows)
    for size, shared in _families(rule, windows, longest):
        found = [_replayed(with_window(rule, window), size, shared) for window in windows]
        most = max(found.count(each) for each in found)
        if most < least:
            best, least = (size, shared), most
    return best


def edges(rule: CacheRule, window: int, longest: int) -> list[tuple[int, int]]:
    """Return families that tell a window from windows a few pages wider or narrower."""
    return list(_families(rule, [window], longest))


def _families(rule: CacheRule, windows: Sequence[int], longest: int) -> Iterator[tuple[int, int]]:
    quantum = rule.hit_quantum
    for window in windows:
        for more in (0, 1, 2):
            size = ceil_to(window, quantum) + more * quantum + _BEYOND
            shared = size - quantum
            if shared > quantum and size <= longest:
                yield size, shared


def _replayed(rule: CacheRule, size: int, shared: int) -> tuple[int, ...]:
    """Return what siblings find in the engine's cache, as `Family.hits`."""
    cache, found = new_cache(rule), []
    for number in range(SIBLINGS + 1):
        ids = np.arange(size, dtype=np.uint32)
        ids[shared:] += size * (number + 1)
        match = cache.match(ids)
        found.append(match.cached_len)
        cache.insert(match, _ANSWER)
    return tuple(found[1:])
