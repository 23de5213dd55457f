"""Calls to a live server: one class that knows each engine's own way of asking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from wlgen.encodings import Message
from wlgen.engines import Engine, every_engine
from wlgen.errors import WlgenError, error
from wlgen.server.door import KEY_VARIABLE, Door
from wlgen.server.replies import (
    Reply,
    RequestError,
    Stream,
    json_object,
    listed,
    read_answer,
    token_ids,
    whole_answer,
    whole_number,
)

_BUSY_PAUSE = 0.5  # seconds between tries to flush a server that is busy


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPrompt:
    """What to send: a conversation, or, to a completions route, a text or token ids.

    add_special_tokens: whether the server must add the tokenizer's BOS or EOS to a text (vLLM can be told).
    """

    messages: tuple[Message, ...] = ()
    text: str | None = None
    ids: Sequence[int] | None = None
    template_kwargs: Mapping[str, object] = field(default_factory=dict)
    add_special_tokens: bool = False


class Server:
    """A live server. Use it as an async context; its calls raise RequestError."""

    def __init__(
        self, url: str, *, engine: Engine, model: str = "", api_key: str | None = None, timeout: float = 600.0
    ) -> None:
        self.url = base_url(url)
        self.engine = engine
        self.model = model
        self.timeout = timeout
        self._door = Door(self.url, api_key=api_key, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._door.__aexit__(kind, raised, trace)

    async def get(self, path: str) -> dict[str, Any] | None:
        """Return the JSON object of a page, None if the server has no such page."""
        content = await self.page(path)
        if content is None:
            return None
        with self._read(path):
            return json_object(content)

    async def page(self, path: str) -> bytes | None:
        """Return the bytes of a page, None if the server has no such page."""
        try:
            return (await self._door.call("GET", path)).content
        except RequestError as failure:
            if failure.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
                return None
            raise

    @property
    def counted(self) -> Sequence[Server]:
        """The servers whose counters tell what this server or pair computed."""
        return (self,)

    def pinned(self, dp_rank: int | None) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the body fields and headers that pin a request to a rank; empty for None."""
        return self.engine.pinned(dp_rank)

    async def detect(self) -> Engine | None:
        """Return the engine that answers, known by a page that only it has; None if no such page answers."""
        for known in every_engine():
            for path in known.own_pages:
                if await self.get(path) is not None:
                    return known
        return None

    async def models(self) -> list[str]:
        """Return the ids of the served models; RequestError if a terminal may not show one of them."""
        names = [card.get("id") for card in await self._cards()]
        for name in names:
            if not isinstance(name, str) or not name or self._door.clean(name) != name:
                message = f"/v1/models data[].id: {name!r}, which is no model's name"
                raise RequestError("garbled", self._door.clean(message))
        return [str(name) for name in names]

    async def max_model_len(self) -> int | None:
        """Return the most tokens that a prompt and its output may have, None if the server does not say."""
        found = [card.get("max_model_len") for card in await self._cards() if card.get("id") == self.model]
        with self._read("/v1/models"):
            return whole_number(found[0], "max_model_len") if found else None

    async def _cards(self) -> list[dict[str, Any]]:
        page = await self.get("/v1/models")
        with self._read("/v1/models"):
            return [] if page is None else listed(page, "data")

    async def flush(self, patience: float) -> None:
        """Empty the prefix cache of every rank; try again while the server is busy, for `patience` seconds.

        A file of engines/ says what a busy engine answers.
        """
        deadline = time.monotonic() + patience
        while not await self._flush_once(max(0.0, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                message = f"busy for {patience:g} s: requests of others wait or run"
                raise RequestError("http", message, HTTPStatus.BAD_REQUEST)
            await asyncio.sleep(_BUSY_PAUSE)

    async def tokenize(self, prompt: AskedPrompt) -> tuple[int, ...] | None:
        """Return the ids to which the server encodes a conversation; None if it cannot say."""
        body: dict[str, Any] = {"model": self.model, "messages": [m._asdict() for m in prompt.messages]}
        if prompt.template_kwargs:
            body["chat_template_kwargs"] = dict(prompt.template_kwargs)
        try:
            content = (await self._door.call("POST", "/tokenize", body)).content
        except RequestError as failure:
            if failure.trouble == "http":
                return None
            raise
        with self._read("/tokenize"):
            return token_ids(json_object(content), "tokens")

    async def page_size(self) -> int | None:
        """Return the server's page size in tokens (vLLM: block size); None if its pages do not say."""
        for path in self.engine.page_size_pages:
            try:
                page = await self.page(path)
            except RequestError:
                continue
            found = None if page is None else self.engine.read_page_size(page)
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
        seconds: float | None = None,
    ) -> Reply:
        """Send one request, pinned to dp_rank if given, and return what the server says of it.

        seconds: a bound below the timeout for an answer that is not streamed.
        """
        path, body = self._request(prompt, max_tokens, return_ids=return_ids)
        pin, headers = self.pinned(dp_rank)
        body |= pin
        if name:
            headers["X-Request-Id"] = name
        started = time.monotonic()
        if not stream:
            content = (await self._door.call("POST", path, body, headers, seconds=seconds)).content
            with self._read(path):
                return read_answer(whole_answer(content), time.monotonic() - started)
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
        """Send ids, for one output token, to the engine's page that reports cached tokens under any flags."""
        page, body_of = self.engine.native_page, self.engine.native_body
        if page is None or body_of is None:
            raise RequestError("http", f"{self.engine.title} has no page of its own that takes token ids")
        started = time.monotonic()
        content = (await self._door.call("POST", page, body_of(ids, dp_rank))).content
        with self._read(page):
            answer = json_object(content)
            return read_answer({"usage": answer.get("meta_info")}, time.monotonic() - started)

    async def _streamed(
        self, path: str, body: dict[str, Any], headers: dict[str, str], started: float
    ) -> Reply:
        seen = Stream()
        with self._read(path):
            await self._door.stream(
                path, body, headers, lambda line: seen.take(line, time.monotonic() - started)
            )
            if seen.failure:
                raise RequestError("http", seen.failure, HTTPStatus.INTERNAL_SERVER_ERROR)
            if not seen.done:
                raise RequestError("cut", "the stream ended before its last event, [DONE]")
            return seen.reply(time.monotonic() - started)

    async def _flush_once(self, patience: float) -> bool:
        try:
            page = self.engine.flush_page(min(patience, self.timeout / 2))
            answered = await self._door.call("POST", page)
            status, content = answered.status, answered.content
        except RequestError as failure:
            flushed = self.engine.flushed(failure.status, b"")
            if flushed is None:
                raise
            return flushed
        return self.engine.flushed(status, content) is not False

    @contextmanager
    def _read(self, path: str) -> Iterator[None]:
        """Add the page's path to a RequestError about its answer, and make its words printable."""
        try:
            yield
        except RequestError as failure:
            words = self._door.clean(failure.message)
            shown = words if failure.trouble != "garbled" or words.startswith(path) else f"{path} {words}"
            raise RequestError(failure.trouble, shown, failure.status) from None


def base_url(url: str) -> str:
    """Return a server's base URL without a trailing /v1; WlgenError if it is no URL or holds a secret."""
    expected = "http://HOST:PORT or https://HOST"
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port above 65535, or half an IPv6 address
        raise error(
            "--url", expected=expected, found="an address without a host or with a wrong port"
        ) from None
    if not known or not url.isprintable():
        raise error("--url", expected=expected, found=repr(url))
    if parts.username or parts.password or parts.query:
        found = "a URL with a user, a password or a query"  # the URL itself may hold a secret
        raise error("--url", expected="no secret in the URL", found=found, remedy=f"Set {KEY_VARIABLE}.")
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc}{path}"


def unusable(
    place: str, failure: RequestError, *, expected: str = "an answer", remedy: str = ""
) -> WlgenError:
    """Return the error that a person reads for a failed request; remedy: what to do about an HTTP error."""
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


def together(failures: Sequence[WlgenError]) -> WlgenError:
    """Return the first failure and the number of others: a dead server makes every rank fail alike."""
    first = failures[0].problems[0]
    more = f" (and {len(failures) - 1} more requests)" if failures[1:] else ""
    remedy = f"{first.remedy} Then run it again; --resume goes on where it stopped."
    return error(first.place, expected=first.expected, found=first.found + more, remedy=remedy)
