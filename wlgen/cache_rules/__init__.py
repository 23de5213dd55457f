"""Cache rules: how the engine under test reuses prefixes.

A named rule is one module here with `Options` (a strict pydantic model of what a spec may set) and
`rule(options, place) -> CacheRule`. All quantities are tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from wlgen.pages import ceil_to, floor_to

Engine: TypeAlias = Literal["sglang", "vllm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRule:
    """What one engine reports as cached for a prompt whose longest held prefix is known.

    name: the rule's name in a spec, or the engine's when the spec gives the numbers.
    page_size: tokens of one allocation page (vLLM: block).
    hit_quantum: hits come only in multiples of it; page_size unless the model is hybrid.
    speculative: EAGLE/MTP is on. SGLang then keys its tree by bigrams; vLLM gives up the last quantum.
    sliding_window: tokens of the window of a full + sliding-window model, 0 for none.
    """

    name: str
    engine: Engine
    page_size: int
    hit_quantum: int
    speculative: bool = False
    sliding_window: int = 0

    def cached_len(self, shared_len: int, prompt_len: int) -> int:
        """Return the tokens the engine reports as cached: a multiple of hit_quantum, below prompt_len.

        The last prompt token is always computed, so a repeated prompt of exactly k pages hits k - 1.
        Source: SGLang schedule_batch and radix cache, vLLM kv_cache_manager (0.5.23 and 0.32.0).
        """
        usable = min(shared_len, prompt_len - 1)
        if not self.speculative:
            return floor_to(usable, self.hit_quantum)
        if self.engine == "sglang":  # n tokens make n - 1 bigrams
            return floor_to(max(0, usable - 1), self.hit_quantum)
        return max(0, floor_to(usable, self.hit_quantum) - self.hit_quantum)

    def least_shared_len(self, cached_len: int) -> int:
        """Return the least shared_len with which at least `cached_len` tokens are cached (0 for 0)."""
        if cached_len <= 0:
            return 0
        whole = ceil_to(cached_len, self.hit_quantum)
        if not self.speculative:
            return whole
        return whole + (1 if self.engine == "sglang" else self.hit_quantum)

    def most_cached(self, prompt_len: int) -> int:
        """Return the best any prefix can reach for a prompt of this length."""
        return self.cached_len(prompt_len, prompt_len)

    @property
    def hybrid(self) -> bool:
        """Whether hits must also end where state was kept: not every page of a held prefix will do."""
        return self.sliding_window > 0 or self.hit_quantum != self.page_size

    def seed_fits(self, seed_len: int, shared_len: int) -> bool:
        """Return whether the first sibling of a seed prompt of `seed_len` tokens hits cached_len in full.

        The seed shares shared_len tokens with the sibling and is at least one token longer, whose state
        ends where the seed does. Source: vLLM single_type_kv_cache_manager, SGLang unified radix cache.
        """
        if seed_len <= shared_len:
            return False
        if not self.hybrid:
            return True
        return (seed_len - 1) // self.hit_quantum == shared_len // self.hit_quantum

    def least_seed_len(self, shared_len: int) -> int:
        """Return the tokens of the shortest seed prompt that seed_fits."""
        return shared_len + 1
