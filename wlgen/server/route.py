"""A small router for a prefill/decode pair of SGLang that pins only the prefill rank. It keeps no state.

SGLang's own routers choose the prefill rank at random, and a pin through them binds the decode rank too. This
router reads a request's rank where a plain server reads it (`routed_dp_rank`, or the header
X-Data-Parallel-Rank), and sends the request to both sides:

    prefill   routed_dp_rank r, disagg_prefill_dp_rank r, a bootstrap_room of r modulo the prefill ranks
    decode    disagg_prefill_dp_rank r and the same room, and no rank: its own balancer chooses

Ranks are numbered through all prefill servers: with 8 + 8 ranks, rank 11 is rank 3 of the second server. A
request without a rank gets a random rank. If the prefill side refuses, the router returns its answer at once;
the decode side would wait 300 s for tokens that never come.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import httpx
import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from wlgen.server.roles import Member

ROUTE_PAGE = "/wlgen_route"  # tells `wlgen prepare` the addresses of both sides
ROUTER = "wlgen route"
_ROOMS = 1 << 63
_OF_PREFILL = ("/v1/models", "/tokenize", "/model_info", "/get_model_info")
_PINS = ("routed_dp_rank", "data_parallel_rank", "disagg_prefill_dp_rank")
Page: TypeAlias = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One of the two requests that the router makes of a client's request: its address and its body."""

    url: str
    body: dict[str, Any]


class RankError(ValueError):
    """A rank that no prefill server has."""


def legs(
    body: dict[str, Any], rank: int | None, prefill: Sequence[Member], decode: Sequence[Member]
) -> tuple[Leg, Leg]:
    """Return the request for each side, made of a client's body; RankError if there is no such rank."""
    total = sum(side.ranks for side in prefill)
    rank = secrets.randbelow(total) if rank is None else rank
    if not 0 <= rank < total:
        raise RankError(f"routed_dp_rank={rank} out of range [0, {total}): the prefill side's ranks")
    local, side = rank, prefill[0]
    for side in prefill:
        if local < side.ranks:
            break
        local -= side.ranks
    room = secrets.randbelow(_ROOMS // side.ranks) * side.ranks + local
    common = {key: value for key, value in body.items() if key not in _PINS} | {
        "bootstrap_host": urlsplit(side.url).hostname,
        "bootstrap_port": side.bootstrap_port,
        "bootstrap_room": room,
        "disagg_prefill_dp_rank": local,
    }
    chosen = decode[secrets.randbelow(len(decode))]
    return Leg(url=side.url, body=common | {"routed_dp_rank": local}), Leg(url=chosen.url, body=common)


def application(prefill: Sequence[Member], decode: Sequence[Member]) -> Starlette:
    """Return the router's ASGI application."""
    router = _Router(prefill, decode)
    generating = [
        Route(path, router.generate, methods=["POST"])
        for path in ("/generate", "/v1/completions", "/v1/chat/completions")
    ]
    passed = [Route(path, router.ask_prefill, methods=["GET", "POST"]) for path in _OF_PREFILL]
    own = [
        Route("/flush_cache", router.flush, methods=["GET", "POST"]),
        Route("/health", router.healthy, methods=["GET"]),
        Route(ROUTE_PAGE, router.addresses, methods=["GET"]),
    ]
    return Starlette(routes=[*generating, *passed, *own], lifespan=router.open)


class _Router:
    def __init__(self, prefill: Sequence[Member], decode: Sequence[Member]) -> None:
        self._prefill, self._decode = prefill, decode
        self._client = httpx.AsyncClient()

    @asynccontextmanager
    async def open(self, _: Starlette) -> AsyncIterator[None]:
        """Hold the connections. They have no timeout: each client limits the time of its own requests."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
        timeout = httpx.Timeout(None, connect=10.0)
        async with httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False) as self._client:
            yield

    async def generate(self, request: Request) -> Response:
        """Send a request to both sides; return the decode side's answer, or an error of either side."""
        try:
            body = orjson.loads(await request.body())
            rank = _rank(request, body)
            first, second = legs(body, rank, self._prefill, self._decode)
        except (ValueError, TypeError, AttributeError) as failure:
            return _refusal(HTTPStatus.BAD_REQUEST, str(failure))
        prefilled = asyncio.create_task(self._whole(request, first))
        decoding = asyncio.create_task(self._opened(request, second))
        await asyncio.wait({prefilled, decoding}, return_when=asyncio.FIRST_COMPLETED)
        if prefilled.done() and (refused := _failure(prefilled)):
            decoding.cancel()
            return refused
        if not decoding.done():
            await asyncio.wait({decoding})
        if isinstance(decoding.exception(), httpx.HTTPError):
            prefilled.cancel()
            return _refusal(HTTPStatus.BAD_GATEWAY, f"{second.url}: {decoding.exception()!r}")
        answer = decoding.result()
        headers = {"content-type": answer.headers.get("content-type", "application/json")}
        return StreamingResponse(_watched(answer, prefilled), answer.status_code, headers)

    async def ask_prefill(self, request: Request) -> Response:
        """Pass a request that generates nothing to the first prefill server."""
        return await self._whole(request, Leg(url=self._prefill[0].url, body={}))

    async def flush(self, request: Request) -> Response:
        """Flush every server of the pair; answer 200 only if each of them answered 200."""
        told = {}
        for member in (*self._prefill, *self._decode):
            answer = await self._client.post(f"{member.url}/flush_cache?{request.url.query}")
            told[member.url] = answer.status_code
        good = all(status == HTTPStatus.OK for status in told.values())
        return JSONResponse(told, HTTPStatus.OK if good else HTTPStatus.BAD_REQUEST)

    async def healthy(self, _: Request) -> Response:
        """Answer at once."""
        return Response()

    async def addresses(self, _: Request) -> Response:
        """Say which servers stand behind this router."""
        sides = {"prefill": self._prefill, "decode": self._decode}
        urls = {name: [member.url for member in side] for name, side in sides.items()}
        return JSONResponse({"router": ROUTER} | urls)

    async def _whole(self, request: Request, leg: Leg) -> Response:
        try:
            answer = await self._opened(request, leg)
            return Response(
                await answer.aread(), answer.status_code, media_type=answer.headers.get("content-type")
            )
        except httpx.HTTPError as failure:
            return _refusal(HTTPStatus.BAD_GATEWAY, f"{leg.url}: {failure!r}")

    async def _opened(self, request: Request, leg: Leg) -> httpx.Response:
        kept = ("authorization", "content-type", "x-request-id")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        content = orjson.dumps(leg.body) if leg.body else await request.body()
        url = f"{leg.url}{request.url.path}"
        sent = self._client.build_request(request.method, url, content=content, headers=headers)
        return await self._client.send(sent, stream=True)


def _rank(request: Request, body: dict[str, Any]) -> int | None:
    """Return the rank that a request names; a header beats the body, as on a plain server."""
    header = request.headers.get("x-data-parallel-rank")
    named = [int(header)] if header is not None else [body.get(key) for key in _PINS[:2]]
    found = next((rank for rank in named if rank is not None), None)
    if found is not None and type(found) is not int:
        raise TypeError(f"routed_dp_rank: expected a whole number, found {found!r}")
    return found


async def _watched(answer: httpx.Response, prefilled: asyncio.Task[Response]) -> AsyncIterator[bytes]:
    """Yield the decode side's answer; if the prefill side refuses, end it at once with an error event."""
    parts = answer.aiter_raw()
    try:
        while True:
            part = asyncio.ensure_future(anext(parts, b""))
            waiting: set[asyncio.Future[Any]] = {part} if prefilled.done() else {part, prefilled}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if prefilled.done() and (refused := _failure(prefilled)) and answer.status_code == HTTPStatus.OK:
                part.cancel()
                told = orjson.dumps({"error": {"message": bytes(refused.body).decode(errors="replace")}})
                yield b"data: " + told + b"\n\ndata: [DONE]\n\n"
                return
            if not (content := await part):
                return
            yield content
    finally:
        prefilled.cancel()
        await answer.aclose()


def _failure(prefilled: asyncio.Task[Response]) -> Response | None:
    answer = prefilled.result()
    return None if answer.status_code == HTTPStatus.OK else answer


def _refusal(status: int, message: str) -> Response:
    return JSONResponse({"object": "error", "message": message, "code": int(status)}, status)
