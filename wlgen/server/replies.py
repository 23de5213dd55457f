"""What a live server says of one request: read from a whole answer or from a stream's lines, both engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import orjson

from wlgen.readers._usage import counts

Trouble: TypeAlias = Literal["unreachable", "timeout", "http", "cut", "garbled"]
SHOWN = 300  # characters of a server's words that a message repeats


class RequestError(Exception):
    """A request that did not end well. trouble: its kind. status: of an HTTP error, else 0."""

    def __init__(self, trouble: Trouble, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.trouble = trouble
        self.message = message
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the server said of one request. None means it did not say. Times are seconds from the send."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    prompt_ids: tuple[int, ...] | None = None
    response_id: str | None = None
    finish_reason: str | None = None
    first_token: float | None = None
    end: float = 0.0


class Stream:
    """Takes a stream's lines in turn and keeps what they say."""

    def __init__(self) -> None:
        self.done = False
        self.failure = ""
        self.first_token: float | None = None
        self._said: dict[str, Any] = {}

    def take(self, line: str, now: float) -> None:
        """Take one line of the stream at `now` seconds from the send."""
        if not line.startswith("data:"):
            return
        content = line[5:].strip()
        if content == "[DONE]":
            self.done = True
            return
        event = json_object(content.encode())
        if "error" in event or event.get("object") == "error":
            self.failure = error_words(content.encode())
        choices = event.get("choices") or [{}]
        delta = choices[0].get("delta") or {}
        if self.first_token is None and (choices[0].get("text") or delta.get("content")):
            self.first_token = now
        self._said["id"] = event.get("id") or self._said.get("id")
        self._said["usage"] = event.get("usage") or self._said.get("usage")
        if choices[0].get("finish_reason"):
            self._said["choices"] = [{"finish_reason": choices[0]["finish_reason"]}]

    def reply(self, end: float) -> Reply:
        """Return the reply of a stream that ended `end` seconds from the send."""
        return read_answer(self._said, end, self.first_token)


def read_answer(answer: Mapping[str, Any], end: float, first_token: float | None = None) -> Reply:
    """Return the reply of a whole answer that came `end` seconds after the send."""
    told = counts(answer.get("usage"))
    choice = (answer.get("choices") or [{}])[0]
    ids = answer.get("prompt_token_ids") or choice.get("prompt_token_ids")
    return Reply(
        prompt_tokens=told.prompt,
        cached_tokens=told.cached,
        output_tokens=told.output,
        prompt_ids=tuple(ids) if ids else None,
        response_id=answer.get("id"),
        finish_reason=choice.get("finish_reason"),
        first_token=first_token,
        end=end,
    )


def json_object(content: bytes) -> dict[str, Any]:
    """Return the JSON object of an answer; RequestError where it is none."""
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        # What it is instead is not shown: a server may repeat the key it was sent.
        raise RequestError("garbled", f"{len(content)} bytes that are no JSON object")
    return found


def error_words(content: bytes) -> str:
    """Return an error body's own message, in either engine's shape, or its text."""
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return content[: 4 * SHOWN].decode(errors="replace")
    if isinstance(found, dict):
        inner = found.get("error", found)
        inner = inner.get("message", inner) if isinstance(inner, dict) else inner
        return str(inner)
    return str(found)
