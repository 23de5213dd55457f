"""The rehearsal's HTTP routes, which are the engine's; each answer is marked as a simulation."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from wlgen.rehearse.answers import DONE, event
from wlgen.rehearse.asks import json_object, parse_ask, parse_messages
from wlgen.rehearse.dialects import Kind, RefusedError
from wlgen.rehearse.dialects._samples import metrics_text
from wlgen.rehearse.life import Life
from wlgen.rehearse.settings import NOTICE, SIMULATION

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
_OPEN_PATHS = ("/health", "/ping", "/")  # paths that the engines answer without a key


def application(life: Life) -> ASGIApp:
    """Return the ASGI application of one life of the server."""
    pages = Pages(life)
    routes: list[tuple[str, Endpoint, list[str]]] = [
        ("/", pages.front, ["GET"]),
        ("/health", pages.healthy, ["GET"]),
        ("/health_generate", pages.healthy, ["GET"]),
        ("/ping", pages.healthy, ["GET"]),
        ("/v1/models", pages.models, ["GET"]),
        ("/v1/chat/completions", pages.asks("chat"), ["POST"]),
        ("/v1/completions", pages.asks("completion"), ["POST"]),
        ("/generate", pages.asks("generate"), ["POST"]),
        ("/tokenize", pages.tokenize, ["POST"]),
        ("/v1/tokenize", pages.tokenize, ["POST"]),
    ]
    flush = pages.flush_when_idle if life.dialect.flush_waits else pages.flush_now
    routes.append((life.dialect.flush_page, flush, ["GET", "POST"] if life.dialect.flush_waits else ["POST"]))
    routes += [(path, pages.facts(path), ["GET"]) for path in life.dialect.pages(life.settings, life.ranks)]
    if life.settings.enable_metrics or not life.dialect.metrics_by_flag:
        routes.append(("/metrics", pages.metrics, ["GET"]))
    served = [Route(path, refusing(page, life), methods=methods) for path, page, methods in routes]
    return _marked(Starlette(routes=served))


class Pages:
    """The pages of one life of the server."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._settings = life.settings

    async def front(self, _: Request) -> Response:
        """Say that this is a simulation, and of what."""
        settings = self._settings
        lines = [NOTICE, *settings.lines(), f"rows known by their text: {len(self._life.known)}"]
        return PlainTextResponse("\n".join(lines) + "\n")

    async def healthy(self, _: Request) -> Response:
        """Answer at once: a simulation that runs is well."""
        return Response()

    async def metrics(self, _: Request) -> Response:
        """Return the counters under the engine's names."""
        counts = self._life.dialect.metrics(self._settings, self._life.ranks, self._life.started)
        return PlainTextResponse(metrics_text(NOTICE, counts))

    def facts(self, path: str) -> Endpoint:
        """Return one of the engine's own pages of facts."""

        async def page(_: Request) -> Response:
            return _json(self._life.dialect.pages(self._settings, self._life.ranks)[path])

        return page

    async def models(self, _: Request) -> Response:
        """Return the one model."""
        card = {
            "id": self._settings.model,
            "object": "model",
            "owned_by": "wlgen-rehearse",
            "max_model_len": self._settings.max_model_len,
        }
        return _json({"object": "list", "data": [card]})

    def asks(self, kind: Kind) -> Endpoint:
        """Return the page that generates."""

        async def page(request: Request) -> Response:
            life = self._life
            ask = parse_ask(kind, await request.body(), request.headers, life.dialect)
            if not life.dialect.any_model and ask.model not in (None, self._settings.model):
                raise RefusedError(404, f"The model `{ask.model}` does not exist.")
            try:
                rank = life.rank(ask)
            except RefusedError as refused:
                if kind != "generate" or not ask.stream:
                    raise
                told = life.dialect.refusal(kind, refused.message, "BadRequestError", refused.status)
                return Response(event(told) + DONE, media_type="text/event-stream")
            answer = life.answer(ask, await life.prompt(ask), rank)
            if ask.stream:
                return StreamingResponse(life.stream(answer, rank), media_type="text/event-stream")
            return Response(await life.whole(answer, rank), media_type="application/json")

        return page

    async def tokenize(self, request: Request) -> Response:
        """Return the ids of a text or a conversation, as this server frames it."""
        fields = json_object(await request.body())
        if "messages" in fields:
            kwargs = fields.get("chat_template_kwargs") or {}
            ids = await self._life.chat_ids(parse_messages(fields, self._life.dialect), kwargs)
        elif isinstance(fields.get("prompt"), str):
            ids = await self._life.text_ids(fields["prompt"])
        else:
            raise RefusedError(400, "Exactly one of 'prompt' or 'messages' must be provided.")
        most = self._settings.max_model_len
        return _json({"count": len(ids), "max_model_len": most, "tokens": ids.tolist()})

    async def flush_when_idle(self, request: Request) -> Response:
        """Empty the ranks that are idle; answer 200 if all are, and without a timeout if rank 0 is.

        Source: a real SGLang 0.5.23 waits, up to the timeout, for each rank that is busy.
        """
        try:
            patience = float(request.query_params.get("timeout", "0"))
        except ValueError as failure:
            raise RefusedError(400, "timeout: expected seconds") from failure
        clock = asyncio.get_running_loop().time
        deadline = clock() + patience
        ranks = self._life.ranks
        while any(r.busy for r in ranks) and clock() < deadline:  # noqa: ASYNC110 (a poll, as on the engine)
            await asyncio.sleep(0.05)
        idle = self._flush_idle()
        if not (all(idle) if patience else idle[0]):
            return PlainTextResponse("Flush cache failed: requests wait or run.\n", status_code=400)
        return PlainTextResponse("Cache flushed.\n")

    async def flush_now(self, _: Request) -> Response:
        """Empty the ranks that are idle and say whether all were, as vLLM does."""
        return _json({"success": all(self._flush_idle())})

    def _flush_idle(self) -> list[bool]:
        idle = [not rank.busy for rank in self._life.ranks]
        for rank, is_idle in zip(self._life.ranks, idle, strict=True):
            if is_idle:
                rank.flush()
        return idle


def _json(content: dict[str, Any], status: int = 200) -> Response:
    body = orjson.dumps(content | {"simulation": True})
    return Response(body, status_code=status, media_type="application/json")


def refusing(page: Endpoint, life: Life) -> Endpoint:
    """Wrap a page so that it requires the API key, and RefusedError becomes the engine's error answer."""
    settings = life.settings

    async def answered(request: Request) -> Response:
        try:
            _ask_for_key(request, settings.api_key)
            life.check_alive()
            return await page(request)
        except RefusedError as refused:
            kind = (
                "BadRequestError"
                if refused.status < HTTPStatus.INTERNAL_SERVER_ERROR
                else "InternalServerError"
            )
            route = "generate" if request.url.path == "/generate" else "openai"
            return _json(life.dialect.refusal(route, refused.message, kind, refused.status), refused.status)

    return answered


def _ask_for_key(request: Request, api_key: str | None) -> None:
    if api_key is None or request.url.path in _OPEN_PATHS:
        return
    sent = request.headers.get("authorization", "")
    if not secrets.compare_digest(sent.encode(), f"Bearer {api_key}".encode()):
        raise RefusedError(401, "Unauthorized")


def _marked(app: ASGIApp) -> ASGIApp:
    """Mark each answer, those of unknown paths included, as a simulation."""
    mark = (b"x-wlgen-simulation", SIMULATION.encode())

    async def marked(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], mark]
            await send(message)

        await app(scope, receive, send_marked)

    return marked
