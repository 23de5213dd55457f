"""The manifest of a set: what it promises, its files, and how exactness was proved; written last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.engines import cache_rule
from wlgen.workload.bounds import UNBOUNDED, Bound
from wlgen.workload.rows import json_types

MANIFEST = "manifest.json"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProof:
    """One file of the set: path relative to the set's folder with forward slashes, its sha256, its rows."""

    path: str
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """The three promises as ratios of prompt_len: the spec's bound, the mean over tokens, the worst row."""

    configured: float
    aggregate: float
    per_request_min: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """manifest.json, keys in this order. No timestamp, host or absolute path.

    spec: the normalised spec. encoding: {name, tokenizer_sha256, head_ids, tail_ids, server_kwargs, chat}.
    cache: the rule; a file keeps its numbers. splits: rows a split and rank, {split: {"rows": n, "per_rank":
    [..]}}.
    ranks: those whose files are here; a build of some ranks alone has not all. proof: how exactness was
    proved. rounds: those that are here, None for a spec of one round; splits counts the rows of one.
    numbering: 2 where first tokens are dealt to later rounds, or to a crowded round, without gaps.
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
        """Return what each check and formal row of a class must find cached; a trace asks for nothing."""
        asked = next(of for of in self.classes if of.get("name") == request_class).get("cached")
        return UNBOUNDED if asked is None else Bound.model_validate(asked)


def parse_manifest(content: Mapping[str, Any]) -> Manifest:
    """Return the manifest of a decoded manifest.json; KeyError, TypeError or ValueError where it is none."""
    manifest = _typed(Manifest, content)
    for asked in manifest.classes:
        manifest.bound_of(asked.get("name"))
    return replace(
        manifest,
        cache=cache_rule(_typed(RuleNumbers, manifest.cache), place="cache.engine"),
        promises=_typed(Promises, manifest.promises),
        files=tuple(_typed(FileProof, file) for file in manifest.files),
    )


def _typed(kind: type[T], content: object) -> T:
    """Return a dataclass of JSON values; TypeError names the first value of another type."""
    if not isinstance(content, dict):
        raise TypeError(f"expected the keys of a {kind.__name__}, found {content!r:.80}")
    absent = [(field.name, None) for field in fields(kind) if field.default is None]  # type: ignore[arg-type]
    for name, expected in json_types(kind).items():
        if name in content and type(content[name]) is not expected and (name, content[name]) not in absent:
            raise TypeError(f"{name}: expected {expected.__name__}, found {content[name]!r:.80}")
    return kind(**content)
