"""Calls to a live server: one class over httpx that knows each engine's own way of asking.

Sends only to the URL given: no proxy, no redirect, no .netrc. The API key travels in the header alone and is
cut out of whatever the server says.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
import orjson

from wlgen.encodings import Message
from wlgen.engines import Engine, every_engine
from wlgen.errors import WlgenError, error
from wlgen.server.replies import SHOWN, Reply, RequestError, Stream, error_words, json_object, read_answer

KEY_VARIABLE = "WLGEN_API_KEY"
_JSON = {"Content-Type": "application/json"}
_BUSY_PAUSE = 0.5  # seconds between tries to flush a server that is busy


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPrompt:
    """What to send: a conversation, or, to a completions route, a text or token ids.

    add_special_tokens: whether the server is to add the tokenizer's own around a text (vLLM can be told).
    """

    messages: tuple[Message, ...] = ()
    text: str | None = None
    ids: Sequence[int] | None = None
    template_kwargs: Mapping[str, object] = field(default_factory=dict)
    add_special_tokens: bool = False


class Server:
    """A live server. Use as an async context; calls raise RequestError."""

    def __init__(
        self, url: str, *, engine: Engine, model: str = "", api_key: str | None = None, timeout: float = 600.0
    ) -> None:
        self.url = base_url(url)
        self.engine = engine
        self.model = model
        self._key = api_key
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=10.0),
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )
        self._timeout = timeout

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def get(self, path: str) -> dict[str, Any] | None:
        """Return the JSON object of a page, None where the server has no such page."""
        try:
            response = await self._call("GET", path)
        except RequestError as failure:
            if failure.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
                return None
            raise
        return json_object(response.content)

    async def detect(self) -> Engine | None:
        """Return the engine that answers, by a page that it alone has; None where no such page is there."""
        for known in every_engine():
            for path in known.own_pages:
                if await self.get(path) is not None:
                    return known
        return None

    async def models(self) -> list[str]:
        """Return the ids of the models served."""
        page = await self.get("/v1/models") or {}
        return [str(card["id"]) for card in page.get("data", []) if isinstance(card, dict) and "id" in card]

    async def max_model_len(self) -> int | None:
        """Return the most tokens of a prompt with its output, None where the server does not say."""
        page = await self.get("/v1/models") or {}
        found = [card.get("max_model_len") for card in page.get("data", []) if card.get("id") == self.model]
        return found[0] if found and type(found[0]) is int else None

    async def flush(self, patience: float) -> None:
        """Empty the prefix cache of every rank; tries again while the server is busy, for `patience` s.

        What a busy engine answers stands in engines/.
        """
        deadline = time.monotonic() + patience
        while not await self._flush_once(max(0.0, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                message = f"busy for {patience:g} s: requests of others wait or run"
                raise RequestError("http", message, HTTPStatus.BAD_REQUEST)
            await asyncio.sleep(_BUSY_PAUSE)

    async def tokenize(self, prompt: AskedPrompt) -> tuple[int, ...] | None:
        """Return the ids the server encodes a conversation to; None where it cannot say."""
        body: dict[str, Any] = {"model": self.model, "messages": [m._asdict() for m in prompt.messages]}
        if prompt.template_kwargs:
            body["chat_template_kwargs"] = dict(prompt.template_kwargs)
        try:
            response = await self._call("POST", "/tokenize", body)
        except RequestError as failure:
            if failure.trouble == "http":
                return None
            raise
        ids = json_object(response.content).get("tokens")
        return tuple(ids) if isinstance(ids, list) else None

    async def requests_total(self) -> int | None:
        """Return the requests served since the server started, by its metrics; None where it has none."""
        name = self.engine.counters["requests"]
        try:
            page = (await self._call("GET", "/metrics")).text
        except RequestError:
            return None
        counts = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", page, re.MULTILINE)
        return int(sum(map(float, counts))) if counts else None

    async def page_size(self) -> int | None:
        """Return the tokens of a page (vLLM: block) as the server's own pages say; None where they do not."""
        for path in self.engine.page_size_pages:
            try:
                page = (await self._call("GET", path)).content
            except RequestError:
                continue
            found = self.engine.read_page_size(page)
            if found is not None:
                return found
        return None

    async def ask(
        self,
        prompt: AskedPrompt,
        *,
        max_tokens: int,
        dp_rank: int | None,
        name: str = "",
        stream: bool = True,
        return_ids: bool = False,
    ) -> Reply:
        """Send one request, pinned to dp_rank where given, and return what the server says of it."""
        path, body = self._request(prompt, max_tokens, return_ids=return_ids)
        pin, headers = self.engine.pinned(dp_rank)
        body |= pin
        if name:
            headers["X-Request-Id"] = name
        started = time.monotonic()
        if not stream:
            response = await self._call("POST", path, body, headers)
            return read_answer(json_object(response.content), time.monotonic() - started)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        return await self._streamed(path, body, headers, started)

    def _request(
        self, prompt: AskedPrompt, max_tokens: int, *, return_ids: bool
    ) -> tuple[str, dict[str, Any]]:
        body: dict[str, Any] = {"model": self.model, "max_tokens": max_tokens, "temperature": 0}
        body["ignore_eos"] = True
        if return_ids:
            body["return_token_ids"] = True
        if not prompt.messages:
            ids = prompt.ids
            body["prompt"] = list(ids) if ids is not None else prompt.text
            body |= self.engine.completion_fields(prompt.add_special_tokens)
            return "/v1/completions", body
        body["messages"] = [m._asdict() for m in prompt.messages]
        if prompt.template_kwargs:
            body["chat_template_kwargs"] = dict(prompt.template_kwargs)
        return "/v1/chat/completions", body

    async def generate(self, ids: Sequence[int], *, dp_rank: int | None) -> Reply:
        """Send ids, for one token, to the engine's own page that reports cached tokens whatever its flags."""
        page, body_of = self.engine.native_page, self.engine.native_body
        if page is None or body_of is None:
            raise RequestError("http", f"{self.engine.title} has no page of its own that takes token ids")
        started = time.monotonic()
        answer = json_object((await self._call("POST", page, body_of(ids, dp_rank))).content)
        return read_answer({"usage": answer.get("meta_info")}, time.monotonic() - started)

    async def _streamed(
        self, path: str, body: dict[str, Any], headers: dict[str, str], started: float
    ) -> Reply:
        seen = Stream()
        try:
            async with self._client.stream(
                "POST", path, content=orjson.dumps(body), headers=_JSON | headers
            ) as response:
                if response.status_code != HTTPStatus.OK:
                    await response.aread()
                    raise self._http_error(response)
                async for line in response.aiter_lines():
                    seen.take(line, time.monotonic() - started)
        except httpx.HTTPError as failure:
            raise self._trouble(failure, begun=seen.first_token is not None) from None
        if seen.failure:
            raise RequestError("http", self._clean(seen.failure), HTTPStatus.INTERNAL_SERVER_ERROR)
        if not seen.done:
            raise RequestError("cut", "the stream ended before its last event, [DONE]")
        return seen.reply(time.monotonic() - started)

    async def _flush_once(self, patience: float) -> bool:
        try:
            response = await self._call("POST", self.engine.flush_page(min(patience, self._timeout / 2)))
            status, content = response.status_code, response.content
        except RequestError as failure:
            flushed = self.engine.flushed(failure.status, b"")
            if flushed is None:
                raise
            return flushed
        return self.engine.flushed(status, content) is not False

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        content = None if body is None else orjson.dumps(body)
        try:
            response = await self._client.request(
                method, path, content=content, headers=_JSON | (headers or {})
            )
        except httpx.HTTPError as failure:
            raise self._trouble(failure, begun=False) from None
        if response.status_code != HTTPStatus.OK:
            raise self._http_error(response)
        return response

    def _trouble(self, failure: httpx.HTTPError, *, begun: bool) -> RequestError:
        # Raised `from None`: an httpx error holds the request, and the request holds the key.
        words = self._clean(str(failure) or type(failure).__name__)
        if isinstance(failure, httpx.ConnectError | httpx.ConnectTimeout):
            return RequestError("unreachable", words)
        if isinstance(failure, httpx.TimeoutException):
            return RequestError("timeout", f"no answer for {self._timeout:g} s")
        where = "the stream was cut" if begun else "the connection broke before any answer"
        return RequestError("cut", f"{where}: {words}")

    def _http_error(self, response: httpx.Response) -> RequestError:
        words = self._clean(error_words(response.content))
        message = f"HTTP {response.status_code} {response.reason_phrase}: {words}"
        return RequestError("http", message, response.status_code)

    def _clean(self, words: str) -> str:
        if self._key:  # a server may repeat the key it was sent
            words = words.replace(self._key, "[API key]")
        words = " ".join(words.split())
        return words if len(words) <= SHOWN else words[:SHOWN] + "..."


def base_url(url: str) -> str:
    """Return a server's base URL without a trailing /v1; WlgenError where it is not one or holds a secret."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise error("--url", expected="http://HOST:PORT or https://HOST", found=repr(url))
    if parts.username or parts.password or parts.query:
        found = "a URL with a user, a password or a query"  # the URL itself may hold a secret
        raise error("--url", expected="no secret in the URL", found=found, remedy=f"Set {KEY_VARIABLE}.")
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc}{path}"


def unusable(
    place: str, failure: RequestError, *, expected: str = "an answer", remedy: str = ""
) -> WlgenError:
    """Return the error a person reads for a request that did not end well; remedy: for an HTTP error."""
    remedies: dict[str, str] = {
        "unreachable": "Start the server, or correct --url.",
        "timeout": "Give it more time with --timeout, or look at the server's log.",
        "cut": "The server broke the connection: it may have restarted or run out of memory; see its log.",
        "garbled": "Is --url the address of an OpenAI-compatible server?",
    }
    remedy = remedies.get(failure.trouble) or remedy or "See the server's log."
    if failure.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        remedy = f"Set the API key in the environment variable {KEY_VARIABLE}."
    return error(place, expected=expected, found=failure.message, remedy=remedy)
