"""Simulated ranks, each a prefix cache, a queue and a clock, and the balancer for unpinned requests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from wlgen.rehearse import Ids, TimeModel

_TICK = 0.01  # seconds; a stream that decodes faster sends several events at a time


class PrefixCache(Protocol):
    """What one rank keeps."""

    def match(self, ids: Ids) -> int:
        """Return the tokens the engine reports as cached for a prompt; marks what it hits as used."""

    def insert(self, ids: Ids) -> None:
        """Keep a computed sequence, evicting what was used least recently where there is no room."""


class Progress(NamedTuple):
    """A running request: tokens found cached, and output tokens done so far."""

    cached_len: int
    done: int


class Rank:
    """One simulated data-parallel rank. Counts are for /metrics and start at 0 with the server."""

    def __init__(
        self, *, index: int, engine: str, times: TimeModel, new_cache: Callable[[], PrefixCache]
    ) -> None:
        self.index = index
        self.waiting = 0
        self.running = 0
        self.requests = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.output_tokens = 0
        self._engine = engine
        self._times = times
        self._new_cache = new_cache
        self._cache = new_cache()
        self._slots = asyncio.Semaphore(times.running)
        self._prefill = asyncio.Lock()

    @property
    def busy(self) -> bool:
        """Whether requests wait or run: an engine does not empty its cache then."""
        return self.waiting + self.running > 0

    def flush(self) -> None:
        """Empty the cache."""
        self._cache = self._new_cache()

    async def run(self, prompt: Ids, output: Ids) -> AsyncIterator[Progress]:
        """Yield the request's progress: first with one output token done, last with all of them.

        vLLM's blocks can be hit as soon as they are scheduled, SGLang's after they were computed; with one
        prefill at a time the difference shows only in when an aborted prefill leaves something behind.
        """
        self.waiting += 1
        waits = True
        try:
            async with self._slots:
                async with self._prefill:
                    self.waiting, self.running, waits = self.waiting - 1, self.running + 1, False
                    cached_len = await self._compute(prompt)
                async for done in self._decode(len(output)):
                    yield Progress(cached_len, done)
                self._keep(prompt, output, cached_len)
        finally:
            self.waiting -= waits
            self.running -= not waits

    async def _compute(self, prompt: Ids) -> int:
        cached_len = self._cache.match(prompt)
        if self._engine == "vllm":
            self._cache.insert(prompt)
        await asyncio.sleep((len(prompt) - cached_len) / self._times.prefill_rate)
        if self._engine == "sglang":
            self._cache.insert(prompt)
        return cached_len

    async def _decode(self, tokens: int) -> AsyncIterator[int]:
        clock = asyncio.get_running_loop().time
        start, done = clock(), 1
        yield done
        while done < tokens:
            await asyncio.sleep(max(_TICK, start + done / self._times.decode_rate - clock()))
            due = 1 + int((clock() - start) * self._times.decode_rate)
            done = min(tokens, max(done, due))
            yield done

    def _keep(self, prompt: Ids, output: Ids, cached_len: int) -> None:
        # The last sampled token has no KV yet.
        self._cache.insert(np.concatenate([prompt, output[:-1]]))
        self.requests += 1
        self.prompt_tokens += len(prompt)
        self.cached_tokens += cached_len
        self.output_tokens += len(output)


class Balancer:
    """Chooses the rank of an unpinned request as the engine does."""

    def __init__(self, ranks: Sequence[Rank], engine: str) -> None:
        self._ranks = ranks
        self._engine = engine
        self._turn = itertools.count()

    def choose(self) -> Rank:
        """Return the rank. Modifies the turn.

        Source: SGLang 0.5.23 load_balance_method auto is round robin; vLLM 0.32.0 takes the least
        4 * waiting + running, and ties rotate.
        """
        turn = next(self._turn) % len(self._ranks)
        rotated = [*self._ranks[turn:], *self._ranks[:turn]]
        if self._engine == "sglang":
            return rotated[0]
        return min(rotated, key=lambda rank: 4 * rank.waiting + rank.running)
