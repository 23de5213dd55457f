"""Replay: the ids of a set's rows sent through the rule's caches, and what each row finds there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from wlgen.cache.rule import CacheRule
from wlgen.engines import new_cache
from wlgen.plan.rows import RowPlan
from wlgen.workload.rows import Finding, Row

Ids = NDArray[np.uint32]
_ANSWER = np.array([(1 << 32) - 1], dtype=np.uint32)  # one output token, in no vocabulary


class RankReplay:
    """The simulated cache of one rank, which takes the rank's rows in the order in which they are sent.

    It trusts no figure of a row: a cold row, a later turn or a row of a trace finds what the rows before it
    have left. Answers are taken to be text that no other row repeats.
    """

    def __init__(self, rule: CacheRule) -> None:
        self._cache = new_cache(rule)

    def check(self, row: Row | RowPlan, ids: Ids) -> Iterator[Finding]:
        """Yield where the row finds another number of tokens than it states."""
        match = self._cache.match(ids)
        self._cache.insert(match, _ANSWER)
        if match.cached_len != row.cached_len:
            yield Finding(id=row.id, promise="cached_len", expected=match.cached_len, got=row.cached_len)
