"""Replay: requests, one after another, through one simulated prefix cache a DP rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from wlgen.cache.rule import Ids, Match, PrefixCache
from wlgen.errors import error
from wlgen.pages import ceil_to

_UNSEEN = 1 << 31  # no vocabulary has ids as large as this
_ONE = np.zeros(1, dtype=np.uint32)


class Request(NamedTuple):
    """One request. Lengths are tokens; ids has shape (prompt_len,).

    output_ids: the request's outputs, output_len ids, if they are known. Otherwise the replay takes ids of no
    vocabulary, which fill the cache and which no prompt can hit.
    promised: the least and most cached_len that keep the set's promise; None if there is no promise.
    bound: the least and most cached_len that meet the spec's bound. overlaps: it may run beside others.
    """

    id: str
    dp_rank: int
    ids: Ids
    output_len: int = 1
    split: str = ""
    output_ids: Ids | None = None
    promised: tuple[int, int] | None = None
    bound: tuple[int, int] | None = None
    salt: str = ""
    overlaps: bool = True


class Replayed(NamedTuple):
    """What the engine reports for one request: cached_len of prompt_len tokens."""

    id: str
    dp_rank: int
    split: str
    prompt_len: int
    cached_len: int
    promised: tuple[int, int] | None
    bound: tuple[int, int] | None


class Eviction(NamedTuple):
    """Tokens that request `by` pushed out of a rank's cache, which request `of` had brought in."""

    dp_rank: int
    by: str
    of: str
    tokens: int


class RankCaches:
    """One cache for each rank that a request names.

    new_cache: makes the empty cache of a rank. capacity: the tokens that such a cache holds; None: no limit.
    """

    def __init__(self, new_cache: Callable[[], PrefixCache], *, capacity: int | None = None) -> None:
        self.evictions: list[Eviction] = []
        self._new_cache = new_cache
        self._capacity = capacity
        self._caches: dict[int, PrefixCache] = {}
        self._inserted: dict[int, list[str]] = {}  # each rank's request ids in order; filled under a capacity
        self._next_output = _UNSEEN

    def replay(self, requests: Iterable[Request], in_flight: int = 1) -> Iterator[Replayed]:
        """Yield what the engine reports for each request, in order; modifies the ranks' caches.

        in_flight: how many requests of a rank run at the same time; none of them finds what another computes.
        A request that may not overlap, such as a seed or a check, runs alone whatever in_flight is.
        WlgenError if a single request needs more than the capacity.
        """
        together: dict[int, list[tuple[Request, Match]]] = {}
        for request in requests:
            rank = request.dp_rank
            cache = self._caches.get(rank)
            if cache is None:
                cache = self._caches[rank] = self._new_cache()
            if self._capacity is not None:
                _check_room(request, self._capacity, cache.rule.page_size)
            running = together.setdefault(rank, [])
            if running and not request.overlaps:
                self._end(cache, running)
            match = cache.match(request.ids, salt=request.salt)
            running.append((request, match))
            if len(running) >= in_flight or not request.overlaps:
                self._end(cache, running)
            yield Replayed(
                id=request.id,
                dp_rank=rank,
                split=request.split,
                prompt_len=len(request.ids),
                cached_len=match.cached_len,
                promised=request.promised,
                bound=request.bound,
            )
        for rank, running in together.items():
            self._end(self._caches[rank], running)

    def _end(self, cache: PrefixCache, running: list[tuple[Request, Match]]) -> None:
        """End the running requests, in the order in which they were admitted."""
        for request, match in running:
            cache.insert(match, _ONE if request.output_len == 1 else self._outputs(request))
            if self._capacity is not None:
                self._note_evictions(cache, request)
        running.clear()

    def held(self) -> dict[int, int]:
        """Return the tokens of whole pages that each rank holds; without a capacity, its working set."""
        return {rank: self._caches[rank].held_len for rank in sorted(self._caches)}

    def check(self) -> None:
        """Check the integrity of every cache; AssertionError says what does not hold."""
        for cache in self._caches.values():
            cache.check()

    def _outputs(self, request: Request) -> Ids:
        if request.output_ids is not None:
            return request.output_ids
        start, length = self._next_output, request.output_len
        if start + length > 1 << 32:
            start = _UNSEEN
        self._next_output = start + length
        return np.arange(start, start + length, dtype=np.uint32)

    def _note_evictions(self, cache: PrefixCache, request: Request) -> None:
        inserted = self._inserted.setdefault(request.dp_rank, [])
        inserted.append(request.id)
        self.evictions.extend(
            Eviction(request.dp_rank, request.id, inserted[evicted.owner], evicted.tokens)
            for evicted in cache.take_evicted()
        )


def _check_room(request: Request, capacity: int, page_size: int) -> None:
    needed = ceil_to(len(request.ids) + request.output_len - 1, page_size)
    if needed > capacity:
        expected = f"a capacity of at least {needed} tokens, for the prompt and outputs of {request.id}"
        raise error("--capacity", expected=expected, found=str(capacity))
