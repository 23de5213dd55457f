"""The folder of an export: its marker, what may be replaced, and how its files are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import xxhash

from wlgen.errors import error, regular
from wlgen.exporters import Chunk
from wlgen.workload.exchange import FolderKind
from wlgen.workload.writer import writing

MARKER = "wlgen-export.json"
FORMAT = "wlgen-export/1"
_BUFFER = 1 << 18  # bytes that are written together


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One file of an export: its path in the folder with forward slashes, its hash and its size.

    xxh3: the 128-bit XXH3 of its bytes, which shows a changed file. A sha256, as the set has, would make an
    export take half as long again.
    """

    path: str
    xxh3: str
    bytes: int


def listed(folder: Path) -> set[str] | None:
    """Return the paths that an export wrote into a folder, and its marker's; None if the folder is no export.

    Every file that the marker does not list is a person's, for example the results of a run.
    """
    try:
        content = orjson.loads(regular(folder / MARKER).read_bytes())
        if content["format"] != FORMAT:
            return None
        return {MARKER, *(str(file["path"]) for file in content["files"])}
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None


EXPORT = FolderKind(deed="export", what="an earlier export", marker=MARKER, listed=listed)


def check_text(*paths: Path) -> None:
    """Raise WlgenError for a path that is no UTF-8: a run card, which names it, could not be written."""
    for path in paths:
        try:
            str(path).encode()
        except UnicodeEncodeError as failure:
            found = "bytes that are no text"
            remedy = "Rename it, or export from and to another place."
            raise error(str(path), expected="a path in UTF-8", found=found, remedy=remedy) from failure


def check_apart(out: Path, workload_folder: Path) -> None:
    """Raise WlgenError if `out` is the set's own folder, holds it or stands inside it."""
    inside = out.is_relative_to(workload_folder)
    if inside or workload_folder.is_relative_to(out):
        found = "a folder inside it" if inside else "a folder that holds it"
        remedy = "Give an --output beside the set."
        expected = f"a folder apart from the set {workload_folder}"
        raise error(str(out), expected=expected, found=found, remedy=remedy)


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


def write_marker(folder: Path, facts: Mapping[str, Any], files: Sequence[Written]) -> None:
    """Write the marker that lists the files. It is written last, so that a folder with a marker is whole."""
    content = {"format": FORMAT, **facts, "files": [asdict(file) for file in files]}
    with writing(folder / MARKER):
        marker = orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        (folder / MARKER).write_bytes(marker)
