"""A cache rule: how one engine reuses prefixes, and what a cache under it must do. Quantities are tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wlgen.pages import ceil_to, floor_to

Engine: TypeAlias = Literal["sglang", "vllm"]
Ids: TypeAlias = NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRule:
    """What one engine reports as cached for a prompt whose longest held prefix is known.

    name: the rule's name in a spec, or the engine's when the spec gives the numbers.
    page_size: tokens of one allocation page (vLLM: block).
    hit_quantum: hits come only in multiples of it; page_size unless the model is hybrid.
    speculative: EAGLE/MTP is on, which costs reuse: see lookahead.
    sliding_window: tokens of the window of a full + sliding-window model, 0 for none.
    window_page: block of the window's group where it differs from page_size (vLLM DeepSeek-V4), else 0.
    retention: tokens between the points where a hybrid vLLM keeps state besides prompt ends and junctions
    (--prefix-cache-retention-interval); 0 for none, hit_quantum for all of them.
    """

    name: str
    engine: Engine
    page_size: int
    hit_quantum: int
    speculative: bool = False
    sliding_window: int = 0
    window_page: int = 0
    retention: int = 0

    @property
    def hybrid(self) -> bool:
        """Whether a hit must also end where state was kept: not every quantum of a held prefix will do.

        SGLang inserts whole quanta, each of them a place to resume at, and only a window forgets some.
        """
        return self.sliding_window > 0 or (self.engine == "vllm" and self.hit_quantum != self.page_size)

    @property
    def lookahead(self) -> int:
        """Tokens beyond a hit that must be held too: 0 unless speculative.

        SGLang keys its tree by bigrams, and n tokens make n - 1. vLLM matches one more block of each EAGLE
        group and drops it; in DeepSeek-V4 only the window's group is one.
        """
        if not self.speculative:
            return 0
        return 1 if self.engine == "sglang" else self.window_page or self.hit_quantum

    def cached_len(self, shared_len: int, prompt_len: int) -> int:
        """Return the tokens the engine reports as cached: a multiple of hit_quantum, below prompt_len.

        The last prompt token is always computed, so a repeated prompt of exactly k pages hits k - 1. A
        window wider than the quantum, in finer blocks, with vLLM's MTP: a hit inside the first window is one
        quantum less, which only the replay knows.
        Source: SGLang schedule_batch and radix cache, vLLM kv_cache_coordinator (0.5.23 and 0.32.0).
        """
        held = min(shared_len, prompt_len - 1)
        if self.speculative and self.hybrid and self.engine == "vllm":
            # The dropped block may hold the last token: a repeated prompt of 512 tokens hits 256 of them.
            held = min(shared_len, prompt_len)
        return floor_to(max(0, held - self.lookahead), self.hit_quantum)

    def least_shared_len(self, cached_len: int) -> int:
        """Return the least shared_len with which at least `cached_len` tokens are cached (0 for 0)."""
        return ceil_to(cached_len, self.hit_quantum) + self.lookahead if cached_len > 0 else 0

    def most_cached(self, prompt_len: int) -> int:
        """Return the best any prefix can reach for a prompt of this length."""
        return self.cached_len(prompt_len, prompt_len)

    def seed_fits(self, seed_len: int, shared_len: int) -> bool:
        """Return whether the first sibling of a seed is sure to hit cached_len in full.

        seed_len: tokens of a seed prompt sent with one output token, of which the first shared_len are the
        sibling's too. A dense rule takes any; a hybrid one only where its last kept state ends there:

            | shared prefix          |             vLLM keeps floor(seed_len - 1), or with EAGLE/MTP one
            | seed ...................|..|         quantum less; SGLang's last chunk may start no later
                             ^ hit    ^ kept

        Source: vLLM kv_cache_coordinator.replay_boundaries, SGLang swa component and its NPU sidecar.
        """
        if seed_len <= shared_len:
            return False
        hit = self.cached_len(shared_len, seed_len)
        if not self.hybrid or hit == 0:
            return True
        if self.engine == "sglang":
            return floor_to(seed_len - 1 - self.lookahead, self.hit_quantum) == hit
        if self.retention and hit % self.retention == 0:
            return True
        kept = (floor_to(end, self.hit_quantum) for end in (seed_len - 1, seed_len))
        return hit + self.hit_quantum in kept if self.speculative else hit == next(kept)

    def least_seed_len(self, shared_len: int) -> int:
        """Return the tokens of the shortest seed prompt that seed_fits: often the prefix and one token."""
        longer = self.cached_len(shared_len, shared_len + 1) + self.hit_quantum
        return next(n for n in (shared_len + 1, longer) if self.seed_fits(n, shared_len))

    @property
    def seed_reason(self) -> str:
        """Say which rule bounds the length of a seed, and why; '' where any seed will do."""
        if not self.hybrid:
            return ""
        where = "one quantum before a prompt's end" if self._keeps_below_end else "where a prompt ends"
        return f"the rule {self.name} keeps reusable state only {where}, in multiples of {self.hit_quantum}"

    @property
    def _keeps_below_end(self) -> bool:
        return self.speculative and self.engine == "vllm"


class Match(NamedTuple):
    """What a cache found for one prompt, to be given back to its `insert`.

    cached_len: tokens the engine reports as cached. held_len: tokens of the longest prefix held, of which a
    hybrid rule may be able to use only a part. ids: the prompt. The rest is the cache's own.
    """

    cached_len: int
    held_len: int
    ids: Ids
    key: bytes
    node: Any


class Evicted(NamedTuple):
    """Pages dropped: the request that had added them, as its insert's number from 0, and their tokens."""

    owner: int
    tokens: int


class PrefixCache(Protocol):
    """The prefix cache of one DP rank, under one rule.

    Recency is a logical clock that each call moves on, so equal calls give equal caches.
    """

    rule: CacheRule

    @property
    def held_len(self) -> int:
        """Tokens of whole pages held now."""
        ...

    def match(self, ids: Ids, *, salt: str = "") -> Match:
        """Return what is cached of a prompt; its path is made recent and pinned until `insert`.

        ids: shape (prompt_len,). salt: prompts of different salts share nothing (cache_salt, extra_key).
        """
        ...

    def insert(self, match: Match, output_ids: Ids) -> None:
        """Add what a finished request leaves: prompt and outputs but the last, whole pages only; unpin.

        output_ids: shape (output_len,), output_len at least 1. Under a capacity, evicts first.
        """
        ...

    def evict(self, tokens: int) -> int:
        """Drop the least recently used, unpinned pages until `tokens` are freed; return how many were."""
        ...

    def take_evicted(self) -> list[Evicted]:
        """Return what was evicted since the last call, first to last, and forget it."""
        ...

    def check(self) -> None:
        """Walk everything; AssertionError says which invariant does not hold."""
        ...
