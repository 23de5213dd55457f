"""A built set on disk: opened by its folder, read row by row, and proved by the hashes of its files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from wlgen.errors import Problem, WlgenError, error, printable, regular
from wlgen.streams import FORMAT
from wlgen.workload.manifest import MANIFEST, FileProof, Manifest, parse_manifest
from wlgen.workload.rows import Row, read_rows, row_file
from wlgen.workload.splits import SPLITS, Split, in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A built set: its folder and manifest. Rows are read one by one, and never all held in memory."""

    folder: Path
    manifest: Manifest

    def files(
        self,
        splits: Sequence[Split] = SPLITS,
        ranks: Sequence[int] | None = None,
        rounds: Sequence[int] | None = None,
    ) -> list[FileProof]:
        """Return the files in the order of sending: seeds, then each round's checks and formal rows."""
        wanted = range(self.manifest.dp_ranks) if ranks is None else ranks
        every = self.manifest.rounds or (0,) if rounds is None else rounds
        by_path = {f.path: f for f in self.manifest.files}
        paths = (row_file(s, rank, round_) for s, round_ in in_order(every) if s in splits for rank in wanted)
        return [by_path[path] for path in paths if path in by_path]

    def rows(
        self,
        splits: Sequence[Split] = SPLITS,
        ranks: Sequence[int] | None = None,
        rounds: Sequence[int] | None = None,
    ) -> Iterator[Row]:
        """Yield rows in the order of `files`; WlgenError names the file and line of the first bad row."""
        for proof in self.files(splits, ranks, rounds):
            yield from read_rows(self.folder / proof.path)


def open_workload(folder: Path) -> Workload:
    """Open a built set by its folder: read its manifest, but do not yet prove its files."""
    path = folder / MANIFEST
    remedy = "Give the folder that `wlgen build` wrote, output/<name>."
    try:
        content = orjson.loads(regular(path).read_bytes())
    except OSError as failure:
        raise error(
            str(path), expected="a built set", found=failure.strerror or str(failure), remedy=remedy
        ) from failure
    except orjson.JSONDecodeError as failure:
        raise error(str(path), expected="a JSON manifest", found=str(failure), remedy=remedy) from failure
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise error(str(path), expected=f'"format": "{FORMAT}"', found=repr(found), remedy=remedy)
    try:
        manifest = parse_manifest(content)
    except (KeyError, TypeError, ValueError) as failure:
        said = printable(f"{failure}")
        if isinstance(failure, ValueError) and said.startswith("expected "):
            expected, found = said.removeprefix("expected "), "a manifest with another value there"
        else:
            expected, found = "the keys of a manifest", f"{type(failure).__name__}: {said}"
        raise error(str(path), expected=expected, found=found, remedy=remedy) from failure
    return Workload(folder=folder, manifest=manifest)


def prove_files(workload: Workload) -> None:
    """Check each file's sha256 against the manifest; WlgenError lists every file that differs."""
    problems = []
    for proof in workload.manifest.files:
        path = workload.folder / proof.path
        found = file_sha256(path) or "no readable file"
        if found != proof.sha256:
            expected = f"sha256 {proof.sha256}"
            remedy = "Rebuild the set with `wlgen build`."
            problems.append(Problem(place=str(path), expected=expected, found=found, remedy=remedy))
    if problems:
        raise WlgenError(*problems)


def listed_files(folder: Path) -> set[str] | None:
    """Return the paths of a set's own files and of its manifest; None if the folder holds no set.

    A folder with another program's manifest.json holds no set: a set's manifest names wlgen's format. Every
    file that the manifest does not list is a person's.
    """
    try:
        content = orjson.loads(regular(folder / MANIFEST).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return None
    files = content.get("files")
    listed = [*files, content.get("card")] if isinstance(files, list) else []
    paths = [file.get("path") for file in listed if isinstance(file, dict)]
    return {MANIFEST, *(path for path in paths if isinstance(path, str))}


def file_sha256(path: Path) -> str | None:
    """Return the sha256 of a file's bytes, or None if the file cannot be read."""
    try:
        with regular(path).open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return None
