"""The one door for records of result files: each value is what its key asks for, or is noted as garbled.

A client, a bad disk or a person may have left "12", -1, 1e300, NaN or [12] where a count belongs. The door
takes none of these for a count, and puts no other count in its place. The record keeps its other values, and
the audit makes a finding of each that did not fit: "usage.prompt_tokens: expected a count, found -1". A
missing value and null are not garbled: they mean that nothing was observed.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson

from wlgen.errors import Problem, printable
from wlgen.readers import Garbled, Result

MOST = 1 << 53  # a count above it is none: JSON readers disagree about larger whole numbers
LATEST = 1 << 40  # seconds, 34,865 years: milliseconds since 1970 (1.7e12) are above it, seconds far below
ROUNDING = 1e-3  # seconds by which times that a client rounded may stand in the wrong order
_FOUND = 60  # characters of a value that does not fit
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Part:
    """An object of a record, at `path` inside it: "usage.prompt_tokens_details". Absent is an empty one.

    garbled: what did not fit, of the whole record; its parts share the list.
    """

    __slots__ = ("_held", "_path", "garbled")

    def __init__(self, held: object, path: str = "", garbled: list[Garbled] | None = None) -> None:
        self.garbled: list[Garbled] = [] if garbled is None else garbled
        self._path = path
        if held is not None and not isinstance(held, dict):
            self._note("", "an object", held)
        self._held: dict[str, Any] = held if isinstance(held, dict) else {}

    def __contains__(self, key: str) -> bool:
        return key in self._held

    @property
    def keys(self) -> str:
        """The first six keys, for messages."""
        return printable(f"an object with the keys {', '.join(list(self._held)[:6])}")

    def get(self, key: str) -> Any:
        """Return a value unseen, for a function that takes any value; None where it is absent."""
        return self._held.get(key)

    def part(self, key: str) -> Part:
        """Return the object of a key."""
        return Part(self._held.get(key), self._named(key), self.garbled)

    def items(self, key: str) -> list[Any]:
        """Return the list of a key, empty where it is absent."""
        return self._of(key, list, "a list") or []

    def text(self, key: str) -> str | None:
        """Return the text of a key as it stands: `admitted` makes it fit for a terminal."""
        found: str | None = self._of(key, str, "a text")
        return found

    def sha256(self, key: str) -> str | None:
        """Return a hash of 64 hexadecimal digits."""
        found = self.text(key)
        if found is None or _SHA256.fullmatch(found.lower()):
            return found and found.lower()
        self._note(key, "a sha256 of 64 hexadecimal digits", found)
        return None

    def count(self, key: str) -> int | None:
        """Return a whole number from 0 to 2^53; 9.0 is 9."""
        value = self._held.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is None or (type(value) is int and 0 <= value <= MOST):
            return value
        self._note(key, "a count, a whole number from 0 to 2^53", value)
        return None

    def seconds(self, key: str, scale: float = 1.0) -> float | None:
        """Return a time times `scale`, in seconds from 0 to 2^40."""
        return self.time(self._held.get(key), key, scale)

    def time(self, value: object, key: str, scale: float = 1.0) -> float | None:
        """Return a value that stands below `key`, such as the first of its list, as `seconds` does."""
        if value is None:
            return None
        # Compared before it is scaled: an int of 400 digits has no float.
        if isinstance(value, (int, float)) and type(value) is not bool and 0 <= value <= LATEST / scale:
            return value * scale
        self._note(key, "a time in seconds from 0 to 2^40", value)
        return None

    def json(self, key: str) -> Any:
        """Return what the JSON text of a key holds, or the value itself where it is no text."""
        value = self._held.get(key)
        try:
            return decoded(value.encode()) if isinstance(value, str) else value
        except ValueError:
            self._note(key, "a JSON text", value)
            return None

    def error(self, key: str) -> str:
        """Return the words of an error: a text, or an object's message or type. "" where there is none."""
        return error_words(self._held.get(key))

    def _of(self, key: str, kind: type, expected: str) -> Any:
        value = self._held.get(key)
        if value is None or isinstance(value, kind):
            return value
        self._note(key, expected, value)
        return None

    def _note(self, key: str, expected: str, value: object) -> None:
        self.garbled.append(Garbled(self._named(key), expected, shown(value)))

    def _named(self, key: str) -> str:
        return ".".join(filter(None, (self._path, key)))


def admitted(result: Result, record: Part) -> Result | Problem:
    """Return a record's result with what did not fit of the record, and with words fit for a terminal.

    A result that names no row is a Problem. A request that ended before its first token, or got that before
    it started, has a start alone.
    """
    garbled = list(dict.fromkeys(record.garbled))
    if result.id is None and result.index is None and result.text_sha256 is None:
        found = "; ".join(f"{key or 'record'}: {found}" for key, _, found in garbled) or record.keys
        expected = "a record with its row's id, or its index, or the text that was sent"
        said = f"garbled: {found}" if garbled else found
        return Problem(place=result.place, expected=expected, found=printable(said))
    start, first, end = (result.start or 0.0), result.first_token, result.end
    known = [time for time in (start, first, end) if time is not None]
    if any(later - earlier < -ROUNDING for earlier, later in pairwise(known)):
        found = ", ".join(f"{time:.6g}" for time in known)
        garbled.append(Garbled("times", "start, first token and end in this order", found))
        first = end = None
    return replace(
        result,
        place=printable(result.place),
        id=result.id and printable(result.id),
        error=printable(result.error),
        finish_reason=result.finish_reason and printable(result.finish_reason),
        first_token=first,
        end=end,
        garbled=tuple(garbled),
    )


def decoded(text: bytes) -> Any:
    """Return a JSON value, or ValueError; NaN and Infinity too, which Python writes and orjson refuses."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        if b"NaN" not in text and b"Infinity" not in text:
            raise
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def error_words(error: object) -> str:
    """Return an error's words: of a text itself, of an object its message or type."""
    if isinstance(error, dict):
        named = (error.get(key) for key in ("message", "error_msg", "type", "error_type"))
        error = next((words for words in named if words and isinstance(words, str)), error)
    return error if isinstance(error, str) else shown(error) if error else ""


def shown(value: object) -> str:
    """Return a value that does not fit as a few printable characters, however large or nested it is."""
    if isinstance(value, int) and abs(value) > MOST:
        return f"a whole number of {value.bit_length()} bits"
    if isinstance(value, (dict, list)):
        try:
            return printable(json.dumps(value, ensure_ascii=False), _FOUND)
        except (ValueError, TypeError, RecursionError):
            return f"a {type(value).__name__}"
    if isinstance(value, str):
        return f'"{printable(value, _FOUND)}"'
    return printable(repr(value), _FOUND) if isinstance(value, (int, float)) else f"a {type(value).__name__}"
