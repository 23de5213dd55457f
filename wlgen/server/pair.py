"""A prefill/decode pair of SGLang behind its router, asked as one server. Its ranks are the prefill side's.

Requests go to the router; pages, counters and the flush belong to each server itself, for a router answers
404 there. Through SGLang's routers a pin takes two fields, `routed_dp_rank` and `disagg_prefill_dp_rank`;
with the first alone the prefill side refuses and the decode side hangs for 300 s.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from wlgen.engines import Engine, every_engine
from wlgen.errors import counted, error
from wlgen.server.api import AskedPrompt, Server, unusable
from wlgen.server.counters import computed
from wlgen.server.replies import Reply, RequestError
from wlgen.server.roles import Member, members, refuse_member
from wlgen.server.route import ROUTE_PAGE, ROUTER
from wlgen.workload.manifest import Manifest

ROUTE = "Start `wlgen route --prefill URL --decode URL` and give its address as --url"
_PAUSE, _TRIES = 0.05, 100  # seconds between two looks at the counters after an answer, and how many looks


def pair_engine() -> Engine:
    """Return the engine whose prefill/decode pairs are known."""
    return next(known for known in every_engine() if known.prefill_pin_field)


class PairServer(Server):
    """A pair behind a router. Use it as an async context; call `meet` first, then use it as any server."""

    def __init__(
        self,
        url: str,
        *,
        prefill: Sequence[str],
        decode: Sequence[str],
        api_key: str | None = None,
        timeout: float = 600.0,
    ) -> None:
        known = pair_engine()
        super().__init__(url, engine=known, api_key=api_key, timeout=timeout)
        self.prefill, self.decode = (
            [Server(each, engine=known, api_key=api_key, timeout=timeout) for each in side]
            for side in (prefill, decode)
        )
        self.routed = False  # whether wlgen's own router stands in front
        self.decode_radix = False  # whether a client's cached tokens may be the decode side's
        self.prefill_members: list[Member] = []
        self.decode_members: list[Member] = []
        self._turns: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in (*self.prefill, *self.decode):
            await server.__aexit__(kind, raised, trace)
        await super().__aexit__(kind, raised, trace)

    @property
    def ranks(self) -> int:
        """The ranks of all prefill servers, in the order given."""
        return sum(member.ranks for member in self.prefill_members)

    @property
    def counted(self) -> Sequence[Server]:
        """The servers whose counters count: the prefill side's, since decode counts each prompt again."""
        return self.prefill

    async def meet(self, dp_ranks: int) -> None:
        """Look at each server; WlgenError if one has another role, or `dp_ranks` ranks cannot be pinned."""
        self.prefill_members = await members(self.prefill, "prefill")
        self.decode_members = await members(self.decode, "decode")
        self.decode_radix = any(member.radix for member in self.decode_members)
        self.routed = await _behind_route(self) is not None
        for server in (*self.prefill, *self.decode):
            server.model = self.model
        if self.ranks < dp_ranks:
            raise error(
                f"--prefill {self.prefill[0].url}",
                expected=f"the {counted(dp_ranks, 'rank')} of the set on the prefill side",
                found=f"{self.ranks}",
                remedy="Start the prefill side with as many (--dp-size), or build the set for fewer.",
            )
        if self.routed:
            return
        if len(self.prefill) > 1:
            expected = "one prefill server behind this router, which chooses one at random"
            raise error("--prefill", expected=expected, found=f"{len(self.prefill)}", remedy=f"{ROUTE}.")
        least = min(member.ranks for member in self.decode_members)
        if least < dp_ranks:
            raise error(
                f"--decode {self.decode[0].url}",
                expected=f"{dp_ranks} decode ranks: a pin through this router binds the decode rank, too",
                found=f"{least}",
                remedy=f"{ROUTE}: it pins the prefill side alone.",
            )

    def facts(self) -> tuple[str, ...]:
        """Return lines that say what stands behind the router, what a pin costs, and whose figures count."""
        sides = [
            f"{member.side} {member.url} ({counted(member.ranks, 'rank')})"
            for member in (*self.prefill_members, *self.decode_members)
        ]
        lines = [f"pair: {', '.join(sides)}; ranks, flush and counters are those of the prefill side"]
        if self.routed:
            lines.append("router: wlgen route, which pins the prefill side alone")
        else:
            lines.append(
                "router: a pin binds the decode rank, too, so decode is not balanced by its own rule"
            )
        if self.decode_radix:
            lines.append(
                "decode radix cache: ON, so the cached tokens of an answer are the greater of both sides and "
                "prove nothing; the figures here are the prefill side's own counters"
            )
        return tuple(lines)

    def pinned(self, dp_rank: int | None) -> tuple[dict[str, Any], dict[str, str]]:
        """Return what pins a request to a prefill rank. None raises: without a rank a server may die."""
        if dp_rank is None:
            raise ValueError("a request to a pair needs a rank")
        fields, headers = self.engine.pinned(dp_rank)
        return fields | {str(self.engine.prefill_pin_field): dp_rank}, headers

    async def flush(self, patience: float) -> None:
        """Empty each server's caches, one after the other; RequestError names a server that stays busy."""
        for server in (*self.prefill, *self.decode):
            try:
                await server.flush(patience)
            except RequestError as failure:
                raise RequestError(
                    failure.trouble, f"{server.url}: {failure.message}", failure.status
                ) from None

    async def tokenize(self, prompt: AskedPrompt) -> tuple[int, ...] | None:
        """Return the ids of a conversation as the prefill side encodes it."""
        return await self.prefill[0].tokenize(prompt)

    async def page_size(self) -> int | None:
        """Return the tokens of a page of the prefill side."""
        return await self.prefill[0].page_size()

    async def ask(
        self,
        prompt: AskedPrompt,
        *,
        max_tokens: int,
        dp_rank: int | None,
        name: str = "",
        stream: bool = True,
        return_ids: bool = False,
        seconds: float | None = None,
    ) -> Reply:
        """Send one request; its cached tokens are those that the prefill side did not compute."""

        async def asked() -> Reply:
            return await super(PairServer, self).ask(
                prompt,
                max_tokens=max_tokens,
                dp_rank=dp_rank,
                name=name,
                stream=stream,
                return_ids=return_ids,
                seconds=seconds,
            )

        if not self.decode_radix or dp_rank is None or dp_rank >= self.ranks:
            return await asked()
        async with self._turns[dp_rank]:
            before = await self._computed(dp_rank)
            reply = await asked()
            after = await self._moved(dp_rank, before)
        if reply.prompt_tokens is None:
            return reply
        return replace(reply, cached_tokens=max(0, reply.prompt_tokens - (after - before)))

    async def _computed(self, dp_rank: int) -> int:
        counts = await computed(self)
        if counts is None or dp_rank not in counts:
            message = "the prefill side shows no count of computed tokens (/v1/loads), and decode has a cache"
            raise RequestError("garbled", message)
        return counts[dp_rank]

    async def _moved(self, dp_rank: int, before: int) -> int:
        """Return the tokens that a rank has computed, once that has moved and two looks agree."""
        now = before
        for _ in range(_TRIES):
            last, now = now, await self._computed(dp_rank)
            if now == last != before:
                return now
            await asyncio.sleep(_PAUSE)
        raise RequestError("garbled", f"the prefill side counts nothing computed on rank {dp_rank}")


async def open_server(
    url: str, *, prefill: Sequence[str], decode: Sequence[str], api_key: str | None, patience: float
) -> Server:
    """Return the server or the pair at these addresses; WlgenError if one side of a pair is missing.

    patience: seconds for a whole answer. If `wlgen route` answers at `url`, it gives its pair's addresses.
    """
    if bool(prefill) != bool(decode):
        given, missing = ("--prefill", "--decode") if prefill else ("--decode", "--prefill")
        raise error(missing, expected=f"the other side of the pair, since {given} is given", found="none")
    if not prefill:
        async with Server(url, engine=pair_engine(), api_key=api_key, timeout=patience) as asked:
            behind = await _behind_route(asked)
        if behind is None:
            return Server(url, engine=pair_engine(), api_key=api_key, timeout=patience)
        prefill, decode = behind
    return PairServer(url, prefill=prefill, decode=decode, api_key=api_key, timeout=patience)


async def _behind_route(server: Server) -> tuple[list[str], list[str]] | None:
    """Return the addresses of both sides if `wlgen route` answers, None for any other server."""
    try:
        page = await server.get(ROUTE_PAGE) or {}
    except RequestError:  # `choose_model` says better that no server answers
        return None
    if page.get("router") != ROUTER:
        return None
    first, second = ([str(url) for url in page.get(side) or []] for side in ("prefill", "decode"))
    return first, second


async def check_roles(server: Server, dp_ranks: int) -> tuple[str, ...]:
    """Find out what a server is before any prompt goes there; return lines about a pair.

    WlgenError if it is one side of a pair, or a pair that cannot serve `dp_ranks` pinned ranks.
    """
    try:
        await refuse_member(server)
    except RequestError as failure:
        raise unusable(server.url, failure, expected="a page that says what this server is") from failure
    if not isinstance(server, PairServer):
        return ()
    await server.meet(dp_ranks)
    return server.facts()


def target_of(server: Server, manifest: Manifest) -> dict[str, object]:
    """Return the set and the server for the journal, whose rows count only for the same target."""
    target: dict[str, object] = {
        "set": manifest.name,
        "spec_sha256": manifest.spec_sha256,
        "url": server.url,
        "model": server.model,
        "engine": server.engine.name,
    }
    if isinstance(server, PairServer):
        sides = {"prefill": server.prefill, "decode": server.decode}
        target |= {side: [each.url for each in servers] for side, servers in sides.items()}
    return target
