"""The rehearsal's HTTP face: both engines' routes, each answer marked as a simulation."""

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

from wlgen.rehearse.asks import Kind, RefusedError, json_object, parse_ask, parse_messages
from wlgen.rehearse.metrics import metrics_page
from wlgen.rehearse.settings import NOTICE, SIMULATION
from wlgen.rehearse.simulation import Simulation

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
_OPEN_PATHS = ("/health", "/ping", "/")  # what the engines answer without a key


def application(simulation: Simulation) -> ASGIApp:
    """Return the ASGI application of one life of the server."""
    pages = Pages(simulation)
    both = ["GET", "POST"]
    routes: list[tuple[str, Endpoint, list[str]]] = [
        ("/", pages.front, ["GET"]),
        ("/health", pages.healthy, ["GET"]),
        ("/health_generate", pages.healthy, ["GET"]),
        ("/ping", pages.healthy, ["GET"]),
        ("/metrics", pages.metrics, ["GET"]),
        ("/v1/models", pages.models, ["GET"]),
        ("/v1/chat/completions", pages.asks("chat"), ["POST"]),
        ("/v1/completions", pages.asks("completion"), ["POST"]),
        ("/generate", pages.asks("generate"), ["POST"]),
        ("/tokenize", pages.tokenize, ["POST"]),
        ("/v1/tokenize", pages.tokenize, ["POST"]),
        ("/flush_cache", pages.flush_cache, both),
        ("/reset_prefix_cache", pages.reset_prefix_cache, ["POST"]),
    ]
    if simulation.settings.engine == "sglang":
        routes += [(path, pages.sglang_server, ["GET"]) for path in ("/server_info", "/get_server_info")]
        routes += [(path, pages.sglang_model, ["GET"]) for path in ("/model_info", "/get_model_info")]
    else:
        routes += [("/version", pages.vllm_version, ["GET"])]
    served = [Route(path, _refusals(page, simulation), methods=methods) for path, page, methods in routes]
    return _marked(Starlette(routes=served))


class Pages:
    """The pages of one simulation."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._settings = simulation.settings

    async def front(self, _: Request) -> Response:
        """Say what this is."""
        settings = self._settings
        lines = [NOTICE, *settings.lines(), f"rows known by their text: {len(self._simulation.known)}"]
        return PlainTextResponse("\n".join(lines) + "\n")

    async def healthy(self, _: Request) -> Response:
        """Answer at once: a simulation that runs is well."""
        return Response()

    async def metrics(self, _: Request) -> Response:
        """Return the counters under the engine's names."""
        settings = self._settings
        page = metrics_page(
            self._simulation.ranks,
            engine=settings.engine,
            model=settings.model,
            page_size=settings.rule.page_size,
        )
        return PlainTextResponse(page)

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
            simulation = self._simulation
            ask = parse_ask(kind, await request.body(), request.headers, self._settings.engine)
            if self._settings.engine == "vllm" and ask.model not in (None, self._settings.model):
                raise RefusedError(404, f"The model `{ask.model}` does not exist.")
            rank = simulation.rank(ask)
            answer = simulation.answer(ask, await simulation.prompt(ask))
            if ask.stream:
                return StreamingResponse(simulation.stream(answer, rank), media_type="text/event-stream")
            return Response(await simulation.whole(answer, rank), media_type="application/json")

        return page

    async def tokenize(self, request: Request) -> Response:
        """Return the ids of a text or a conversation, as this server frames it."""
        fields = json_object(await request.body())
        if "messages" in fields:
            kwargs = fields.get("chat_template_kwargs") or {}
            ids = await self._simulation.chat_ids(parse_messages(fields), kwargs)
        elif isinstance(fields.get("prompt"), str):
            ids = await self._simulation.text_ids(fields["prompt"])
        else:
            raise RefusedError(400, "Exactly one of 'prompt' or 'messages' must be provided.")
        most = self._settings.max_model_len
        return _json({"count": len(ids), "max_model_len": most, "tokens": ids.tolist()})

    async def flush_cache(self, request: Request) -> Response:
        """Empty the ranks that are idle, as SGLang does; the reply is that of rank 0 (0.5.23)."""
        try:
            patience = float(request.query_params.get("timeout", "0"))
        except ValueError as failure:
            raise RefusedError(400, "timeout: expected seconds") from failure
        clock = asyncio.get_running_loop().time
        deadline = clock() + patience
        while self._simulation.ranks[0].busy and clock() < deadline:  # noqa: ASYNC110 (a poll, as on the engine)
            await asyncio.sleep(0.05)
        if not self._flush_idle()[0]:
            return PlainTextResponse("Flush cache failed: requests wait or run.\n", status_code=400)
        return PlainTextResponse("Cache flushed.\n")

    async def reset_prefix_cache(self, _: Request) -> Response:
        """Empty the ranks that are idle and say whether all were, as vLLM 0.32.0 does."""
        return _json({"success": all(self._flush_idle())})

    async def vllm_version(self, _: Request) -> Response:
        """Return the version page that tells vLLM."""
        return _json({"version": SIMULATION})

    async def sglang_server(self, _: Request) -> Response:
        """Return the server page that tells SGLang, and what of its flags a rehearsal stands for."""
        settings = self._settings
        flags = {
            "version": SIMULATION,
            "served_model_name": settings.model,
            "dp_size": settings.ranks,
            "page_size": settings.rule.page_size,
            "enable_cache_report": settings.faults.no_cached < 1,
        }
        return _json(flags)

    async def sglang_model(self, _: Request) -> Response:
        """Return SGLang's model page."""
        return _json({"model_path": self._settings.model, "is_generation": True})

    def _flush_idle(self) -> list[bool]:
        idle = [not rank.busy for rank in self._simulation.ranks]
        for rank, is_idle in zip(self._simulation.ranks, idle, strict=True):
            if is_idle:
                rank.flush()
        return idle


def _json(content: dict[str, Any], status: int = 200) -> Response:
    body = orjson.dumps(content | {"simulation": True})
    return Response(body, status_code=status, media_type="application/json")


def _refusals(page: Endpoint, simulation: Simulation) -> Endpoint:
    """Wrap a page so that RefusedError becomes the engine's error answer, and the key is asked for."""
    settings = simulation.settings

    async def answered(request: Request) -> Response:
        try:
            _ask_for_key(request, settings.api_key)
            simulation.check_alive()
            return await page(request)
        except RefusedError as refused:
            kind = (
                "BadRequestError"
                if refused.status < HTTPStatus.INTERNAL_SERVER_ERROR
                else "InternalServerError"
            )
            told = {"message": refused.message, "type": kind, "param": None, "code": refused.status}
            shaped = {"object": "error", **told} if settings.engine == "sglang" else {"error": told}
            return _json(shaped, refused.status)

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
