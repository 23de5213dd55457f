"""One life of the rehearsed server: prompts become ids, requests find their rank, and faults strike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping

import numpy as np

from wlgen.cache.rule import PrefixCache
from wlgen.encodings import Encoding, Message
from wlgen.engines import new_cache
from wlgen.rehearse.acting import Treatment
from wlgen.rehearse.answers import Answer
from wlgen.rehearse.asks import Ask
from wlgen.rehearse.dialects import RefusedError, dialect
from wlgen.rehearse.faults import THINKING_TOKENS, Strikes
from wlgen.rehearse.filler import Filler
from wlgen.rehearse.known import KnownRows
from wlgen.rehearse.ranks import Balancer, Rank
from wlgen.rehearse.settings import Ids, Settings


class CutStreamError(ConnectionError):
    """Raised to break a stream on purpose."""


class Life:
    """One life of the server, from start to restart."""

    def __init__(
        self,
        *,
        settings: Settings,
        encoding: Encoding,
        known: KnownRows,
    ) -> None:
        self.settings = settings
        self.started = time.time()
        self.dialect = dialect(settings.rule.engine)
        self.encoding = encoding
        self.known = known
        self.ranks = [
            Rank(index=n, times=settings.times, new_cache=self._new_cache) for n in range(settings.ranks)
        ]
        self.restart_due = asyncio.Event()
        self._served = 0
        self._filler = Filler(encoding)
        self._balancer = Balancer(self.ranks, in_turn=self.dialect.in_turn)
        faults = settings.faults
        self._no_usage, self._no_cached = Strikes(faults.no_usage), Strikes(faults.no_cached)
        self._error, self._cut = Strikes(faults.error), Strikes(faults.cut)
        self._stall = Strikes(faults.stall)

    def _new_cache(self) -> PrefixCache:
        return new_cache(self.settings.rule, self.settings.capacity, chunk=self.settings.chunk)

    def check_alive(self) -> None:
        """Refuse every request once the fault `restart` has struck."""
        if self.restart_due.is_set():
            raise RefusedError(503, "The server is shutting down: the fault `restart` of this rehearsal")

    async def prompt(self, ask: Ask) -> Ids:
        """Return a request's prompt ids; RefusedError if they do not fit into the model's context."""
        if ask.ids is not None:
            ids = np.array(ask.ids, dtype=np.uint32)
        elif ask.messages is not None:
            ids = await self.chat_ids(ask.messages, ask.template_kwargs)
        else:
            ids = await self.text_ids(ask.text or "")
        most = min(self.settings.max_model_len, self.settings.capacity or self.settings.max_model_len)
        if len(ids) + ask.output_len > most:
            asked = f"{len(ids)} prompt and {ask.output_len} output tokens"
            raise RefusedError(
                400, f"the most this server can hold is {most} tokens, but {asked} were asked for"
            )
        return ids

    async def chat_ids(self, messages: tuple[Message, ...], template_kwargs: Mapping[str, object]) -> Ids:
        """Return the ids of a conversation as this server frames it: shape (prompt_len,)."""
        ids = self.known.find(messages)
        if ids is None:
            encoded = await asyncio.to_thread(self.encoding.prompt_ids, messages)
            ids = np.array(encoded, dtype=np.uint32)
        preamble = self._preamble(template_kwargs)
        return ids if not preamble else np.concatenate([ids[:1], self._filler.ids(preamble), ids[1:]])

    async def text_ids(self, text: str) -> Ids:
        """Return the ids of a text for completions: shape (prompt_len,)."""
        ids = None if self.encoding.chat else self.known.find((Message("user", text),))
        if ids is None:
            ids = np.array(await asyncio.to_thread(self.encoding.encode, text), dtype=np.uint32)
        return ids

    def rank(self, ask: Ask) -> Rank:
        """Return the rank that serves a request; RefusedError if it names a rank that does not exist."""
        if (treatment := self._treatment(ask)) is not None:
            return self.ranks[treatment.rank]
        pinned = ask.dp_rank
        if pinned is None or self.settings.faults.ignore_pins:
            return self._balancer.choose()
        if not 0 <= pinned < len(self.ranks):
            raise RefusedError(400, f"data_parallel_rank {pinned} is out of range [0, {len(self.ranks)})")
        return self.ranks[pinned]

    def answer(self, ask: Ask, prompt: Ids, rank: Rank) -> Answer:
        """Return the answer of a request, without tokens yet; RefusedError if the fault `error` strikes."""
        if self._error.next():
            raise RefusedError(500, "Internal Server Error: the fault `error` of this rehearsal")
        settings = self.settings
        treatment = self._meet(ask)
        met = self._met(treatment, prompt)
        is_row = treatment is not None and treatment.asked.row is not None
        return Answer(
            ask=ask,
            model=settings.model,
            dialect=self.dialect,
            rank=rank.index,
            prompt=met if is_row else prompt,  # the client of a longer seed knows what it sent
            met=met,
            filler=self._filler,
            usage=not self._no_usage.next(),
            cached=not self._no_cached.next(),
            omit_zero=settings.faults.omit_zero,
            treatment=treatment,
        )

    def _name(self, ask: Ask) -> str | None:
        if ask.messages is not None:
            return self.known.name(ask.messages)
        return None if ask.text is None else self.known.name((Message("user", ask.text),))

    def _treatment(self, ask: Ask) -> Treatment | None:
        acting = self.settings.acting
        return None if acting is None else acting.find(self._name(ask))

    def _meet(self, ask: Ask) -> Treatment | None:
        """Let what the fault does before a row happen, and return the row's treatment."""
        acting = self.settings.acting
        treatment = None if acting is None else acting.take(self._name(ask))
        if treatment is None:
            return None
        for of in treatment.flushed:
            for rank in self.ranks if of is None else [self.ranks[of]]:
                rank.flush()
        for asked in treatment.earlier:
            if (ids := self.known.ids(asked.id)) is not None:
                self.ranks[asked.rank].serve_unseen(ids, self._filler.ids(asked.output_len))
        return treatment

    def _met(self, treatment: Treatment | None, prompt: Ids) -> Ids:
        """Return the ids that meet the cache: the prompt's, unless the fault changes them."""
        acting = self.settings.acting
        return prompt if acting is None or treatment is None else acting.met(treatment, prompt)

    def told(self, answer: Answer, cached_len: int) -> int:
        """Return the figure of cached tokens that the client is told."""
        acting = self.settings.acting
        if acting is None or answer.treatment is None:
            return cached_len
        return acting.told(answer.treatment, cached_len) or 0

    async def stream(self, answer: Answer, rank: Rank) -> AsyncIterator[bytes]:
        """Yield the answer's events; raise CutStreamError if the fault `cut` strikes."""
        cut, total = self._cut.next(), answer.ask.output_len
        await self._maybe_stall()
        yield answer.first()
        sent = 0
        keeps = answer.treatment is None or answer.treatment.keeps
        async for found, done in rank.run(answer.met, answer.filler.ids(total), keeps=keeps):
            cached_len = self.told(answer, found)
            yield answer.events(sent, done, cached_len)
            sent = done
            if cut and 2 * sent >= total:
                raise CutStreamError
        self.ended(rank)
        yield answer.last(cached_len)

    async def whole(self, answer: Answer, rank: Rank) -> bytes:
        """Return the answer of a request that does not stream; raises CutStreamError as stream does."""
        await self._maybe_stall()
        if self._cut.next():
            raise CutStreamError
        keeps = answer.treatment is None or answer.treatment.keeps
        outputs = answer.filler.ids(answer.ask.output_len)
        async for progress in rank.run(answer.met, outputs, keeps=keeps):
            cached_len = progress.cached_len
        self.ended(rank)
        return answer.whole(self.told(answer, cached_len))

    def _preamble(self, template_kwargs: Mapping[str, object]) -> int:
        """Return how many thinking tokens stand before the user's text, unless the request switches them off.

        Source: vLLM 0.32.0 serves DeepSeek V4 in thinking mode unless chat_template_kwargs say otherwise.
        """
        if self.settings.faults.thinking:
            return self.settings.faults.thinking
        wanted = self.encoding.server_kwargs.items()
        off = all(template_kwargs.get(key) == value for key, value in wanted)
        return THINKING_TOKENS if self.dialect.thinks and not off else 0

    async def _maybe_stall(self) -> None:
        if self._stall.next():
            await asyncio.Event().wait()

    def ended(self, rank: Rank) -> None:
        """Count a request that ended, and let faults strike that follow it."""
        self._served += 1
        if self._served == self.settings.faults.restart:
            self.restart_due.set()
        if rank.index == self.settings.faults.lose_cache:
            rank.flush()
