"""A cache rule: how one engine reuses prefixes, and what a cache of that rule must do. All are in tokens."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wlgen.pages import ceil_to, floor_to

Ids: TypeAlias = NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleNumbers:
    """The numbers that make a rule, as a spec gives them and a manifest keeps them.

    name: the rule's name in a spec, or the engine's where the spec gives the numbers. engine: a name of
    engines/.
    page_size: tokens of one allocation page (vLLM: block).
    hit_quantum: hits come only in multiples of it; it equals page_size unless the model is hybrid.
    speculative: EAGLE or MTP is on, which costs reuse.
    sliding_window: tokens of the window of a model that mixes full and sliding-window attention, 0 for none.
    window_page: the block of the window's group, if it is not page_size (DeepSeek-V4 on vLLM: 64), else 0.
    retention: a hybrid model keeps state where prompts end and where they part, and also at each multiple of
    this number (vLLM's --prefix-cache-retention-interval); 0: nowhere else.
    """

    name: str
    engine: str
    page_size: int
    hit_quantum: int
    speculative: bool = False
    sliding_window: int = 0
    window_page: int = 0
    retention: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRule(RuleNumbers):
    """A rule's numbers with the facts of its engine, which a file in engines/ adds.

    The contract of `cached_len`: the formula plans, the replay gates, the server reports. The formula below
    says from two lengths what a row will hit once its prefix is held; the plan uses it. A cache of cache/
    replays the tokens of all requests in their order, and `wlgen build` stops if the replay differs from the
    plan. `wlgen audit` compares the server's own figure for each row with the plan; if they differ, the
    server is right, and a promise is broken.

    lookahead: how many tokens behind a hit must be held too: 0 unless speculative.
    computed: how many tokens at a prompt's end the engine computes even if it holds them: 1, or 0 where the
    lookahead covers the last token.
    hybrid: whether a hit must also end where the engine kept state, so that a held prefix cannot be hit at
    every quantum.
    kept_back, kept_below: a prompt of n tokens keeps state at floor_to(n - back, hit_quantum) - kept_below
    for each `back` of kept_back. With a quantum of 256, kept_back (1,) and kept_below 0, a prompt of 1000
    tokens keeps it at 768.
    """

    lookahead: int
    computed: int
    hybrid: bool
    kept_back: tuple[int, ...]
    kept_below: int

    @classmethod
    def of(
        cls,
        numbers: RuleNumbers,
        *,
        lookahead: int,
        hybrid: bool,
        computed: int = 1,
        kept_back: tuple[int, ...],
        kept_below: int,
    ) -> CacheRule:
        """Return the rule of these numbers with its engine's facts."""
        given = {name: getattr(numbers, name) for name in NUMBERS}
        return cls(
            **given,
            lookahead=lookahead,
            computed=computed,
            hybrid=hybrid,
            kept_back=kept_back,
            kept_below=kept_below,
        )

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers alone, in the order in which a manifest keeps them; they make the rule again."""
        return {name: getattr(self, name) for name in NUMBERS}

    def cached_len(self, shared_len: int, prompt_len: int) -> int:
        """Return the tokens that the engine reports as cached: a multiple of hit_quantum, below prompt_len.

        The engine always computes the last prompt token, so a repeated prompt of exactly k pages hits k - 1.
        The formula is one quantum too high in one case, which only the replay gets right: vLLM with MTP and a
        window wider than the quantum, in finer blocks, for a hit inside the first window. Source: SGLang
        schedule_batch and radix cache, vLLM kv_cache_coordinator (0.5.23 and 0.32.0).
        """
        held = min(shared_len, prompt_len - self.computed)
        return floor_to(max(0, held - self.lookahead), self.hit_quantum)

    def least_shared_len(self, cached_len: int) -> int:
        """Return the least shared_len that makes the engine report at least `cached_len` tokens (0 for 0)."""
        return ceil_to(cached_len, self.hit_quantum) + self.lookahead if cached_len > 0 else 0

    def most_cached(self, prompt_len: int) -> int:
        """Return the most cached tokens that any prefix can reach for a prompt of `prompt_len` tokens."""
        return self.cached_len(prompt_len, prompt_len)

    def seed_fits(self, seed_len: int, shared_len: int) -> bool:
        """Return whether the first row behind a seed is sure to hit its cached_len in full.

        seed_len: tokens of a seed prompt, sent with one output token; the row begins with the seed's first
        shared_len tokens. A dense rule takes any seed longer than that; a hybrid rule only a seed that keeps
        state where the hit ends:

            | shared prefix          |
            | seed ...................|..|
                             ^ the hit ends here, so the seed must keep state here

        Source: vLLM kv_cache_coordinator.replay_boundaries, SGLang swa component and its NPU sidecar.
        """
        if seed_len <= shared_len:
            return False
        hit = self.cached_len(shared_len, seed_len)
        if not self.hybrid or hit == 0 or (self.retention and hit % self.retention == 0):
            return True
        ends = (floor_to(seed_len - back, self.hit_quantum) for back in self.kept_back)
        return hit + self.kept_below in ends

    def least_seed_len(self, shared_len: int) -> int:
        """Return the length of the shortest seed for which `seed_fits`: often the prefix and one token."""
        longer = self.cached_len(shared_len, shared_len + 1) + self.hit_quantum
        return next(n for n in (shared_len + 1, longer) if self.seed_fits(n, shared_len))

    @property
    def seed_reason(self) -> str:
        """Say which rule bounds the length of a seed, and why; '' if a seed of any length works."""
        if not self.hybrid:
            return ""
        where = "one quantum before a prompt's end" if self.kept_below else "where a prompt ends"
        return f"the rule {self.name} keeps reusable state only {where}, in multiples of {self.hit_quantum}"


NUMBERS = tuple(field.name for field in fields(RuleNumbers))


class Match(NamedTuple):
    """What a cache found for one prompt; the caller hands it to the cache's `insert`.

    cached_len: tokens that the engine reports as cached. held_len: tokens of the longest held prefix; a
    hybrid rule may use only a part of them. ids: the prompt. key and node are for the cache alone.
    """

    cached_len: int
    held_len: int
    ids: Ids
    key: bytes
    node: Any


class Evicted(NamedTuple):
    """Dropped pages. owner: the number, from 0, of the `insert` that added them. tokens: what they held."""

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
        """Return what is cached of a prompt; make its path recent, and pin it until `insert`.

        ids: shape (prompt_len,). salt: prompts of different salts share nothing (cache_salt, extra_key).
        """
        ...

    def insert(self, match: Match, output_ids: Ids) -> None:
        """Add the whole pages of a finished request's prompt and of all its outputs but the last; unpin.

        output_ids: shape (output_len,), output_len at least 1. A cache with a capacity evicts first.
        """
        ...

    def evict(self, tokens: int) -> int:
        """Drop the least recently used, unpinned pages until `tokens` are freed; return the tokens freed."""
        ...

    def take_evicted(self) -> list[Evicted]:
        """Return what was evicted since the last call, first to last, and forget it."""
        ...

    def check(self) -> None:
        """Walk the whole cache; AssertionError says which invariant does not hold."""
        ...
