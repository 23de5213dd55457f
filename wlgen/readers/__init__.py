"""Readers: one short file for each client; pure, bytes in, results out, streaming.

A reader is one module here with `read(source) -> Iterator[Result | Problem]`, and `claims(opening) -> bool`
if a file's first bytes safely tell its client. Each record passes the door of _door.py: a value that does not
fit is noted in the record's result, and a record that cannot be read, or names no row, becomes a Problem. One
bad record never costs another. BLIND says in words why the client may have kept no cached tokens although the
server reported them; "" if it keeps all that it gets.

What other rooms import of it, beside the names below:
_door   the one door for values that others wrote
_usage  the server's counts under each name that engines and clients give them
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from wlgen.errors import Problem


class Garbled(NamedTuple):
    """A value of a record that is not what its key asks for: "usage.prompt_tokens", "a count", "-1"."""

    key: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a client recorded of one request. None means NOT_OBSERVED: never 0, never a pass.

    place: "file:line" or "file[index]", for messages.
    id, index, text_sha256: what tells its row: the row's id; its place among the rows that were sent; the
    sha256 of the last message's text as sent. At least one of them is known.
    attempts: how often it was sent; more than 1 if the record shows a retry.
    dp_rank: the rank that served it. prompt_tokens, cached_tokens, output_tokens: the server's counts.
    start, first_token, end: seconds on the client's own clock. A client that records only durations has
    start None, and first_token and end count from the request's own start.
    run: the number of its run in the file, from 0: bench_serving appends a line for each run, and guidellm
    has a benchmark for each rate. garbled: values of the record that did not fit; no other field has them.
    """

    place: str
    id: str | None = None
    index: int | None = None
    text_sha256: str | None = None
    success: bool = True
    error: str = ""
    attempts: int = 1
    dp_rank: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    start: float | None = None
    first_token: float | None = None
    end: float | None = None
    finish_reason: str | None = None
    run: int = 0
    garbled: tuple[Garbled, ...] = ()

    @property
    def ttft(self) -> float | None:
        """Seconds to the first token."""
        return None if self.first_token is None else self.first_token - (self.start or 0.0)

    @property
    def latency(self) -> float | None:
        """Seconds to the end of the response."""
        return None if self.end is None else self.end - (self.start or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A result file as a reader sees it.

    name: for messages. content: its bytes, read forward once. beside: the path of another file of the same
    run, given relative to this one, or None where it is not there (AISBench keeps its times in a database).
    """

    name: str
    content: BinaryIO
    beside: Callable[[str], Path | None] = lambda _: None


class Reader(Protocol):
    """What a module of this folder offers."""

    BLIND: str

    def read(self, source: Source) -> Iterator[Result | Problem]:
        """Yield the results of one file in file order, streaming."""
        ...

    def claims(self, opening: bytes) -> bool:
        """Return whether a file that opens with these bytes is surely of this client."""
        ...
