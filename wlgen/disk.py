"""Disk: files that are hashed while they are written, and failures said in words."""

from __future__ import annotations

import errno
import hashlib
import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from wlgen.errors import error

BUFFER = 4 << 20  # bytes handed to the writing thread at a time
WAITING = 8  # buffers that may wait for it


class HashedFile:
    """A file written and hashed by one thread, while its bytes are made by another."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._hash = hashlib.sha256()
        self._queue: queue.Queue[list[bytes] | None] = queue.Queue(WAITING)
        self._parts: list[bytes] = []
        self._size = 0
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.put(self._parts)
        self._queue.put(None)
        self._thread.join()
        self._file.close()
        if self._failure is not None and failure is None:
            raise self._failure

    @property
    def hexdigest(self) -> str:
        """The sha256 of the whole file, once it is closed."""
        return self._hash.hexdigest()

    def write(self, parts: Iterable[bytes]) -> None:
        """Hand parts to the writing thread; an OSError of it is raised at a later write or at the close."""
        for part in parts:
            self._parts.append(part)
            self._size += len(part)
        if self._size > BUFFER:
            self._queue.put(self._parts)
            self._parts, self._size = [], 0
            if self._failure is not None:
                raise self._failure

    def _work(self) -> None:
        while (parts := self._queue.get()) is not None:
            if self._failure is not None:
                continue  # the other thread is told at its next write
            try:
                for part in _joined(parts):
                    self._hash.update(part)
                    left = memoryview(part)
                    while left:
                        left = left[self._file.write(left) :]
            except OSError as failure:
                self._failure = failure


def _joined(parts: list[bytes]) -> Iterator[bytes]:
    """Join runs of small parts, and pass large ones on as they are."""
    small: list[bytes] = []
    for part in parts:
        if len(part) < BUFFER // 64:
            small.append(part)
            continue
        if small:
            yield b"".join(small)
            small = []
        yield part
    if small:
        yield b"".join(small)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError on the way to `path` into a WlgenError that says what to do."""
    try:
        yield
    except OSError as failure:
        full = failure.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "Free space, or give another --output." if full else "Give a writable --output."
        found = failure.strerror or str(failure)
        raise error(str(path), expected="a writable place with room", found=found, remedy=remedy) from failure


def check_output(path: Path, *inputs: Path) -> None:
    """Raise WlgenError where writing to `path` would change an input, or what stands in its folder."""
    place = path.resolve()
    for each in inputs:
        source = each.resolve()
        if place == source or source in place.parents:
            remedy = "Give another place."
            raise error(str(path), expected="a place apart from what is read", found=str(each), remedy=remedy)
