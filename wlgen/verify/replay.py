"""Replay: a set's rows go through the rule's caches, which tell what each row finds cached."""

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

    It uses no figure of a row: a cold row, a later turn or a row of a trace finds what the rows before it
    have left. It takes each answer to be text that no other row repeats.
    """

    def __init__(self, rule: CacheRule) -> None:
        self._cache = new_cache(rule)

    def check(self, row: Row | RowPlan, ids: Ids) -> Iterator[Finding]:
        """Yield a finding if the row finds another number of tokens cached than it states."""
        match = self._cache.match(ids)
        self._cache.insert(match, _ANSWER)
        if match.cached_len != row.cached_len:
            yield Finding(id=row.id, promise="cached_len", expected=match.cached_len, got=row.cached_len)
