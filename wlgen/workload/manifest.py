"""The manifest of a set: what it promises, its files, and how exactness was proved; written last."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import PurePosixPath
from typing import Any, TypeVar

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.engines import cache_rule
from wlgen.workload.bounds import UNBOUNDED, Bound
from wlgen.workload.rows import json_types

MANIFEST = "manifest.json"
MOST_RANKS = 1 << 16
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProof:
    """One file of the set: path relative to the set's folder with forward slashes, its sha256, its rows."""

    path: str
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """The three promises as ratios of prompt_len: what the spec asks, all tokens together, the worst row."""

    configured: float
    aggregate: float
    per_request_min: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """manifest.json, keys in this order. No timestamp, host or absolute path.

    spec: `Spec.content`. encoding: {name, tokenizer_sha256, head_ids, tail_ids, server_kwargs, chat}.
    cache: the rule; the file keeps its numbers. splits: how many rows each split has in one round,
    {"formal": {"rows": 640, "per_rank": [40, ...]}}. ranks: the ranks whose files are here, since a build may
    write some ranks alone. rounds: the rounds that are here; None if the spec has one. proof: how exactness
    was proved. card: the proof of the set's README.md; None in a set older than cards.
    numbering: 2 if later rounds, or a crowded first round, get first tokens without gaps (plan/ordinals.py).
    """

    format: str
    name: str
    spec: Mapping[str, Any]
    spec_sha256: str
    encoding: Mapping[str, Any]
    cache: CacheRule
    promises: Promises
    splits: Mapping[str, Mapping[str, Any]]
    ranks: Sequence[int]
    files: tuple[FileProof, ...]
    proof: Mapping[str, Any]
    rounds: Sequence[int] | None = None
    card: FileProof | None = None
    numbering: int | None = None

    @property
    def dp_ranks(self) -> int:
        """Data-parallel ranks of the set."""
        return int(self.spec["dp_ranks"])

    @property
    def classes(self) -> list[Mapping[str, Any]]:
        """The request classes of the spec, as it keeps them: one mapping each."""
        asked = self.spec["requests"]
        return asked if isinstance(asked, list) else [asked]

    def bound_of(self, request_class: str | None) -> Bound:
        """Return what each check and formal row of a class must find cached; a trace has no bound."""
        asked = next(of for of in self.classes if of.get("name") == request_class).get("cached")
        return UNBOUNDED if asked is None else Bound.model_validate(asked)


def parse_manifest(content: Mapping[str, Any]) -> Manifest:
    """Return the manifest of a decoded manifest.json; KeyError, TypeError or ValueError if it is not one.

    Every manifest passes here. What passes has the types, ranges and plain names that the rest of wlgen
    relies on, so that no damaged or foreign file crashes a command or names a path outside the set.
    """
    manifest = _typed(Manifest, content)
    for what, fits in _shapes(manifest):
        if not fits:
            raise ValueError(f"expected {what}")
    for asked in manifest.classes:
        manifest.bound_of(asked.get("name"))
    files = tuple(_typed(FileProof, file) for file in manifest.files)
    card = None if manifest.card is None else _typed(FileProof, manifest.card)
    for file in files:
        _check_file(file)
    if card:
        _check_hash(card)
    return replace(
        manifest,
        cache=cache_rule(_typed(RuleNumbers, manifest.cache), place="cache.engine"),
        promises=_typed(Promises, manifest.promises),
        files=files,
        card=card,
    )


def _shapes(manifest: Manifest) -> Iterator[tuple[str, bool]]:
    """Yield what a value must be, in words, and whether it is so. Each test relies on the tests before it."""
    spec, ranks = manifest.spec, manifest.spec.get("dp_ranks")
    numbers: dict[str, Any] = manifest.cache if isinstance(manifest.cache, dict) else {}
    yield "name: a-z, 0-9, dots, _ and -", bool(_NAME.fullmatch(manifest.name))
    yield "spec.dp_ranks: a number of ranks from 1 to 65536", type(ranks) is int and 1 <= ranks <= MOST_RANKS
    asked = spec.get("requests")
    classes = asked if isinstance(asked, list) else [asked]
    yield (
        "spec.requests: a mapping, or a list of them",
        bool(classes) and all(type(of) is dict for of in classes),
    )
    yield "ranks: whole numbers", _whole(manifest.ranks)
    yield "rounds: whole numbers", manifest.rounds is None or _whole(manifest.rounds)
    for key in ("head_ids", "tail_ids"):
        yield f"encoding.{key}: token ids", _whole(manifest.encoding.get(key))
    yield "splits: a mapping for each split", all(type(of) is dict for of in manifest.splits.values())
    for key in ("page_size", "hit_quantum"):
        yield f"cache.{key}: a number of tokens of at least 1", _whole([numbers.get(key)], least=1)


def _whole(found: object, *, least: int = 0) -> bool:
    """Return whether a value is a list of whole numbers from `least` up."""
    return isinstance(found, list) and all(type(n) is int and n >= least for n in found)


def _check_file(file: FileProof) -> None:
    parts = PurePosixPath(file.path).parts
    if not file.path.isprintable() or ".." in parts or len(parts) < 2 or file.path.startswith("/"):  # noqa: PLR2004
        raise ValueError(f"expected files.path: a plain path inside the set, found {file.path!r:.80}")
    _check_hash(file)


def _check_hash(file: FileProof) -> None:
    if not _SHA256.fullmatch(file.sha256) or file.rows < 0:
        raise ValueError(f"expected 64 hex digits and a count of rows for {file.path}")


def _typed(kind: type[T], content: object) -> T:
    """Return a dataclass of JSON values; TypeError names the first value of another type."""
    if not isinstance(content, dict):
        raise TypeError(f"expected the keys of a {kind.__name__}, found {content!r:.80}")
    absent = [(field.name, None) for field in fields(kind) if field.default is None]  # type: ignore[arg-type]
    for name, expected in json_types(kind).items():
        if name in content and type(content[name]) is not expected and (name, content[name]) not in absent:
            raise TypeError(f"{name}: expected {expected.__name__}, found {content[name]!r:.80}")
    return kind(**content)
