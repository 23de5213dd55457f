"""The exchange of a folder: wlgen writes a set or an export beside its place, then swaps the two in one step.

output/<name>                      the folder, always whole
output/.<name>.building/new-<id>   what a build is writing (an export writes in .<name>.exporting/new-<id>)
output/.<name>.building/old        the old folder during the exchange; if it is killed, the next build ends it

Files that the folder's marker (manifest.json in a set) does not list are a person's. Each keeps its path
below the folder; if the new folder has a file at that path, wlgen refuses the exchange.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from secrets import token_hex
from types import TracebackType
from typing import Literal, Self

from wlgen.errors import error
from wlgen.workload.writer import writing

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux, <fcntl.h> and <linux/fs.h>
_PLACES = {"build": "building", "export": "exporting"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderKind:
    """A kind of folder that wlgen writes.

    deed: the command that writes it. what: the folder in words, "a built set". marker: the name of the file
    that lists the others. listed: returns the paths that a folder's marker lists, and the marker's own,
    relative and with forward slashes; None if the folder holds no such marker.
    """

    deed: Literal["build", "export"]
    what: str
    marker: str
    listed: Callable[[Path], Collection[str] | None]


class NewFolder:
    """A folder that is being written. Unless `exchange` puts it in its place, nothing of it is left.

    final: its place, as the person wrote it. new: the folder where its files are written first.
    """

    def __init__(self, place: Path, kind: FolderKind) -> None:
        self.final = place
        self._kind = kind
        self._real = Path(os.path.realpath(place))  # a link at the place stays, and what it points to changes
        self._place = self._real.with_name(f".{self._real.name}.{_PLACES[kind.deed]}")
        self.new = self._place / f"new-{token_hex(4)}"  # a worker of a killed build writes to another name
        self._old = self._place / "old"

    def __enter__(self) -> Self:
        with writing(self.final.parent):
            self._made = [path for path in self._place.parents if not path.exists()]
            self._lock = self._locked()
        with writing(self.final):
            self._settle()
            self.new.mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        with writing(self.final):
            self._settle()
        shutil.rmtree(self._place, ignore_errors=True)
        os.close(self._lock)
        with suppress(OSError):  # remove the parents that were made for this folder, if they are empty
            for path in self._made:
                path.rmdir()

    def check_place(self) -> None:
        """Raise WlgenError if the place holds something that wlgen did not write."""
        with writing(self.final):
            if not self._real.exists() or self._kind.listed(self._real) is not None:
                return
            found = "a file"
            if self._real.is_dir():
                if not any(self._real.iterdir()):
                    return
                found = f"other files and no {self._kind.marker}"
                if (self._real / self._kind.marker).exists():
                    found = f"a {self._kind.marker} that wlgen did not write, or that is damaged"
        remedy = "Move it away, or give another --output."
        raise error(str(self.final), expected=f"{self._kind.what} or no folder", found=found, remedy=remedy)

    def exchange(self) -> None:
        """Put the finished folder in its place, and keep a person's files.

        The exchange is one step if the system can swap two folders. If it cannot, it takes two renames, and a
        kill between them leaves the old folder in `old`; the next build or export puts it back.
        """
        with writing(self.final):
            self._check_free()
            if self._real.exists():
                self.new.rename(self._old)
                if not swap(self._old, self._real):
                    self._old.rename(self.new)
                    self._real.rename(self._old)
                    self.new.rename(self._real)
            else:
                self.new.rename(self._real)
            self._settle()

    def _locked(self) -> int:
        """Make the temporary place and lock it; the lock ends with the process, however it ends."""
        while True:
            self._place.mkdir(parents=True, exist_ok=True)
            try:
                held = os.open(self._place, os.O_RDONLY)
            except FileNotFoundError:
                continue  # the process that held the lock has just ended and removed the folder
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._place.stat().st_ino == os.fstat(held).st_ino:
                    return held
            except FileNotFoundError:
                pass  # as above
            except BlockingIOError as failure:
                os.close(held)
                remedy = "Wait for it, or give another --output."
                expected = f"one {self._kind.deed} at a time"
                raise error(str(self.final), expected=expected, found="another", remedy=remedy) from failure
            os.close(held)

    def _settle(self) -> None:
        """End an exchange, however far it came, and remove what was written for it.

        If the place is empty, the folder in `old` goes back to it. Otherwise `old` holds the old folder, from
        which a person's files move to the new one; or, just before the swap, the new folder, which has none.
        """
        if self._old.exists():
            if self._real.exists():
                for path in _others(self._old, self._kind.listed(self._old) or ()):
                    _move(self._old / path, self._real / path)
                self._old.rename(self._place / f"done-{token_hex(4)}")  # only listed files are left in it
            else:
                self._old.rename(self._real)
        for path in self._place.iterdir():
            shutil.rmtree(path, ignore_errors=True)

    def _check_free(self) -> None:
        """Raise WlgenError if a person's file stands at the path of a file of the new folder."""
        if not self._real.is_dir():
            return
        for path in _others(self._real, self._kind.listed(self._real) or ()):
            for clash in _clashes(self._real / path, self.new / path):
                raise error(
                    str(self.final / clash.relative_to(self._real)),
                    expected=f"no file of yours where the {self._kind.deed} writes one",
                    found="a file of yours",
                    remedy="Move it away, or give another --output.",
                )


def swap(one: Path, other: Path) -> bool:
    """Exchange two folders in one step, and return whether this system and this disk can."""
    import ctypes  # noqa: PLC0415 (only an exchange needs it)

    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    paths = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other))
    return rename is not None and rename(*paths, _RENAME_EXCHANGE) == 0


def _others(folder: Path, listed: Collection[str]) -> list[Path]:
    """Return the topmost paths below a folder that are not listed and hold no listed path."""
    ours = {PurePosixPath(path) for path in listed}
    parents = {parent for path in ours for parent in path.parents}
    found: list[Path] = []
    left = [Path()]
    while left:
        below = left.pop()
        for entry in sorted((folder / below).iterdir()):
            path = below / entry.name
            if PurePosixPath(path) in parents and _is_folder(entry):
                left.append(path)
            elif PurePosixPath(path) not in ours | parents:
                found.append(path)
    return found


def _clashes(source: Path, target: Path) -> Iterator[Path]:
    """Yield the paths below `source` that cannot move to `target`, because something else stands there."""
    if _is_folder(source) and _is_folder(target):
        for path in source.iterdir():
            yield from _clashes(path, target / path.name)
    elif os.path.lexists(target):
        yield source


def _move(source: Path, target: Path) -> None:
    """Move a person's file or folder. If `target` has a newer one, both stay, the older one as NAME.kept."""
    if _is_folder(source) and _is_folder(target):
        for path in source.iterdir():
            _move(path, target / path.name)
        return
    while os.path.lexists(target):
        target = target.with_name(f"{target.name}.kept")
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
