"""A cache rule: how one engine reuses prefixes, and what a cache under it must do. Quantities are tokens."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wlgen.pages import ceil_to, floor_to

Ids: TypeAlias = NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleNumbers:
    """The numbers that make a rule: what a spec may say and a manifest keeps.

    name: the rule's name in a spec, or the engine's where the spec gives the numbers. engine: a name of
    engines/.
    page_size: tokens of one allocation page (vLLM: block).
    hit_quantum: hits come only in multiples of it; it equals page_size unless the model is hybrid.
    speculative: EAGLE or MTP is on, which costs reuse.
    sliding_window: tokens of the window of a model that mixes full and sliding-window attention, 0 for none.
    window_page: block of the window's group where it differs from page_size (DeepSeek-V4 on vLLM), else 0.
    retention: tokens between the points where a hybrid model keeps state besides prompt ends and junctions
    (vLLM's --prefix-cache-retention-interval); 0 for none, hit_quantum for all of them.
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
    says what a row will hit once its prefix is held, from two lengths; a plan is made with it. A cache of
    cache/ replays the tokens of all requests in their order, and a set whose replay differs from its plan is
    not built. The server's own figure for each row is then held against the plan; where the three differ, the
    server is right and a promise broke.

    lookahead: tokens beyond a hit that must be held too: 0 unless speculative.
    computed: tokens at a prompt's end that are computed whatever is held: 1, or 0 where the lookahead covers
    them.
    hybrid: a hit must also end where state was kept: not every quantum of a held prefix will do.
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

        The last prompt token is always computed, so a repeated prompt of exactly k pages hits k - 1. One case
        needs the replay: a window wider than the quantum, in finer blocks, under vLLM's MTP, where a hit
        inside the first window is one quantum less. Source: SGLang schedule_batch and radix cache, vLLM
        kv_cache_coordinator (0.5.23 and 0.32.0).
        """
        held = min(shared_len, prompt_len - self.computed)
        return floor_to(max(0, held - self.lookahead), self.hit_quantum)

    def least_shared_len(self, cached_len: int) -> int:
        """Return the least shared_len with which at least `cached_len` tokens are cached (0 for 0)."""
        return ceil_to(cached_len, self.hit_quantum) + self.lookahead if cached_len > 0 else 0

    def most_cached(self, prompt_len: int) -> int:
        """Return the best that any prefix can reach for a prompt of this length."""
        return self.cached_len(prompt_len, prompt_len)

    def seed_fits(self, seed_len: int, shared_len: int) -> bool:
        """Return whether the first sibling of a seed is sure to hit cached_len in full.

        seed_len: tokens of a seed prompt sent with one output token, of which the first shared_len are the
        sibling's too. A dense rule takes any seed that is longer; a hybrid rule only one that keeps state
        where the hit ends:

            | shared prefix          |
            | seed ...................|..|
                             ^ the hit ends here, and so must a point that the seed keeps

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
        """Return the tokens of the shortest seed prompt that seed_fits: often the prefix and one token."""
        longer = self.cached_len(shared_len, shared_len + 1) + self.hit_quantum
        return next(n for n in (shared_len + 1, longer) if self.seed_fits(n, shared_len))

    @property
    def seed_reason(self) -> str:
        """Say which rule bounds the length of a seed, and why; '' where any seed will do."""
        if not self.hybrid:
            return ""
        where = "one quantum before a prompt's end" if self.kept_below else "where a prompt ends"
        return f"the rule {self.name} keeps reusable state only {where}, in multiples of {self.hit_quantum}"


NUMBERS = tuple(field.name for field in fields(RuleNumbers))


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
