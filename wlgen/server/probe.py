"""Probe: how a server reuses prefixes, found out with a few throw-away prompts of token ids.

Prompts are random ids that no set holds. Each question adds observations, which are the evidence; the probe
says what they cannot tell.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from math import gcd

from wlgen.cache.rule import CacheRule
from wlgen.encodings import Message
from wlgen.engines import engine as known_engine
from wlgen.engines import every_engine
from wlgen.errors import error
from wlgen.server.api import AskedPrompt, Server, unusable
from wlgen.server.door import KEY_VARIABLE
from wlgen.server.pair import check_roles, open_server
from wlgen.server.preflight import IMPOSSIBLE_RANK, choose_model
from wlgen.server.replies import Reply, RequestError
from wlgen.server.window import SIBLINGS, Family, edges, fitting_windows, telling_size, with_window
from wlgen.simulate.fitting import fitting_rules
from wlgen.simulate.infer import Observation
from wlgen.simulate.telling import telling

FIRST_LEN = 600
SOME_WINDOW = 1  # the window in a rule, until its size is found
WINDOW_LEN = 12_000  # tokens: more than two windows of 4,096, the widest that models have
_MOST_TELLING = 8  # the most prompts sent to tell rules apart
GROWTH = 4
_LOWEST_ID, _IDS = 100, 200  # ids 100 to 299 are ordinary tokens in any vocabulary
_MOST_RANKS = 4096
THROWAWAY = "Throw-away prompt of wlgen probe, to count what stands around it."


@dataclass(kw_only=True, slots=True)
class Probed:
    """What was found.

    dp_ranks: the number of ranks; None if they cannot be pinned. separate: whether each rank has its own
    cache. kept_late: whether the first sibling of a full-length prompt hits less than a later sibling.
    page_size: as the server says. observations: prompts that had been sent before, or a prefix of them, in
    order. rules: the rules that explain all observations; take the first. facts, unknown: lines for a person.
    None means that the probe did not find out.
    """

    engine: str
    model: str
    dp_ranks: int | None = None
    separate: bool | None = None
    kept_late: bool | None = None
    page_size: int | None = None
    rules: list[CacheRule] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


async def probe_server(
    url: str,
    *,
    engine: str | None,
    model: str | None,
    patience: float,
    longest: int,
    prefill: Sequence[str] = (),
    decode: Sequence[str] = (),
) -> Probed:
    """Ask a server everything; no prompt is longer than `longest` tokens. WlgenError if a request fails.

    patience: seconds for a whole answer. prefill, decode: the servers of a pair whose router is `url`.
    """
    key = os.environ.get(KEY_VARIABLE)
    given = None if engine is None else known_engine(engine, place="--engine")
    known = list(every_engine())
    server = await open_server(url, prefill=prefill, decode=decode, api_key=key, patience=patience)
    async with server:
        server.model = await choose_model(server, model)
        pair = await check_roles(server, 1)
        try:
            detected = server.engine if pair else await server.detect()
            if given is None and detected is None:
                expected = " or ".join(each.title for each in known)
                found = "no page that one of them alone has"
                raise error(server.url, expected=expected, found=found, remedy="Give --engine.")
            server.engine = given or detected or server.engine
            most = await server.max_model_len()
            probed = await probe(server, longest=min(longest, most - 1) if most else longest)
        except RequestError as failure:
            raise unusable(server.url, failure, expected="an answer to a throw-away prompt") from failure
        probed.facts[:0] = pair
        return probed


async def probe(server: Server, *, longest: int) -> Probed:
    """Ask the server everything; no prompt is longer than `longest` tokens. Raises RequestError."""
    asking = _Probe(server, longest)
    await asking.framing()
    await asking.reporting()
    await asking.ranks()
    await asking.quantum()
    await asking.siblings()
    await asking.rules()
    return asking.found


class _Probe:
    """One running probe: each question adds to what was found."""

    def __init__(self, server: Server, longest: int) -> None:
        self.found = Probed(engine=server.engine.name, model=server.model)
        self._server = server
        self._longest = longest
        self._random = random.SystemRandom()
        self._native = False
        self._omits_zero = False
        self._calls = self._random.randrange(_IDS)
        self._hit_len = 0  # a length at which a repeated prompt hits
        self._quantum = 0
        self._families: list[Family] = []

    async def framing(self) -> None:
        """Count the tokens around a user message, with thinking as the server has it and with it off."""
        messages = (Message("user", THROWAWAY),)
        plain = await self._count(AskedPrompt(text=THROWAWAY))
        chat = await self._count(AskedPrompt(messages=messages))
        off = await self._count(AskedPrompt(messages=messages, template_kwargs={"thinking": False}))
        if plain is None or chat is None:
            self.found.unknown.append("framing: the server reports no prompt tokens")
            return
        self.found.facts.append(f"framing: {chat - plain} tokens stand around a user message")
        if off is not None and off != chat:
            self.found.facts.append(
                f"thinking: on unless a request says otherwise, {chat - off} tokens; send "
                '"chat_template_kwargs": {"thinking": false}'
            )

    async def reporting(self) -> None:
        """Find out whether the server reports cached tokens, and how long a prompt must be to hit."""
        size = FIRST_LEN
        while size <= self._longest:
            ids = self._fresh(size)
            first = await self._ask(ids)
            again = [await self._ask(ids) for _ in range(2)]
            self._omits_zero = first.cached_tokens is None
            if any(reply.cached_tokens for reply in again):
                self._observe(size, size, again[-1])
                self._hit_len = size
                break
            if again[-1].cached_tokens is None and not self._native and self._server.engine.native_page:
                self._native = True
                continue
            size *= GROWTH
        if not self._hit_len and first.cached_tokens is None:
            remedy = self._server.engine.report_flag
            raise error(self._server.url, expected="cached tokens in usage", found="none", remedy=remedy)
        self._say_reporting(size // GROWTH)

    def _say_reporting(self, tried: int) -> None:
        if self._native:
            how = "only on /generate: start the server with --enable-cache-report"
        else:
            how = "in usage" + (", left out if they are 0" if self._omits_zero else "")
        self.found.facts.append(f"cached tokens: reported {how}")
        if not self._hit_len:
            self.found.unknown.append(f"reuse: a repeated prompt of {tried} tokens finds nothing")

    async def ranks(self) -> None:
        """Find out whether ranks can be pinned, how many there are, and whether they are separate."""
        if not await self._refused(IMPOSSIBLE_RANK):
            self.found.unknown.append(f"ranks: rank {IMPOSSIBLE_RANK} is served, so pins prove nothing")
            return
        low, high = 0, 1
        while high < _MOST_RANKS and not await self._refused(high):
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if await self._refused(middle) else (middle, high)
        self.found.dp_ranks = high
        self.found.facts.append(f"ranks: {high}, pinned (rank {high} is refused)")
        if high > 1 and self._hit_len:
            ids = self._fresh(self._hit_len)
            await self._ask(ids, 0)
            other, same = await self._ask(ids, 1), await self._ask(ids, 0)
            self.found.separate = not other.cached_tokens and bool(same.cached_tokens)
            told = "separate" if self.found.separate else "NOT separate: rank 1 finds what rank 0 was sent"
            self.found.facts.append(f"ranks: their caches are {told}")

    async def quantum(self) -> None:
        """Repeat prompts of several lengths, and of lengths around whole quanta."""
        if not self._hit_len:
            return
        lengths = [self._hit_len * part // 16 for part in (15, 13, 11, 10, 9, 7, 5)]
        for size in lengths:
            await self._repeat(size)
        hits = {o.cached_len for o in self.found.observations if o.cached_len}
        quantum = gcd(*hits)
        multiple = max(hits)
        for size in (multiple, multiple + 1, multiple + 2, multiple + quantum, multiple + quantum + 1):
            if size <= self._longest:
                await self._repeat(size)
        self._quantum = gcd(*(o.cached_len for o in self.found.observations))

    async def siblings(self) -> None:
        """Send a full-length prompt, then others that share only its first part: short ones, then long ones.

        A model with a window of 1,024 tokens looks dense to prompts of 105: all of each lies inside the
        window.
        """
        quantum = self._quantum
        short = 6 * quantum + 9
        if not quantum or short > self._longest:
            needed = f"a prompt of 6 x {quantum} tokens" if quantum else "a prompt long enough to hit"
            self.found.unknown.append(f"siblings: not tested: it needs {needed}; raise --longest")
            return
        long = min(self._longest, WINDOW_LEN)
        for size in (short, long) if long > short else (short,):
            hits = await self._siblings_of(size, size * 2 // 3 if size == long else 4 * quantum + 3)
            self.found.kept_late = hits[0] < hits[-1]
            if self.found.kept_late:
                found = f"the first one finds {hits[0]} tokens and a later one {hits[-1]}"
                self.found.facts.append(
                    f"siblings: after a full-length seed of {size} tokens {found}: state is kept only where "
                    "prompts end, so seed with `shape: short`"
                )
                return
        self.found.facts.append(
            f"siblings: the first one after a full-length seed of {size} tokens finds the whole prefix"
        )
        if long < WINDOW_LEN:
            self.found.unknown.append(f"a window of more than {long // 2} tokens: raise --longest")

    async def _siblings_of(self, size: int, shared: int) -> tuple[int, ...]:
        """Return the hits of three siblings, one after another, of a full-length prompt; observe the last."""
        prefix = self._fresh(shared)
        await self._ask(prefix + self._fresh(size - shared))
        replies = [await self._sibling(prefix, size) for _ in range(SIBLINGS)]
        self._observe(size, shared, replies[-1])
        hits = tuple(self._cached(reply) for reply in replies)
        self._families.append(Family(size, shared, hits))
        return hits

    async def rules(self) -> None:
        """Send the prompts that tell rules apart, and name the rules that explain every observation."""
        found = self.found
        found.page_size = await self._server.page_size()
        if found.page_size is None:
            found.unknown.append("page size: the server does not say; hits show only the quantum")
        for _ in range(_MOST_TELLING):
            window = SOME_WINDOW if found.kept_late else 0
            found.rules = fitting_rules(found.observations, found.engine, found.page_size, window=window)
            told = telling(found.rules, self._longest)
            if told is None:
                break
            await self._repeat(told.prompt_len)
        if not found.rules:
            if found.observations:
                found.unknown.append("rule: no page, quantum and speculation explains every observation")
            return
        if found.rules[0].sliding_window == SOME_WINDOW:
            await self._window()
        if left := telling(found.rules):
            asked = f"a prompt of {left.prompt_len} tokens sent twice tells them apart"
            found.unknown.append(f"rule: {len(found.rules)} fit; {asked}; raise --longest")

    async def _window(self) -> None:
        """Find the window of a model whose first sibling falls short, with prompts of other lengths."""
        found, rule = self.found, self.found.rules[0]
        windows = fitting_windows(rule, self._families)
        while told := telling_size(rule, windows, self._longest):
            await self._siblings_of(*told)
            windows = fitting_windows(rule, self._families)
        if len(windows) == 1:
            for family in edges(rule, windows[0], self._longest):
                await self._siblings_of(*family)
            windows = fitting_windows(rule, self._families)
        narrow = bool(windows) and windows[-1] <= rule.hit_quantum
        if narrow or len(windows) == 1:
            window = windows[0] and windows[-1]
            many = f"at most {rule.hit_quantum} tokens, a step of its hits" if narrow else f"{window} tokens"
            found.facts.append(f"window: {many}")
            found.rules = [with_window(each, window) for each in found.rules]
            return
        if windows:
            alike = ", ".join(map(str, windows))
            found.unknown.append(f"window: {alike} tokens look alike; raise --longest")
        else:
            found.unknown.append("window: there is one, but none of 32, 64, ... 8192 tokens explains it")
        found.rules = fitting_rules(found.observations, found.engine, found.page_size)

    async def _sibling(self, prefix: Sequence[int], size: int) -> Reply:
        return await self._ask([*prefix, *self._fresh(size - len(prefix))])

    async def _repeat(self, size: int) -> None:
        ids = self._fresh(size)
        await self._ask(ids)
        self._observe(size, size, await self._ask(ids))

    def _observe(self, prompt_len: int, shared_len: int, reply: Reply) -> None:
        seen = Observation(prompt_len=prompt_len, shared_len=shared_len, cached_len=self._cached(reply))
        self.found.observations.append(seen)

    def _cached(self, reply: Reply) -> int:
        # reporting() has seen this server report a hit, so a count that it leaves out is 0.
        return reply.cached_tokens or 0

    async def _ask(self, ids: Sequence[int], dp_rank: int = 0) -> Reply:
        if self._native:
            return await self._server.generate(ids, dp_rank=dp_rank)
        return await self._server.ask(AskedPrompt(ids=ids), max_tokens=1, dp_rank=dp_rank, stream=False)

    async def _count(self, prompt: AskedPrompt) -> int | None:
        reply = await self._server.ask(prompt, max_tokens=1, dp_rank=0, stream=False)
        return reply.prompt_tokens

    async def _refused(self, rank: int) -> bool:
        try:
            await self._ask(self._fresh(8), rank)
        except RequestError as failure:
            if HTTPStatus.BAD_REQUEST <= failure.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                return True
            raise
        return False

    def _fresh(self, size: int) -> list[int]:
        """Return ids that begin otherwise than in the last 199 calls, so that prompts differ at once."""
        self._calls += 1
        rest = (self._random.randrange(_IDS) for _ in range(size - 1))
        return [_LOWEST_ID + self._calls % _IDS, *(_LOWEST_ID + n for n in rest)]
