"""Files that are hashed while they are written, and failures to write as errors in words."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from wlgen.errors import error

Part: TypeAlias = bytes | memoryview
BUFFER = 1 << 18  # bytes that are hashed and written together


class HashedFile:
    """A file that is hashed while it is written. A failure to write is a WlgenError that names the file.

    The thread that makes the bytes also hashes and writes them. With a second thread for that, a build of
    10,000 rows of 2048 tokens took 3.3 s of processor time, without it 3.0 s (the best of four alternating
    runs each).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hash = hashlib.sha256()
        self._parts: list[Part] = []
        self._size = 0

    @property
    def hexdigest(self) -> str:
        """The sha256 of what is written."""
        return self._hash.hexdigest()

    def __enter__(self) -> Self:
        with writing(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("wb", buffering=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        if failure is not None:
            with suppress(OSError):  # the first failure is the one to report
                self._file.close()
            return
        with writing(self._path):
            try:
                self._flush()
            finally:
                self._file.close()

    def write(self, parts: Iterable[Part]) -> None:
        """Add parts to the file; a failure to write is raised now, at a later call or at the end."""
        for part in parts:
            self._parts.append(part)
            self._size += len(part)
        if self._size > BUFFER:
            with writing(self._path):
                self._flush()

    def _flush(self) -> None:
        for part in _joined(self._parts):
            self._hash.update(part)
            left = memoryview(part)
            while left:
                left = left[self._file.write(left) :]
        self._parts, self._size = [], 0


def _joined(parts: list[Part]) -> Iterator[Part]:
    """Yield the parts, with runs of small parts joined."""
    small: list[Part] = []
    for part in parts:
        if len(part) < BUFFER // 4:
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
    """Turn an OSError of the `with` block into a WlgenError at `path` that says what to do."""
    try:
        yield
    except OSError as failure:
        full = failure.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "Free space, or give another --output." if full else "Give a writable --output."
        found = failure.strerror or str(failure)
        raise error(str(path), expected="a writable place with room", found=found, remedy=remedy) from failure


def check_output(path: Path, *inputs: Path) -> None:
    """Raise WlgenError if writing to `path` would change an input, or a file in an input's folder."""
    place = path.resolve()
    for each in inputs:
        source = each.resolve()
        if place == source or source in place.parents:
            remedy = "Give another place."
            expected = "a place outside of the inputs, which the command reads"
            raise error(str(path), expected=expected, found=str(each), remedy=remedy)
