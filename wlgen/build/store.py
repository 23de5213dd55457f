"""Store: composed rows to disk. Hash while writing, a temporary place, manifest last, then one rename.

output/<name>                      the set, always whole
output/.<name>.building/new-<id>   what a build is writing
output/.<name>.building/old        the old set during the exchange; whoever comes next puts it back
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Self

import orjson

from wlgen.build.compose import Composed
from wlgen.errors import error
from wlgen.workload.manifest import MANIFEST, FileProof, Manifest
from wlgen.workload.opened import file_sha256
from wlgen.workload.rows import OPTIONAL_KEYS, SPLITS
from wlgen.workload.writer import Part, Writer, writing


def row_line(row: Composed) -> Iterator[Part]:
    """Yield the parts of a row's JSONL line; a shared prefix is escaped once and written many times."""
    plan = row.plan
    yield orjson.dumps(
        {
            "id": plan.id,
            "split": plan.split,
            "dp_rank": plan.dp_rank,
            "group": plan.group,
            "round": plan.round,
        }
    )[:-1]
    separator = b',"messages":['
    for message, pieces in zip(plan.messages, row.pieces, strict=True):
        yield separator + b'{"role":' + orjson.dumps(message.role) + b',"content":"'
        for piece in pieces:
            yield piece.escaped
        separator = b'"},'
    yield (
        b'"}],'
        + orjson.dumps(
            {
                "body_len": plan.body_len,
                "prompt_len": plan.prompt_len,
                "shared_len": plan.shared_len,
                "cached_len": plan.cached_len,
                "output_len": plan.output_len,
                "prompt_sha256": row.prompt_sha256,
                **{key: value for key in OPTIONAL_KEYS if (value := getattr(plan, key)) is not None},
            }
        )[1:]
        + b"\n"
    )


def write_rows(folder: Path, files: Iterable[tuple[str, Iterable[Composed]]]) -> list[FileProof]:
    """Write rank files, each a path below the folder and its rows, and return their proofs."""
    written = []
    with Writer() as writer:
        for path, rows in files:
            target = folder / path
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
            file, count = writer.begin(target), 0
            for row in rows:
                writer.write(row_line(row))
                count += 1
            written.append((path, file, count))
    return [FileProof(path=path, sha256=file.hexdigest, rows=count) for path, file, count in written]


class Staging:
    """The temporary place of one build. Nothing of it is left unless `commit` is reached.

    final: the set's folder. new: where its files are written first.
    """

    def __init__(self, output: Path, name: str) -> None:
        self.final = output / name
        self._place = output / f".{name}.building"
        self.new = self._place / f"new-{token_hex(4)}"  # so that nothing of a killed build writes there
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
        self._settle()
        shutil.rmtree(self._place, ignore_errors=True)
        os.close(self._lock)
        with suppress(OSError):  # of the folders that were made for this build, the empty ones go
            for path in self._made:
                path.rmdir()

    def _locked(self) -> int:
        """Make the temporary place and lock it; the lock ends with the process, however it ends."""
        while True:
            self._place.mkdir(parents=True, exist_ok=True)
            try:
                held = os.open(self._place, os.O_RDONLY)
            except FileNotFoundError:
                continue  # the build that held it has just ended and taken the folder away
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._place.stat().st_ino == os.fstat(held).st_ino:
                    return held
            except FileNotFoundError:
                pass  # as above
            except BlockingIOError as failure:
                os.close(held)
                remedy = "Wait for it, or give another --output."
                place = str(self.final)
                raise error(
                    place, expected="one build at a time", found="another", remedy=remedy
                ) from failure
            os.close(held)

    def _settle(self) -> None:
        """End an exchange, however far it came, and clear what a build wrote.

        An old set goes back to an empty place, or gives what a person added to it to the new one.
        """
        if self._old.exists():
            if self.final.exists():
                self._move_extras()
            else:
                self._old.rename(self.final)
        for path in self._place.iterdir():
            shutil.rmtree(path, ignore_errors=True)

    def check_place(self) -> None:
        """Raise WlgenError where the set's place holds something that is not a built set."""
        with writing(self.final):
            if not self.final.exists() or (self.final / MANIFEST).exists():
                return
            found = "other files and no manifest" if self.final.is_dir() else "a file"
            if self.final.is_dir() and not any(self.final.iterdir()):
                return
        remedy = "Move it away, or give another --output."
        raise error(str(self.final), expected="a built set or no folder", found=found, remedy=remedy)

    def keep(self, proof: FileProof, folder: Path) -> FileProof:
        """Take a proved file: a link to that of the set which is being replaced, a copy of another set's."""
        source, target = folder / proof.path, self.new / proof.path
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if folder != self.final or not _linked(source, target):
                shutil.copyfile(source, target)
                if file_sha256(target) != proof.sha256:
                    expected = f"a file of sha256 {proof.sha256}, as it had a moment ago"
                    raise error(str(source), expected=expected, found="another", remedy="Build again.")
        return proof

    def add(self, path: str, content: bytes) -> FileProof:
        """Write a file that the spec names, such as a trace, and return its proof."""
        target = self.new / path
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        return FileProof(path=path, sha256=hashlib.sha256(content).hexdigest(), rows=0)

    def commit(self, manifest: Manifest) -> None:
        """Write the manifest, exchange the old set and the new, and keep what a person added to the old."""
        with writing(self.final):
            (self.new / MANIFEST).write_bytes(manifest_bytes(manifest))
            if self.final.exists():
                self.final.rename(self._old)
            self.new.rename(self.final)
            self._settle()

    def _move_extras(self) -> None:
        """Move what stands in the old set's folder and is not the set's: a journal, for example."""
        for path in self._old.iterdir():
            target = self.final / path.name
            if path.name not in (MANIFEST, *SPLITS, "inputs") and not target.exists():
                path.rename(target)


def _linked(source: Path, target: Path) -> bool:
    """Link a file, and return whether this disk can."""
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return manifest.json's bytes; a key that is None is left out."""
    content = {key: value for key, value in dataclasses.asdict(manifest).items() if value is not None}
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
