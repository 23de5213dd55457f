"""The built set on disk: rows, the manifest that proves them, and reading both back.

output/<name>/manifest.json                  written last
output/<name>/<split>/rank-<00>.jsonl        one row a line, UTF-8
output/<name>/<split>/round-<1>/rank-<00>.jsonl    of a later round
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import orjson

from wlgen.cache_rules import CacheRule
from wlgen.encodings import Message
from wlgen.errors import Problem, WlgenError, error
from wlgen.pages import least_tokens

FORMAT = "wlgen/1"
MANIFEST = "manifest.json"
Split: TypeAlias = Literal["seed", "check", "formal"]
T = TypeVar("T")
SPLITS: tuple[Split, ...] = ("seed", "check", "formal")  # the order in which a server meets them


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request. Fields and their order are the keys of a JSONL line; lengths are tokens.

    id: unique in the workload, "formal-r03-000007". group: rows sharing one prefix.
    body_len: tokens of the message text. prompt_len: with framing. shared_len: longest common token prefix
    with the row's group, framing head included. cached_len: what the rule says the server will report.
    prompt_sha256: of the prompt ids as little-endian uint32.
    Keys that a line leaves out where they are None: request_class, of a spec with several; session and turn,
    of a conversation; timestamp_ms, since its round began; cached_len_recorded, what is cached if the model
    has answered each turn with the recorded text.
    """

    id: str
    split: Split
    dp_rank: int
    group: str
    round: int
    messages: tuple[Message, ...]
    body_len: int
    prompt_len: int
    shared_len: int
    cached_len: int
    output_len: int
    prompt_sha256: str
    request_class: str | None = None
    session: str | None = None
    turn: int | None = None
    timestamp_ms: int | None = None
    cached_len_recorded: int | None = None

    @property
    def text_sha256(self) -> str:
        """sha256 of the last message's text: how a client's record is matched to its row."""
        return hashlib.sha256(self.messages[-1].content.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken promise: the row's id (or a place, where it is of no row), expected and got."""

    id: str
    promise: str
    expected: int | str
    got: int | str


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
class Bound:
    """What cached_len of a check or formal row must meet; None means not asked for.

    aggregate: what the formal rows of a class must meet together, within tolerance.
    """

    min_ratio: Fraction | None = None
    tokens: int | None = None
    max_tokens: int | None = None
    aggregate: Fraction | None = None
    tolerance: Fraction = Fraction(5, 1000)

    def least(self, prompt_len: int) -> int:
        """Return the least cached tokens that meet the bound."""
        by_ratio = 0 if self.min_ratio is None else least_tokens(self.min_ratio, prompt_len)
        return max(by_ratio, self.tokens or 0)

    def most(self, prompt_len: int) -> int:
        """Return the most cached tokens that meet the bound."""
        return prompt_len if self.max_tokens is None else self.max_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """manifest.json, keys in this order. No timestamp, host or absolute path.

    spec: the normalised spec. encoding: {name, tokenizer_sha256, head_ids, tail_ids, server_kwargs, chat}.
    cache: the rule's fields. splits: rows a split and rank, {split: {"rows": n, "per_rank": [..]}}.
    ranks: those whose files are here; a build of some ranks alone has not all. proof: how exactness was
    proved. rounds: those that are here, None for a spec of one round; splits counts the rows of one.
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

    @property
    def dp_ranks(self) -> int:
        """Data-parallel ranks of the set."""
        return int(self.spec["dp_ranks"])

    def bound_of(self, request_class: str | None) -> Bound:
        """Return the spec's bound on cached tokens for each check and formal row of a class."""
        asked = self.spec["requests"]
        classes = asked if isinstance(asked, list) else [asked]
        cached = next(of for of in classes if of.get("name") == request_class).get("cached", {})
        exact = ("min_ratio", "aggregate", "tolerance")
        return Bound(
            tokens=cached.get("tokens"),
            max_tokens=cached.get("max_tokens"),
            **{key: Fraction(str(cached[key])) for key in exact if cached.get(key) is not None},
        )

    @property
    def bound(self) -> Bound:
        """The bound of a spec with one class, no bound for one with several."""
        return Bound() if isinstance(self.spec["requests"], list) else self.bound_of(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A built set: its folder and manifest. Rows are streamed, never held."""

    folder: Path
    manifest: Manifest

    def files(
        self,
        splits: Sequence[Split] = SPLITS,
        ranks: Sequence[int] | None = None,
        rounds: Sequence[int] | None = None,
    ) -> list[FileProof]:
        """Return the files in the order they are sent: seeds, then each round's checks and formal rows."""
        wanted = range(self.manifest.dp_ranks) if ranks is None else ranks
        every = self.manifest.rounds or (0,) if rounds is None else rounds
        by_path = {f.path: f for f in self.manifest.files}
        parts = [("seed", 0), *((split, round_) for round_ in every for split in SPLITS[1:])]
        paths = (row_file(s, rank, round_) for s, round_ in parts if s in splits for rank in wanted)
        return [by_path[path] for path in paths if path in by_path]

    def rows(
        self,
        splits: Sequence[Split] = SPLITS,
        ranks: Sequence[int] | None = None,
        rounds: Sequence[int] | None = None,
    ) -> Iterator[Row]:
        """Yield rows in the order of `files`; WlgenError names the file and line of the first bad one."""
        for proof in self.files(splits, ranks, rounds):
            yield from read_rows(self.folder / proof.path)


def row_file(split: str, rank: int, round_: int = 0) -> str:
    """Return the path of a rank's file inside the set's folder."""
    return f"{split}/" + (f"round-{round_}/" if round_ else "") + f"rank-{rank:02d}.jsonl"


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of one file; WlgenError names the line where it is not a row."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                yield parse_row(line, place=f"{path}:{number}")
    except OSError as failure:
        raise error(str(path), expected="a readable file of the set", found=str(failure)) from failure


def parse_row(line: bytes, *, place: str) -> Row:
    """Return the row of one JSONL line; the keys must be exactly those of Row, in order."""
    remedy = "Rebuild the set with `wlgen build`."
    try:
        values = orjson.loads(line)
    except orjson.JSONDecodeError as failure:
        raise error(place, expected="a whole JSON row", found=str(failure), remedy=remedy) from failure
    keys = list(values) if isinstance(values, dict) else [type(values).__name__]
    if keys != [name for name in _ROW_TYPES if name not in OPTIONAL_KEYS or name in keys]:
        expected = f"the keys {', '.join(name for name in _ROW_TYPES if name not in OPTIONAL_KEYS)}"
        raise error(place, expected=expected, found=", ".join(keys), remedy=remedy)
    for key, kind in _ROW_TYPES.items():
        if key in values and type(values[key]) is not kind:
            raise error(f"{place} {key}", expected=kind.__name__, found=repr(values[key])[:80], remedy=remedy)
    try:
        messages = tuple(Message(**m) for m in values.pop("messages"))
    except TypeError as failure:
        raise error(f"{place} messages", expected="[{role, content}, ...]", found=str(failure)) from failure
    if not all(type(part) is str for message in messages for part in message):
        raise error(f"{place} messages", expected="a role and a content of text", found="another type")
    return Row(messages=messages, **values)


def _json_types(kind: type[Any]) -> dict[str, type]:
    """Return the JSON type of each field of a dataclass."""
    plain: dict[str, type] = {
        "str": str,
        "int": int,
        "float": float,
        "bool": bool,
        "Split": str,
        "Engine": str,
    }
    lists = ("tuple", "Sequence")
    return {
        field.name: plain.get(
            str(field.type).removesuffix(" | None"), list if str(field.type).startswith(lists) else dict
        )
        for field in fields(kind)
    }


_ROW_TYPES = _json_types(Row)
OPTIONAL_KEYS = tuple(field.name for field in fields(Row) if field.default is None)


def open_workload(folder: Path) -> Workload:
    """Open a built set by its folder; the manifest is read, the files are not yet proved."""
    path = folder / MANIFEST
    remedy = "Give the folder that `wlgen build` wrote, output/<name>."
    try:
        content = orjson.loads(path.read_bytes())
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
        raise error(
            str(path), expected="the keys of a manifest", found=repr(failure), remedy=remedy
        ) from failure
    return Workload(folder=folder, manifest=manifest)


def parse_manifest(content: Mapping[str, Any]) -> Manifest:
    """Return the manifest of a decoded manifest.json; KeyError, TypeError or ValueError where it is none."""
    manifest = _typed(Manifest, content)
    return replace(
        manifest,
        cache=_typed(CacheRule, manifest.cache),
        promises=_typed(Promises, manifest.promises),
        files=tuple(_typed(FileProof, file) for file in manifest.files),
    )


def _typed(kind: type[T], content: object) -> T:
    """Return a dataclass of JSON values; TypeError names the first value of another type."""
    if not isinstance(content, dict):
        raise TypeError(f"expected the keys of a {kind.__name__}, found {content!r:.80}")
    absent = [(field.name, None) for field in fields(kind) if field.default is None]  # type: ignore[arg-type]
    for name, expected in _json_types(kind).items():
        if name in content and type(content[name]) is not expected and (name, content[name]) not in absent:
            raise TypeError(f"{name}: expected {expected.__name__}, found {content[name]!r:.80}")
    return kind(**content)


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


def file_sha256(path: Path) -> str | None:
    """Return the sha256 of a file's bytes, or None where it cannot be read."""
    try:
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return None
