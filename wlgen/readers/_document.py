"""A JSON document read piece by piece: a guidellm report repeats every prompt and can be gigabytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson

from wlgen.errors import Problem
from wlgen.readers._door import Part, decoded

CHUNK = 1 << 20
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRING = re.compile(_TEXT, re.DOTALL)
# Matched, never searched for: a search would step into a string whose end is not read yet.
_NESTING = re.compile(rb'[^"\[\]{}]*+(' + _TEXT + rb"|[\[\]{}])", re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\]}]*+")


class Cut(Exception):  # noqa: N818 (it is the file that is cut; readers turn it into a Problem)
    """The document ends, or stops being JSON, before its value does."""


class Document:
    """A forward-only view of one JSON document, or of several one after another.

    Stand at a value, then call exactly one of `members`, `items`, `value` or `skip`; the first two yield
    while the caller consumes each value the same way. Raises Cut at the end of a cut file.
    """

    def __init__(self, content: BinaryIO) -> None:
        self._content = content
        self._buffer = b""
        self._at = 0

    def more(self) -> bool:
        """Return whether another value follows."""
        return self._peek(required=False) != b""

    def members(self) -> Iterator[str]:
        """Yield the keys of the object here; after each, consume its value."""
        for _ in self._parts(b"{", b"}"):
            name = self._match(_STRING)
            try:
                key = orjson.loads(name)
            except orjson.JSONDecodeError as failure:
                raise Cut(f"a key that is no JSON string, {name[:20]!r}") from failure
            self._expect(b":")
            yield key

    def items(self) -> Iterator[int]:
        """Yield the indices of the array here; after each, consume its value."""
        yield from self._parts(b"[", b"]")

    def value(self) -> Any:
        """Return the value here, decoded; ValueError, past it, where its brackets close but it is no JSON."""
        raw = self._raw()
        try:
            return decoded(raw)
        except ValueError as failure:
            if not self.more():  # "[1, nul": a value that ends with its file is cut, not garbled
                raise Cut(str(failure)) from failure
            raise

    def record(self, place: str) -> Part | Problem:
        """Return the record here, or the problem that stands there: the values after it are still read."""
        try:
            found = self.value()
        except ValueError as failure:
            return Problem(place=place, expected="a whole JSON object", found=f"garbled: {failure}")
        if isinstance(found, dict):
            return Part(found)
        said = f"garbled: a value of type {type(found).__name__}"
        return Problem(place=place, expected="a JSON object", found=said)

    def skip(self) -> None:
        """Pass over the value here."""
        self._raw()

    def is_a(self, opening: bytes) -> bool:
        """Return whether the value here opens with one of these bytes: b'{' an object, b'[' an array."""
        return self._peek() in opening

    def _parts(self, opening: bytes, closing: bytes) -> Iterator[int]:
        self._expect(opening)
        index = 0
        while self._peek() != closing:
            if index:
                self._expect(b",")
            yield index
            index += 1
        self._expect(closing)

    def _raw(self) -> bytes:
        first = self._peek()
        if first == b'"':
            return self._match(_STRING)
        if first not in b"[{":
            if not (scalar := self._scalar()):  # else a reader that passes over values would stand still here
                raise Cut(f"{first.decode(errors='replace')!r} instead of a value")
            return scalar
        pieces, depth = [], 0
        while True:
            found = _NESTING.match(self._buffer, self._at)
            if not found:
                pieces.append(self._pass_over_text())
                continue
            pieces.append(self._buffer[self._at : found.end()])
            self._at = found.end()
            depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(found[1], 0)
            if depth == 0:
                return b"".join(pieces)

    def _pass_over_text(self) -> bytes:
        # Nothing nests in the rest of the buffer, save perhaps a string whose end is not yet read.
        quote = self._buffer.find(b'"', self._at)
        end = len(self._buffer) if quote < 0 else quote
        piece = self._buffer[self._at : end]
        self._at = end
        self._fill()
        return piece

    def _scalar(self) -> bytes:
        while True:
            found = _SCALAR.match(self._buffer, self._at)
            if found and found.end() < len(self._buffer):
                self._at = found.end()
                return found.group()
            if not self._fill(required=False):
                found = _SCALAR.match(self._buffer, self._at)
                self._at = len(self._buffer)
                return found.group() if found else b""

    def _match(self, pattern: re.Pattern[bytes]) -> bytes:
        self._peek()
        while not (found := pattern.match(self._buffer, self._at)):
            if self._buffer[self._at : self._at + 1] != b'"':
                raise Cut(f"no string at {self._buffer[self._at : self._at + 20]!r}")
            self._fill()
        self._at = found.end()
        return found.group()

    def _expect(self, mark: bytes) -> None:
        if (found := self._peek()) != mark:
            raise Cut(f"{found.decode(errors='replace')!r} instead of {mark.decode()!r}")
        self._at += 1

    def _peek(self, *, required: bool = True) -> bytes:
        while True:
            while self._buffer[self._at : self._at + 1] in (b" ", b"\n", b"\r", b"\t"):
                self._at += 1
            if self._at < len(self._buffer):
                return self._buffer[self._at : self._at + 1]
            if not self._fill(required=required):
                return b""

    def _fill(self, *, required: bool = True) -> bool:
        # Read as much again as is waiting, so that a string of n bytes costs O(n) and not O(n * n).
        more = self._content.read(max(CHUNK, len(self._buffer) - self._at))
        if not more and required:
            raise Cut("the file ends before its JSON does")
        self._buffer = self._buffer[self._at :] + more
        self._at = 0
        return bool(more)
