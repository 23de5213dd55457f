"""The cache of a rule: one for each DP rank, to be replayed."""

from __future__ import annotations

from wlgen.cache.blocks import BlockCache
from wlgen.cache.blocks_window import WindowBlockCache
from wlgen.cache.radix import RadixCache
from wlgen.cache.radix_window import CHUNK, WindowRadixCache
from wlgen.cache.rule import CacheRule, PrefixCache


def new_cache(rule: CacheRule, capacity: int | None = None, *, chunk: int = CHUNK) -> PrefixCache:
    """Return an empty cache of `capacity` tokens, None for no limit.

    chunk: tokens of a prefill chunk, which decides where SGLang keeps a sliding window; vLLM ignores it.
    """
    if rule.engine == "vllm":
        return WindowBlockCache(rule, capacity) if rule.hybrid else BlockCache(rule, capacity)
    whole = rule.sliding_window == 0 and rule.hit_quantum == rule.page_size
    return RadixCache(rule, capacity) if whole else WindowRadixCache(rule, capacity, chunk)
