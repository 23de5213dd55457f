"""The one door for a server's answers: it returns a whole answer within limits of time and size, or raises.

A server may be slow, broken, or no LLM server at all. The door limits the time of the whole answer, so that
one byte a second or a stream of pings also ends. It limits the size before and after decompression, so that
16 KB that inflate to 16 GB end at LARGEST bytes. And it makes foreign words safe for a terminal, and removes
the API key from them.
"""

from __future__ import annotations

import asyncio
import base64
import html
import json
import re
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, quote_plus, unquote, unquote_plus

import httpx
import orjson

from wlgen.errors import error, printable
from wlgen.server.replies import RequestError, error_words

KEY_VARIABLE = "WLGEN_API_KEY"
LARGEST = 1 << 25  # bytes of one answer; the ids of a prompt of 2**20 tokens need a quarter of these 32 MiB
_CONNECT_SECONDS = 10.0
_JSON = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_ENCODINGS = ("", "identity", "gzip", "x-gzip", "deflate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A whole answer: its HTTP status and its bytes, decompressed."""

    status: int
    content: bytes


class Door:
    """The way to one server. It uses no proxy, redirect or .netrc: requests go to `url` and nowhere else.

    The API key travels only in a header. Use the door as an async context.
    """

    def __init__(self, url: str, *, api_key: str | None, timeout: float) -> None:
        self.timeout = timeout
        self._key = checked_key(api_key)
        self._client = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(timeout, connect=_CONNECT_SECONDS),
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        seconds: float | None = None,
    ) -> Answered:
        """Return a whole answer of status 200; RequestError for everything else.

        seconds: a limit for this answer, below the door's timeout.
        """
        async with self._opened(method, path, body, headers, seconds) as answer:
            content = b"".join([part async for part in answer.parts()])
        return Answered(status=answer.status, content=content)

    async def stream(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str], take: Callable[[bytes], None]
    ) -> None:
        """Give each line of a streamed answer to `take`, without its line end; RequestError as in `call`."""
        rest = b""
        async with self._opened("POST", path, body, headers, None) as answer:
            async for part in answer.parts():
                # Only \n ends a line; str.splitlines would also cut a text at U+2028.
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    take(line.rstrip(b"\r"))
        take(rest)

    def clean(self, words: str) -> str:
        """Return foreign words as one printable line of at most 300 characters, without the API key."""
        return printable(without_key(words, self._key))

    @asynccontextmanager
    async def _opened(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
        seconds: float | None,
    ) -> AsyncIterator[_Opened]:
        limit = self.timeout if seconds is None else min(seconds, self.timeout)
        content = None if body is None else orjson.dumps(body)
        begun = False
        try:
            async with (
                asyncio.timeout(limit),
                self._client.stream(
                    method, path, content=content, headers=_JSON | dict(headers or {})
                ) as response,
            ):
                begun = True
                answer = _Opened(response)
                if response.status_code != HTTPStatus.OK:
                    raise await self._refused(answer, response)
                yield answer
        # Raised `from None`: an httpx error holds the request, and the request holds the key.
        except TimeoutError:
            raise RequestError("timeout", f"no whole answer within {limit:g} s") from None
        except (httpx.ConnectError, httpx.ConnectTimeout) as failure:
            raise RequestError("unreachable", f"no server answers: {self._said(failure)}") from None
        except httpx.TimeoutException:
            raise RequestError("timeout", f"no answer for {limit:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as failure:
            where = "the answer was cut" if begun else "the connection broke before any answer"
            raise RequestError("cut", f"{where}: {self._said(failure)}") from None
        except RequestError as failure:
            raise RequestError(failure.trouble, self.clean(failure.message), failure.status) from None

    async def _refused(self, answer: _Opened, response: httpx.Response) -> RequestError:
        content = b"".join([part async for part in answer.parts()])
        words = error_words(content)
        if response.is_redirect:
            words = f"redirect to {response.headers.get('location', 'nowhere')}, which is not followed"
        known = HTTPStatus(answer.status).phrase if answer.status in set(HTTPStatus) else ""
        return RequestError("http", f"HTTP {answer.status} {known}: {words}", answer.status)

    def _said(self, failure: Exception) -> str:
        return self.clean(str(failure) or type(failure).__name__)


class _Opened:
    """An answer whose headers have come."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self._response = response

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the decompressed parts; RequestError if they are too large or wrongly encoded."""
        encoding = self._response.headers.get("content-encoding", "").strip().lower()
        if encoding not in _ENCODINGS:
            raise RequestError("garbled", f"an answer encoded as {encoding!r}, which was not asked for")
        inflated = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding not in ("", "identity") else None
        came = given = 0
        async for raw in self._response.aiter_raw():
            came += len(raw)
            part = raw if inflated is None else _inflate(inflated, raw)
            given += len(part)
            if max(came, given) > LARGEST or (inflated is not None and inflated.unconsumed_tail):
                raise RequestError("garbled", f"an answer of more than {LARGEST >> 20} MiB")
            yield part
        if inflated is not None and came and not inflated.eof:
            raise RequestError("cut", "the compressed answer ends before its end")


def _inflate(inflated: zlib._Decompress, raw: bytes) -> bytes:
    try:
        return inflated.decompress(raw, LARGEST)
    except zlib.error as failure:
        raise RequestError("garbled", f"an answer that cannot be decompressed: {failure}") from None


def checked_key(key: str | None) -> str | None:
    """Return the key; WlgenError, which does not show the key, if no HTTP header may hold it."""
    if key and not (key.isascii() and key.isprintable() and key == key.strip()):
        found = "a space at an end, a line end, or a character that is not ASCII"
        raise error(KEY_VARIABLE, expected="a key that an HTTP header may hold", found=found)
    return key or None


def without_key(words: str, key: str | None) -> str:
    """Return words without the key. If a coded spelling of the key is in them, withhold all of them.

    A server may repeat the key plainly, in quotes, in a URL (%2B), in HTML, in JSON, as repr, in
    hexadecimal, or in base64, alone or behind `Bearer `.
    """
    if not key:
        return words
    plain = {key, quote(key), quote(key, safe=""), quote_plus(key), html.escape(key)}
    plain |= {repr(key)[1:-1], json.dumps(key)[1:-1]}
    for spelling in sorted(plain, key=len, reverse=True):
        words = words.replace(spelling, "[API key]")
    joined = "".join(words.split())
    hidden = any(key in reading for reading in _readings(joined)) or key.encode().hex() in joined.lower()
    hidden = hidden or any(code in joined for code in _base64_cores(key.encode()))
    return "[words withheld: they hold the API key]" if hidden else words


def _base64_cores(key: bytes) -> set[str]:
    """Return the parts of the key's base64 that are the same whatever stands beside the key.

    Base64 codes three bytes as four characters, so a key has three spellings, by the position at which it
    begins: behind one other byte, `secret` is coded as `.se|cre|t..`, and the code of `cre` is always in it.
    """
    cores = set()
    for lead in range(3):
        held = b"\0" * lead + key
        first, last = (4 if lead else 0), len(held) // 3 * 4
        for encoded in (base64.b64encode(held).decode(), base64.urlsafe_b64encode(held).decode()):
            cores.add(encoded[first:last])
    return cores - {""}


def _readings(joined: str) -> list[str]:
    """Return words, joined without spaces, and what they are with other spellings decoded."""
    unescaped = _ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)), joined)
    once = [unquote(joined), unquote_plus(joined), html.unescape(joined), unescaped, joined.replace("\\", "")]
    return [joined, *once, *map(unquote, once), *map(html.unescape, once)]
