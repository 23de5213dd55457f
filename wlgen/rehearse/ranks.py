"""Simulated ranks, each with a prefix cache, a queue and a clock, and the balancer of unpinned requests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from wlgen.cache.rule import PrefixCache
from wlgen.rehearse.settings import Ids, TimeModel

_TICK = 0.01  # seconds; a stream that decodes faster sends several events at a time


class Progress(NamedTuple):
    """A running request: tokens found cached, and output tokens done so far."""

    cached_len: int
    done: int


class Rank:
    """One simulated data-parallel rank. /metrics shows its counts, which start at 0 with the server."""

    def __init__(self, *, index: int, times: TimeModel, new_cache: Callable[[], PrefixCache]) -> None:
        self.index = index
        self.waiting = 0
        self.running = 0
        self.requests = 0
        self.aborted = 0
        self.looked_up = 0  # prompt tokens of requests that began, even if they did not end
        self.computed = 0  # how many of them the cache did not hold
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.output_tokens = 0
        self._times = times
        self._new_cache = new_cache
        self._cache = new_cache()
        self._slots = asyncio.Semaphore(times.running)
        self._prefill = asyncio.Lock()

    @property
    def busy(self) -> bool:
        """Whether requests wait or run; an engine does not empty its cache meanwhile."""
        return self.waiting + self.running > 0

    def flush(self) -> None:
        """Empty the cache."""
        self._cache = self._new_cache()

    def serve_unseen(self, prompt: Ids, output: Ids) -> None:
        """Serve a request that no client sees: a fault sends it."""
        self._cache.insert(self._cache.match(prompt), output)

    async def run(self, prompt: Ids, output: Ids, *, keeps: bool = True) -> AsyncIterator[Progress]:
        """Yield the request's progress: first with one output token done, last with all of them.

        keeps: whether the cache keeps the prompt and its outputs.

        Other requests can hit the prompt once it is prefilled, and the outputs once the request ends. In vLLM
        they can hit blocks as soon as these are scheduled, which shows only with several prefills at a time.
        """
        cache = self._cache
        self.waiting += 1
        waits, ended = True, False
        try:
            async with self._slots:
                async with self._prefill:
                    self.waiting, self.running, waits = self.waiting - 1, self.running + 1, False
                    match = cache.match(prompt)
                    uncached = len(prompt) - match.cached_len
                    self.looked_up += len(prompt)
                    self.computed += uncached
                    try:
                        await asyncio.sleep(uncached / self._times.prefill_rate)
                    finally:  # a request that its client gives up leaves its prompt all the same
                        if keeps:
                            cache.insert(match, output[:1])
                held = cache.match(prompt)  # pins the prompt while outputs are computed
                done = 0
                try:
                    async for done in self._decode(len(output)):
                        yield Progress(match.cached_len, done)
                finally:
                    if keeps:
                        cache.insert(held, output[: max(1, done)])
                self._count(prompt, output, match.cached_len)
                ended = True
        finally:
            self.aborted += not ended
            self.waiting -= waits
            self.running -= not waits

    async def _decode(self, tokens: int) -> AsyncIterator[int]:
        clock = asyncio.get_running_loop().time
        start, done = clock(), 1
        yield done
        while done < tokens:
            await asyncio.sleep(max(_TICK, start + done / self._times.decode_rate - clock()))
            due = 1 + int((clock() - start) * self._times.decode_rate)
            done = min(tokens, max(done, due))
            yield done

    def _count(self, prompt: Ids, output: Ids, cached_len: int) -> None:
        self.requests += 1
        self.prompt_tokens += len(prompt)
        self.cached_tokens += cached_len
        self.output_tokens += len(output)


class Balancer:
    """Chooses the rank of an unpinned request as the engine does."""

    def __init__(self, ranks: Sequence[Rank], *, in_turn: bool) -> None:
        self._ranks = ranks
        self._in_turn = in_turn
        self._turn = itertools.count()

    def choose(self) -> Rank:
        """Return the rank. Modifies the turn.

        Source: SGLang 0.5.23 load_balance_method auto is round robin; vLLM 0.32.0 takes the least
        4 * waiting + running, and ties rotate.
        """
        turn = next(self._turn) % len(self._ranks)
        rotated = [*self._ranks[turn:], *self._ranks[:turn]]
        if self._in_turn:
            return rotated[0]
        return min(rotated, key=lambda rank: 4 * rank.waiting + rank.running)
