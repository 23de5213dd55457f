"""The folder of an export: what may be replaced, how it is written, and its marker.

OUT                  the export, always whole, with wlgen-export.json
.OUT.exporting       what an export is writing; the next one clears it
.OUT.replaced        the old export for the instant of the exchange; the next one puts it back
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import xxhash

from wlgen.errors import error
from wlgen.exporters import Chunk
from wlgen.workload.writer import writing

MARKER = "wlgen-export.json"
FORMAT = "wlgen-export/1"
_BUFFER = 1 << 18  # bytes: small lines are joined, large ones go straight to the file


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One file of an export: its path in the folder with forward slashes, its hash and its size.

    xxh3: the 128-bit XXH3 of its bytes. It tells a changed file; the set itself is proved by sha256, which
    would be half of an export's time once more.
    """

    path: str
    xxh3: str
    bytes: int


def check(out: Path, workload_folder: Path) -> None:
    """Raise WlgenError where `out` must not be written: the set's own folder, or somebody's files."""
    inside = out.is_relative_to(workload_folder)
    if inside or workload_folder.is_relative_to(out):
        found = "a folder inside it" if inside else "a folder that holds it"
        remedy = "Give an --output beside the set."
        raise error(
            str(out), expected=f"a folder apart from the set {workload_folder}", found=found, remedy=remedy
        )
    if out.exists() and not out.is_dir():
        raise error(
            str(out), expected="a folder, or none yet", found="a file", remedy="Give another --output."
        )
    if out.exists() and any(out.iterdir()) and _files_of(out) is None:
        expected = f"no folder, an empty one, or an earlier export with its {MARKER}"
        remedy = "Move the files away, or give another --output."
        raise error(str(out), expected=expected, found="other files", remedy=remedy)


@contextmanager
def staging(out: Path) -> Iterator[Path]:
    """Give the folder in which an export is made; nothing of it is left unless `exchange` took it."""
    folder = out.with_name(f".{out.name}.exporting")
    with writing(out):
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until the process ends, however it ends
        except BlockingIOError as failure:
            remedy = "Wait for it, or give another --output."
            raise error(
                str(out), expected="one export at a time", found="another", remedy=remedy
            ) from failure
        try:
            _clear(folder)
            if not out.exists() and _replaced(out).exists():
                _replaced(out).rename(out)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def write(folder: Path, name: str, chunks: Iterable[Chunk]) -> Written:
    """Write one file of an export, hashing it on the way."""
    path, digest, size = folder / name, xxhash.xxh3_128(), 0
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb", buffering=_BUFFER) as file:
            for chunk in chunks:
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
    return Written(path=name, xxh3=digest.hexdigest(), bytes=size)


def exchange(folder: Path, out: Path, facts: Mapping[str, Any], files: Sequence[Written]) -> None:
    """Write the marker and put the finished folder in the place of `out`; a person's own files stay there."""
    content = {"format": FORMAT, **facts, "files": [asdict(f) for f in files]}
    marker = orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    with writing(out):
        (folder / MARKER).write_bytes(marker)
        if not out.exists() or not any(out.iterdir()):
            if out.exists():
                out.rmdir()
            folder.rename(out)
            return
        theirs = _others(out)
        _check_free(out, folder, theirs)
        out.rename(_replaced(out))
        folder.rename(out)
        for path in theirs:
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (_replaced(out) / path).rename(out / path)
        shutil.rmtree(_replaced(out))


def _check_free(out: Path, folder: Path, theirs: Iterable[Path]) -> None:
    for path in theirs:
        if (folder / path).exists():
            remedy = "Move it away, or give another --output."
            expected = "no file of yours where the export writes one"
            raise error(str(out / path), expected=expected, found="one", remedy=remedy)


def _others(out: Path) -> list[Path]:
    """Return the files below `out` that no earlier export wrote, relative to it: results, for example."""
    ours = {Path(path) for path in _files_of(out) or ()} | {Path(MARKER)}
    below = (
        path.relative_to(out) for path in sorted(out.rglob("*")) if not path.is_dir() or path.is_symlink()
    )
    return [path for path in below if path not in ours and "__pycache__" not in path.parts]


def _files_of(out: Path) -> list[str] | None:
    """Return the paths that an earlier export wrote, or None where there is none."""
    try:
        content = orjson.loads((out / MARKER).read_bytes())
        if content["format"] != FORMAT:
            return None
        return [str(f["path"]) for f in content["files"]]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None


def _replaced(out: Path) -> Path:
    return out.with_name(f".{out.name}.replaced")


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
