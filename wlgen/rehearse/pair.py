"""A rehearsed prefill/decode pair: SGLang's room rule, its conflict, and whose figures an answer carries.

Three servers of one process stand for a router, a prefill and a decode server. KV travels as a number: the
prefill side leaves in a room how many tokens it found cached, and the decode side waits for it there.
Behaviour of SGLang 0.5.23 and sglang-router 0.3.2 as a real pair on a CPU showed it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Literal, TypeAlias

import httpx
import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from wlgen.rehearse.answers import Answer
from wlgen.rehearse.app import application, refusing
from wlgen.rehearse.asks import Ask, json_object, parse_ask
from wlgen.rehearse.dialects import Kind, RefusedError
from wlgen.rehearse.dialects._samples import metrics_text
from wlgen.rehearse.life import CutStreamError, Life
from wlgen.rehearse.ranks import Rank
from wlgen.rehearse.settings import NOTICE

RouterName: TypeAlias = Literal["mini_lb", "sglang-router"]
ROUTERS: tuple[RouterName, ...] = ("mini_lb", "sglang-router")
FAKE_HOST = "2.2.2.2"  # what the engine's own warm-up names: the prefill side answers and keeps nothing
_HANGS = 300.0  # seconds that the decode side waits for a prefill side that refused
_NO_ROOM = "Disaggregated request received without bootstrap room id"
_KINDS: Mapping[str, Kind] = {
    "/generate": "generate",
    "/v1/completions": "completion",
    "/v1/chat/completions": "chat",
}


@dataclass(kw_only=True, slots=True)
class PairLife:
    """One life of a pair. decode_radix: the decode side has a prefix cache. hangs: seconds it waits in vain.

    ended: set when a request without a rank ended the prefill server. bootstrap_port: what /server_info says.
    """

    prefill: Life
    decode: Life
    decode_radix: bool = False
    hangs: float = _HANGS
    bootstrap_port: int = 8998
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    rooms: dict[int, asyncio.Future[int]] = field(default_factory=dict)

    def room(self, number: int) -> asyncio.Future[int]:
        """Return where the prefill side leaves what it found, and the decode side waits for it."""
        return self.rooms.setdefault(number, asyncio.get_running_loop().create_future())


class _Side:
    """One member: the plain server's pages, but for those where a member of a pair differs."""

    side = ""

    def __init__(self, pair: PairLife, life: Life) -> None:
        self._pair, self._life = pair, life

    def application(self) -> Starlette:
        pages: list[tuple[str, Callable[[Request], Awaitable[Response]], str]] = [
            *((path, self._generating(kind), "POST") for path, kind in _KINDS.items()),
            *((path, self._facts, "GET") for path in ("/server_info", "/get_server_info")),
        ]
        if self._life.settings.enable_metrics:
            pages.append(("/metrics", self._metrics, "GET"))
        routes = [Route(path, refusing(page, self._life), methods=[way]) for path, page, way in pages]
        return Starlette(routes=[*routes, Mount("/", application(self._life))])

    def described(self) -> dict[str, Any]:
        """Return what /server_info says of this side."""
        raise NotImplementedError

    async def answered(self, ask: Ask, fields: Mapping[str, Any], room: int) -> Response:
        """Return the answer of a request that has a room."""
        raise NotImplementedError

    def unroomed(self, ask: Ask) -> Response:
        """Refuse a request that has no room."""
        del ask
        raise RefusedError(400, _NO_ROOM)

    def _generating(self, kind: Kind) -> Callable[[Request], Awaitable[Response]]:
        async def page(request: Request) -> Response:
            body = await request.body()
            fields, ask = json_object(body), parse_ask(kind, body, request.headers, self._life.dialect)
            if self._pair.ended.is_set() and self.side == "prefill":
                return StreamingResponse(_broken())
            room = fields.get("bootstrap_room")
            if not isinstance(room, int):
                return self.unroomed(ask)
            return await self.answered(ask, fields, room)

        return page

    async def _facts(self, _: Request) -> Response:
        plain = self._life.dialect.pages(self._life.settings, self._life.ranks)["/server_info"]
        told = {"disaggregation_mode": self.side, "disaggregation_bootstrap_port": self._pair.bootstrap_port}
        return JSONResponse(plain | told | self.described())

    async def _metrics(self, _: Request) -> Response:
        counts = self._life.dialect.metrics(self._life.settings, self._life.ranks, self._life.started)
        page = metrics_text(NOTICE, counts).replace(
            "{model_name=", f'{{engine_type="{self.side}",model_name='
        )
        return PlainTextResponse(page)


class PrefillSide(_Side):
    """The server that computes prompts, and whose prefix caches a set promises."""

    side = "prefill"

    def described(self) -> dict[str, Any]:
        """Return the facts of the prefill side."""
        return {"load_balance_method": "follow_bootstrap_room", "disable_radix_cache": False}

    def unroomed(self, ask: Ask) -> Response:
        """End the whole server for a request without a rank, as its data-parallel controller does."""
        if ask.dp_rank is not None or len(self._life.ranks) == 1:
            return super().unroomed(ask)

        self._pair.ended.set()
        return StreamingResponse(_broken())

    async def answered(self, ask: Ask, fields: Mapping[str, Any], room: int) -> Response:
        """Compute the prompt on the rank that pin and room agree on, and leave the figure in the room."""
        rank = self._rank(ask, fields.get("disagg_prefill_dp_rank"), room)
        short = replace(ask, output_len=1, stream=False)
        answer = self._life.answer(short, await self._life.prompt(short), rank)
        if fields.get("bootstrap_host") == FAKE_HOST:
            return Response(answer.whole(0), media_type="application/json")
        keeps, output = answer.treatment is None or answer.treatment.keeps, answer.filler.ids(1)
        found = [each.cached_len async for each in rank.run(answer.met, output, keeps=keeps)][-1]
        found = self._life.told(answer, found)
        self._life.ended(rank)
        self._pair.room(room).set_result(found)
        return Response(answer.whole(found), media_type="application/json")

    def _rank(self, ask: Ask, named: object, room: int) -> Rank:
        """Return the rank: of the pin, else of the room; refuse a pin that the room contradicts.

        With `disagg_prefill_dp_rank` beside it a pin holds whatever the room.
        """
        implied = room % len(self._life.ranks)
        dispatched = implied if ask.dp_rank is None else ask.dp_rank
        rank = self._life.rank(replace(ask, dp_rank=dispatched))
        if dispatched not in (named, implied):
            pin, told = (
                f"dispatched to dp_rank {dispatched}",
                f"bootstrap_room {room} implies dp_rank {implied}",
            )
            raise RefusedError(500, f"follow_bootstrap_room conflict: {pin} but {told}")
        return rank


async def _broken() -> AsyncIterator[bytes]:
    """Break a connection off before its first byte, as a server that ends does."""
    raise CutStreamError
    yield b""


class DecodeSide(_Side):
    """The server that answers. It hands on the prefill side's figure, or its own where that is greater."""

    side = "decode"

    def described(self) -> dict[str, Any]:
        """Return the facts of the decode side."""
        return {"load_balance_method": "round_robin", "disable_radix_cache": not self._pair.decode_radix}

    async def answered(self, ask: Ask, fields: Mapping[str, Any], room: int) -> Response:
        """Wait for the room, then generate."""
        del fields
        rank = self._life.rank(ask)
        answer = self._life.answer(ask, await self._life.prompt(ask), rank)
        found = await self._received(rank, room)
        if ask.stream:
            return StreamingResponse(self._stream(answer, rank, found), media_type="text/event-stream")
        whole = b"".join([part async for part in self._stream(answer, rank, found, whole=True)])
        return Response(whole, media_type="application/json")

    async def _received(self, rank: Rank, room: int) -> int:
        """Return what the prefill side found; RefusedError, after a long wait, where it refused."""
        rank.waiting += 1
        try:
            return await asyncio.wait_for(asyncio.shield(self._pair.room(room)), self._pair.hangs)
        except TimeoutError:
            took = f"timed out after {self._pair.hangs:.1f}s in KVPoll.WaitingForInput"
            raise RefusedError(500, f"Decode transfer failed for bootstrap_room {room}: {took}") from None
        finally:
            rank.waiting -= 1
            self._pair.rooms.pop(room, None)

    async def _stream(
        self, answer: Answer, rank: Rank, found: int, *, whole: bool = False
    ) -> AsyncIterator[bytes]:
        """Yield the answer as events, or whole."""
        if not self._pair.decode_radix:
            rank.flush()  # without a prefix cache each request meets an empty one
        if not whole:
            yield answer.first()
        sent, figure = 0, found
        looked_up, computed = rank.looked_up, rank.computed
        async for own, done in rank.run(answer.prompt, answer.filler.ids(answer.ask.output_len)):
            if not sent:
                # Both counters of admitted prefill work stand still on the decode side; its count of cached
                # tokens is that of the answers.
                rank.looked_up, rank.computed = looked_up, computed
                figure = max(found, own)
                rank.cached_tokens += figure - own
            if not whole:
                yield answer.events(sent, done, figure)
            sent = done
        self._life.ended(rank)
        yield answer.whole(figure) if whole else answer.last(figure)


class PairRouter:
    """The router in front: `mini_lb`, which passes a body on, or `sglang-router`, which drops ranks."""

    def __init__(self, name: RouterName, pair: PairLife, prefill: str, decode: str) -> None:
        self._name, self._pair = name, pair
        self._urls = {"prefill": prefill, "decode": decode}
        self._client = httpx.AsyncClient()

    def application(self) -> Starlette:
        """Return the router's ASGI application: no /server_info, no /metrics, no /tokenize."""
        generating = [Route(path, self._generate, methods=["POST"]) for path in _KINDS]
        passed = [Route(path, self._of_decode) for path in ("/v1/models", "/health")]
        flush = Route("/flush_cache", self._flush, methods=["POST"])
        return Starlette(routes=[*generating, *passed, flush], lifespan=self._open)

    @asynccontextmanager
    async def _open(self, _: Starlette) -> AsyncIterator[None]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=None, limits=limits, trust_env=False) as self._client:  # noqa: S113
            yield

    async def _generate(self, request: Request) -> Response:
        """Send the body with a room at random to both sides; the answer is the decode side's."""
        path = request.url.path
        body = orjson.loads(await request.body())
        if self._name == "sglang-router":
            if path == "/v1/completions" and not isinstance(body.get("prompt"), str):
                return PlainTextResponse("Failed to deserialize the JSON body", 422)
            if path != "/v1/completions":
                body = {
                    k: v for k, v in body.items() if k not in ("routed_dp_rank", "disagg_prefill_dp_rank")
                }
        body |= {"bootstrap_host": "127.0.0.1", "bootstrap_port": self._pair.bootstrap_port}
        body["bootstrap_room"] = secrets.randbelow(1 << 63)
        content, headers = orjson.dumps(body), {"content-type": "application/json"}
        if "authorization" in request.headers:
            headers["authorization"] = request.headers["authorization"]
        first = asyncio.create_task(
            self._client.post(self._urls["prefill"] + path, content=content, headers=headers)
        )
        try:
            second = await self._client.post(self._urls["decode"] + path, content=content, headers=headers)
            await asyncio.wait({first})
        except httpx.HTTPError as failure:
            return PlainTextResponse(f"{failure!r}", HTTPStatus.BAD_GATEWAY)
        kind = second.headers.get("content-type", "application/json")
        return Response(second.content, second.status_code, media_type=kind)

    async def _of_decode(self, request: Request) -> Response:
        answer = await self._client.get(self._urls["decode"] + request.url.path)
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))

    async def _flush(self, request: Request) -> Response:
        told = {}
        for side, url in self._urls.items():
            told[side] = (await self._client.post(f"{url}/flush_cache?{request.url.query}")).status_code
        flushed = [side for side, status in told.items() if status == HTTPStatus.OK]
        status = HTTPStatus.OK if len(flushed) == len(told) else HTTPStatus.PARTIAL_CONTENT
        return JSONResponse({"workers_flushed": len(flushed), "total_workers": len(told)}, status)
