"""Inputs: the files that a spec names, read with it, and kept inside the built set.

A manifest names them by their path in the set and their sha256, so that a set can be proved where the files
are not, and is no longer taken as unchanged where they have changed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from wlgen.errors import WlgenError, error
from wlgen.spec.lengths import Column, Distribution, column_values
from wlgen.spec.model import Trace
from wlgen.strict.problems import KeyPath, Problems

FOLDER = "inputs"
MOST_BYTES = 1 << 30


def own_name(kept: str) -> str:
    """Return the name that a person gave a kept file: inputs/8090d6a3-trace.jsonl is their trace.jsonl."""
    return kept.partition("-")[2] if kept.startswith(f"{FOLDER}/") else kept


class Inputs:
    """Reads the files of one spec, whose paths are relative to its folder; problems are added, not raised."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._folder = Path(problems.places.source).parent
        self.kept: dict[str, bytes] = {}

    def numbers(self, column: Column, path: KeyPath, content: dict[str, Any], *, least: int = 1) -> list[int]:
        """Return a column's numbers, and write where the file is kept into the spec's content."""
        data = self._take(column.path, (*path, "column"), content["column"], column.sha256)
        try:
            return column_values(column, data, least=least) if data else [least]
        except WlgenError as failure:
            self._problems.take((*path, "column"), failure)
            return [least]

    def length(self, length: int | Distribution, path: KeyPath, content: Any) -> int | Distribution:
        """Return a length with the values of its column beside it."""
        if isinstance(length, int) or length.column is None:
            return length
        return length.model_copy(update={"values": self.numbers(length.column, path, content)})

    def trace(self, trace: Trace, path: KeyPath, content: dict[str, Any]) -> Trace:
        """Return a trace by the path under which it is kept."""
        self._take(trace.path, path, content, trace.sha256)
        return trace.model_copy(update={"path": content["path"]})

    def _take(self, name: str, path: KeyPath, content: dict[str, Any], sha256: str | None) -> bytes:
        """Return a file's bytes, keep them, and write its new path and its hash into the content."""
        file = self._folder / name
        place = self._problems.places.at(path)
        try:
            if file.exists() and not file.is_file():  # /dev/zero has no end
                raise error(place, expected="a file", found=f"{file}, which is none")
            if file.stat().st_size > MOST_BYTES:
                raise error(place, expected=f"a file of at most {MOST_BYTES} bytes", found=str(file))
            data = file.read_bytes()
            found = hashlib.sha256(data).hexdigest()
            if sha256 not in (None, found):
                raise error(place, expected=f"{name} of sha256 {sha256}", found=found)
        except (OSError, ValueError) as failure:  # ValueError: a name with a null byte
            found = getattr(failure, "strerror", None) or str(failure)
            self._problems.add(path, expected=f"a file at {file}", found=found)
            return b""
        except WlgenError as failure:
            self._problems.take(path, failure)
            return b""
        # A name that has the hash is that of a file kept before; no spec names a place outside of its set.
        kept = f"{FOLDER}/{found[:8]}-{Path(name).name.removeprefix(f'{found[:8]}-')}"
        self.kept[kept] = data
        content |= {"path": kept, "sha256": found}
        return data
