"""Cache rules by their numbers, with the facts of their engine."""

from __future__ import annotations

from typing import Any

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.engines import cache_rule


def made_rule(**numbers: Any) -> CacheRule:
    """Return the rule of these numbers; hit_quantum is page_size where absent."""
    return cache_rule(RuleNumbers(**{"hit_quantum": numbers.get("page_size"), **numbers}))
