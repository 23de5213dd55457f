"""Rows of named sets, recognised by their text, so that a 128K prompt costs a hash and not an encode pass."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import xxhash

from wlgen.encodings import Message
from wlgen.rehearse.settings import Ids
from wlgen.workload.rows import Row


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a row's ids are: a shared prefix in memory, then bytes of the temporary file."""

    prefix: int
    offset: int
    size: int


class KnownRows:
    """The ids of each row of the named sets, by a hash of its text.

    A shared prefix is in memory once, and the rest of each row is in an unnamed temporary file: memory grows
    with distinct prefixes and the number of rows, not with tokens. Use it as a context.
    """

    def __init__(self) -> None:
        self._places: dict[bytes, _Place] = {}
        self._names: dict[bytes, str] = {}
        self._texts: dict[str, bytes] = {}
        self._prefixes: list[Ids] = []
        self._prefix_index: dict[bytes, int] = {}
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)
        self._end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spool.close()

    def __len__(self) -> int:
        return len(self._places)

    def add(self, row: Row, ids: Ids) -> None:
        """Take a row with its prompt ids, shape (prompt_len,)."""
        tail = ids[row.shared_len :].tobytes()
        key = text_key(row.messages)
        self._places[key] = _Place(self._prefix(ids[: row.shared_len]), self._end, len(tail))
        self._names[key], self._texts[row.id] = row.id, key
        os.pwrite(self._spool.fileno(), tail, self._end)
        self._end += len(tail)

    def find(self, messages: Sequence[Message]) -> Ids | None:
        """Return the prompt ids of the row with exactly this text, or None."""
        return self._recall(text_key(messages))

    def name(self, messages: Sequence[Message]) -> str | None:
        """Return the id of the row with exactly this text, or None."""
        return self._names.get(text_key(messages))

    def ids(self, row_id: str) -> Ids | None:
        """Return the prompt ids of the row with this id, or None."""
        return self._recall(self._texts.get(row_id, b""))

    def _recall(self, key: bytes) -> Ids | None:
        place = self._places.get(key)
        if place is None:
            return None
        tail = np.frombuffer(os.pread(self._spool.fileno(), place.size, place.offset), dtype=np.uint32)
        return np.concatenate([self._prefixes[place.prefix], tail])

    def _prefix(self, prefix: Ids) -> int:
        key = xxhash.xxh3_128_digest(prefix.tobytes())
        if key not in self._prefix_index:
            self._prefix_index[key] = len(self._prefixes)
            self._prefixes.append(prefix.copy())
        return self._prefix_index[key]


def text_key(messages: Sequence[Message]) -> bytes:
    """Return a 128-bit hash of a conversation. It covers lengths: ("ab", "c") is not ("a", "bc")."""
    key = xxhash.xxh3_128()
    for role, content in messages:
        text = content.encode()
        key.update(f"{role}\0{len(text)}\0".encode())
        key.update(text)
    return key.digest()
