"""Inputs: the files that a spec names. They are read with the spec, and the built set keeps a copy of each.

A built set holds a copy of each file as inputs/<8 digits of its sha256>-<its name>, and its manifest holds
the whole sha256. So a set is proved on a machine that lacks the files, and a file that has changed since
makes `wlgen build` build the set anew. Example: lens.csv becomes inputs/9f86d081-lens.csv.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from wlgen.errors import WlgenError
from wlgen.strict.model import refusal

FOLDER = "inputs"
MOST_BYTES = 1 << 30


class Kept(NamedTuple):
    """A file that was read: its path inside the built set, its SHA-256 in hex, its bytes."""

    path: str
    sha256: str
    content: bytes


def own_name(kept: str) -> str:
    """Return the name that a person gave a kept file: inputs/8090d6a3-trace.jsonl is their trace.jsonl."""
    return kept.partition("-")[2] if kept.startswith(f"{FOLDER}/") else kept


def expanded(path: str) -> str:
    """Return a person's path with ~ and $VARIABLES replaced; a variable that is not set stays as written."""
    return os.path.expandvars(Path(path).expanduser())


class Inputs:
    """Reads the files that a spec names while pydantic validates it; models find it as their context.

    folder: where relative paths begin. kept: the bytes of each file that was read, by its path in the set.
    failures: what is wrong inside a file, at the file's own lines.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kept: dict[str, bytes] = {}
        self.failures: list[WlgenError] = []

    def take(self, name: str, sha256: str | None) -> Kept:
        """Read a file and keep it; raise a refusal if it is missing or its sha256 is not the one given."""
        content = self._content(name)
        found = hashlib.sha256(content).hexdigest()
        if sha256 not in (None, found):
            raise refusal(expected=f"{name} of sha256 {sha256}", found=found)
        # A name from a manifest begins with the hash already: inputs/9f86d081-lens.csv.
        path = f"{FOLDER}/{found[:8]}-{Path(name).name.removeprefix(f'{found[:8]}-')}"
        self.kept[path] = content
        return Kept(path, found, content)

    def numbers(self, read: Callable[[], list[int]]) -> list[int]:
        """Return the numbers that `read` gives; keep its error, so that other keys are checked too."""
        try:
            return read()
        except WlgenError as failure:
            self.failures.append(failure)
            return []

    def _content(self, name: str) -> bytes:
        kept = name.startswith(f"{FOLDER}/")
        file = self._folder / (name if kept else expanded(name))
        try:
            # A path that exists but is no regular file may have no end: /dev/zero.
            file_or_none = file.is_file() or not file.exists()
            fits = file_or_none and file.stat().st_size <= MOST_BYTES
            content = file.read_bytes() if fits else b""
        except (OSError, ValueError) as failure:  # ValueError: a name with a null byte
            found = getattr(failure, "strerror", None) or str(failure)
            remedy = "Set the variable, or write the path out." if "$" in str(file) else ""
            raise refusal(expected=f"a file at {file}", found=found, remedy=remedy) from failure
        if not file_or_none:
            raise refusal(expected="a file", found=f"{file}, which is not a regular file")
        if not fits:
            raise refusal(expected=f"a file of at most {MOST_BYTES} bytes", found=str(file))
        return content
