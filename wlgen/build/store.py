"""Store: composed rows to disk, hashed as they are written, in a folder that takes its place in one step."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson

from wlgen.build.compose import Composed
from wlgen.errors import error
from wlgen.workload.card import CARD, card_bytes
from wlgen.workload.exchange import FolderKind, NewFolder
from wlgen.workload.manifest import MANIFEST, FileProof, Manifest
from wlgen.workload.opened import file_sha256, listed_files
from wlgen.workload.rows import OPTIONAL_KEYS
from wlgen.workload.writer import HashedFile, Part, writing

SET = FolderKind(deed="build", what="a built set", marker=MANIFEST, listed=listed_files)


def row_line(row: Composed) -> Iterator[Part]:
    """Yield the parts of a row's JSONL line. A shared prefix is escaped once for all its rows."""
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
    """Write files, each given as its path below the folder and its rows, and return their proofs."""
    proofs = []
    for path, rows in files:
        with HashedFile(folder / path) as file:
            count = 0
            for row in rows:
                file.write(row_line(row))
                count += 1
        proofs.append(FileProof(path=path, sha256=file.hexdigest, rows=count))
    return proofs


class Staging(NewFolder):
    """A set that is being written, to stand at output/<name>."""

    def __init__(self, output: Path, name: str) -> None:
        super().__init__(output / name, SET)

    def keep(self, proof: FileProof, folder: Path) -> FileProof:
        """Take a proved file of a set: link it if the set is the one being replaced, else copy it."""
        source, target = folder / proof.path, self.new / proof.path
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if folder != self.final or not _linked(source, target):
                shutil.copyfile(source, target)
                if file_sha256(target) != proof.sha256:
                    expected = f"a file of sha256 {proof.sha256}, as a moment ago"
                    raise error(str(source), expected=expected, found="another sha256", remedy="Build again.")
        return proof

    def add(self, path: str, content: bytes) -> FileProof:
        """Write a file that the spec names, such as a trace, and return its proof."""
        target = self.new / path
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        return FileProof(path=path, sha256=hashlib.sha256(content).hexdigest(), rows=0)

    def commit(self, manifest: Manifest) -> None:
        """Write card and manifest, and put the set in its place, with a person's files of the old set."""
        with writing(self.final):
            (self.new / CARD).write_bytes(card_bytes(manifest))
            (self.new / MANIFEST).write_bytes(manifest_bytes(manifest))
        self.exchange()


def _linked(source: Path, target: Path) -> bool:
    """Link a file; return False if this disk cannot."""
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return manifest.json's bytes, without keys that are None."""
    content = {key: value for key, value in dataclasses.asdict(manifest).items() if value is not None}
    content["cache"] = manifest.cache.numbers
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
