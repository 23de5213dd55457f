"""What a live server says of one request, validated: in a whole answer or a stream's lines, of any engine.

A value that does not fit is never taken for another: a count of "12", -1, 1e300 or [12] makes the answer
`garbled`, and the message names its place (`usage.prompt_tokens`). Absent or null means that the server did
not say: None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import orjson

from wlgen.readers._door import Part
from wlgen.readers._usage import counts

Trouble: TypeAlias = Literal["unreachable", "timeout", "http", "cut", "garbled"]
_SHOWN = (
    4096  # characters of a value that does not fit: more than a message shows, so that a key is cut out whole
)
_MOST = 1 << 53  # JSON readers disagree about larger numbers, so none counts as a count
_COUNTS = (
    "prompt_tokens",
    "completion_tokens",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "prompt_cache_hit_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
_DETAILS = ("prompt_tokens_details", "input_tokens_details")


class RequestError(Exception):
    """A failed request. trouble: the kind of failure. status: the status of an HTTP error, else 0."""

    def __init__(self, trouble: Trouble, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.trouble = trouble
        self.message = message
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the server said of one request. None: it did not say. Times are seconds since the send."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    prompt_ids: tuple[int, ...] | None = None
    finish_reason: str | None = None
    first_token: float | None = None
    end: float = 0.0


class Stream:
    """Takes a stream's lines one by one, and keeps what they say."""

    def __init__(self) -> None:
        self.done = False
        self.failure = ""
        self.first_token: float | None = None
        self._events = 0
        self._said: dict[str, Any] = {}

    def take(self, line: bytes, now: float) -> None:
        """Take one line of the stream at `now` seconds from the send."""
        content = line[5:].strip()
        if not line.startswith(b"data:") or self.done:
            return
        if content == b"[DONE]":
            self.done = True
            return
        self._events += 1
        place = f"event {self._events}"
        event = json_object(content, place)
        if is_error(event):
            self.failure = self.failure or error_words(content)
            return
        choice = _choice(event, place)
        delta = _object(choice, "delta", place)
        if self.first_token is None and (choice.get("text") or delta.get("content")):
            self.first_token = now
        if (usage := _object(event, "usage", place)) != {}:
            self._said["usage"] = usage
        if choice.get("finish_reason"):
            self._said["choices"] = [{"finish_reason": choice["finish_reason"]}]

    def reply(self, end: float) -> Reply:
        """Return the reply of a stream that ended `end` seconds from the send."""
        return read_answer(self._said, end, self.first_token)


def read_answer(answer: Mapping[str, Any], end: float, first_token: float | None = None) -> Reply:
    """Return the reply of an answer that was complete `end` seconds after the send, or raise RequestError."""
    usage = _object(answer, "usage")
    _check_counts(usage)
    told, choice = counts(Part(usage)), _choice(answer)
    ids = token_ids(answer, "prompt_token_ids") or token_ids(choice, "prompt_token_ids", "choices[0]")
    reason = choice.get("finish_reason")
    return Reply(
        prompt_tokens=told.prompt,
        cached_tokens=told.cached,
        output_tokens=told.output,
        prompt_ids=ids,
        finish_reason=reason if isinstance(reason, str) else None,
        first_token=first_token,
        end=end,
    )


def whole_answer(content: bytes) -> dict[str, Any]:
    """Return a generating route's answer; RequestError if it is an error or has no choices."""
    answer = json_object(content)
    if is_error(answer):  # some servers send an error with status 200
        raise RequestError("http", f"an error in an answer of status 200: {error_words(content)}")
    _choice(answer)
    if not answer.get("choices"):
        raise _garbled("choices", "a list with one answer", answer.get("choices"))
    return answer


def json_object(content: bytes, place: str = "the answer") -> dict[str, Any]:
    """Return the JSON object of an answer; RequestError if it is something else."""
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        # orjson also refuses NaN, lone surrogates, bytes that are not UTF-8 and 1024 levels of nesting.
        begin = repr(content[:_SHOWN].decode(errors="replace"))
        raise RequestError("garbled", f"{place}: no JSON, {len(content)} bytes that begin {begin}") from None
    if not isinstance(found, dict):
        raise _garbled(place, "a JSON object", found)
    return found


def listed(page: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects that a page lists, such as models; RequestError if it lists none."""
    found = page.get(key)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise _garbled(key, "a list of objects", found)
    return found


def whole_number(value: object, place: str) -> int | None:
    """Return a count or id, None for null; RequestError for anything else: "5", -1, 2.5, true, 1e300."""
    if value is None:
        return None
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if type(number) is not int or not 0 <= number <= _MOST:
        raise _garbled(place, f"a whole number from 0 to {_MOST}", value)
    return number


def token_ids(answer: Mapping[str, Any], key: str, place: str = "") -> tuple[int, ...] | None:
    """Return the token ids that an answer lists, None for none; RequestError for anything else."""
    found = answer.get(key)
    if found is None or found == []:
        return None
    if not isinstance(found, list) or not all(type(i) is int and 0 <= i < 1 << 32 for i in found):
        raise _garbled(f"{place} {key}".strip(), "a list of token ids", found)
    return tuple(found)


def is_error(answer: Mapping[str, Any]) -> bool:
    """Return whether an answer says that something failed, whatever its HTTP status."""
    return answer.get("error") not in (None, False, "") or answer.get("object") == "error"


def error_words(content: bytes) -> str:
    """Return an error body's message, in either engine's shape, or the body's text: foreign words."""
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return content[: 1 << 16].decode(errors="replace")
    if isinstance(found, dict):
        inner = found.get("error", found)
        inner = inner.get("message", inner) if isinstance(inner, dict) else inner
        return str(inner)
    return str(found)


def _check_counts(usage: Mapping[str, Any]) -> None:
    for key in _COUNTS:
        whole_number(usage.get(key), f"usage.{key}")
    for key in _DETAILS:
        whole_number(_object(usage, key, "usage").get("cached_tokens"), f"usage.{key}.cached_tokens")


def _choice(answer: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Return the first choice, or {} if there is none, as in the last event of a stream."""
    choices = answer.get("choices")
    if choices is None or choices == []:
        return {}
    if not isinstance(choices, list) or not isinstance(choices[0], dict):
        raise _garbled(f"{place} choices".strip(), "a list of objects", choices)
    return choices[0]


def _object(answer: Mapping[str, Any], key: str, place: str = "") -> dict[str, Any]:
    found = answer.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _garbled(f"{place} {key}".strip(), "an object", found)
    return found


def _garbled(place: str, expected: str, found: object) -> RequestError:
    shown = repr(found)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
    return RequestError("garbled", f"{place}: {shown}, which is not {expected}")
