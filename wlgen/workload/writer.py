"""Disk: files that are hashed while they are written, and failures said in words."""

from __future__ import annotations

import errno
import hashlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from wlgen.errors import error

Part: TypeAlias = bytes | memoryview
BUFFER = 4 << 20  # bytes handed to the writing thread at a time
WAITING = 8  # buffers that may wait for it


class HashedFile:
    """A file that is hashed while it is written. A failure is a WlgenError that names it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hash = hashlib.sha256()

    @property
    def hexdigest(self) -> str:
        """The sha256 of what is written."""
        return self._hash.hexdigest()

    def open(self) -> None:
        """Make the file, empty."""
        with writing(self._path):
            self._file = self._path.open("wb", buffering=0)

    def take(self, parts: list[Part]) -> None:
        """Hash and write parts; a failure closes the file."""
        with writing(self._path), ExitStack() as failed:
            failed.callback(self._file.close)
            for part in _joined(parts):
                self._hash.update(part)
                left = memoryview(part)
                while left:
                    left = left[self._file.write(left) :]
            failed.pop_all()

    def close(self) -> None:
        """Close the file."""
        with writing(self._path):
            self._file.close()


class Writer:
    """Hashed files written one after another by a thread, while their bytes are made by another."""

    def __init__(self) -> None:
        self._acts: queue.Queue[Callable[[], None] | None] = queue.Queue(WAITING)
        self._file: HashedFile | None = None
        self._parts: list[Part] = []
        self._size = 0
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_file()
        self._acts.put(None)
        self._thread.join()
        if failure is None:
            self._check()

    def begin(self, path: Path) -> HashedFile:
        """Begin the next file; its hash is known once the writer has ended."""
        self._end_file()
        self._check()
        self._file = HashedFile(path)
        self._acts.put(self._file.open)
        return self._file

    def write(self, parts: Iterable[Part]) -> None:
        """Add parts to the file; a failure to write is raised at a later call or at the end."""
        for part in parts:
            self._parts.append(part)
            self._size += len(part)
        if self._size > BUFFER:
            self._hand_over()
            self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _hand_over(self) -> None:
        if self._file is not None:
            self._acts.put(partial(self._file.take, self._parts))
        self._parts, self._size = [], 0

    def _end_file(self) -> None:
        self._hand_over()
        if self._file is not None:
            self._acts.put(self._file.close)

    def _work(self) -> None:
        while (act := self._acts.get()) is not None:
            if self._failure is not None:
                continue  # the other thread is told when it hands over
            try:
                act()
            except Exception as failure:  # noqa: BLE001 (raised by the other thread)
                self._failure = failure


def _joined(parts: list[Part]) -> Iterator[Part]:
    """Join runs of small parts, and pass large ones on as they are."""
    small: list[Part] = []
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
