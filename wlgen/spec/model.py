"""The spec: what a person asks for, validated. Reading it from YAML, with file:line, is spec_file's work."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from wlgen import engines, registry
from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.pages import ceil_to
from wlgen.spec.arrivals import Arrivals
from wlgen.spec.lengths import Distribution
from wlgen.spec.popularity import Popularity
from wlgen.strict.model import Strict, refusal
from wlgen.strict.problems import KeyPath, Places

Order: TypeAlias = Literal["generated", "group", "interleaved", "shuffled", "short_to_long"]
MOST_TOKENS = 2**31
MOST_ROWS = 10**9
_BUILT = "manifest.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


def _exact(value: object) -> object:
    # 0.9 in YAML means nine tenths, not the nearest binary double.
    return Fraction(str(value)) if type(value) in (int, float) else value


def _folder_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        near = re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-._")[:100]
        expected = "a folder name: a-z, 0-9, dots, _ and -, a letter or digit first, at most 100"
        raise refusal(expected=expected, remedy=f"Write {near}." if near else "")
    return name


def _known_engine(name: str) -> str:
    known = registry.names(engines)
    if name not in known:
        expected = " or ".join(map(repr, known))
        raise refusal(expected=expected, found=repr(name), remedy=registry.nearest(name, known))
    return name


Name = Annotated[str, AfterValidator(_folder_name)]
EngineName = Annotated[str, AfterValidator(_known_engine)]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
Rows = Annotated[int, Field(ge=1, le=MOST_ROWS)]
CachedTokens = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
Ranks = Annotated[int, Field(ge=1, le=2**16, strict=True)]  # strict outside a model too
RandomSeed = Annotated[int, Field(ge=0, le=2**63 - 1)]
Ratio = Annotated[
    Fraction,
    BeforeValidator(_exact),
    Field(ge=0, le=1),
    PlainSerializer(float),
]


class Cached(Strict):
    """What each check and formal row must find cached, in tokens or as a ratio of prompt_len.

    aggregate: no bound for a row, but the ratio of all of them, within `tolerance` (0.005 where absent).
    cold: no bound and no seeds; each row finds what the rows before it on its rank have left.
    """

    min_ratio: Ratio | None = None
    tokens: CachedTokens | None = None
    max_tokens: CachedTokens | None = None
    aggregate: Ratio | None = None
    tolerance: Ratio | None = None
    cold: Literal[True] | None = None

    @property
    def warm(self) -> bool:
        """Whether rows share more than the framing head, so that there is something to seed."""
        return bool(self.min_ratio or self.tokens or self.aggregate)

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        given = [k for k in Cached.model_fields if k != "tolerance" and getattr(self, k) is not None]
        if not given:
            remedy = "Write {min_ratio: 0.9} for a warm set, {max_tokens: 0} for a zero set."
            expected = "one of min_ratio, tokens, max_tokens, aggregate, cold"
            raise refusal(expected=expected, found="none of them", remedy=remedy)
        if len(given) > 1 and given != ["min_ratio", "tokens"]:
            alone = next(key for key in ("max_tokens", "aggregate", "cold") if key in given)
            remedy = "Only min_ratio and tokens, which both bound a row from below, may stand together."
            raise refusal(expected=f"{alone} alone", found=" and ".join(given), remedy=remedy)
        if self.tolerance is not None and self.aggregate is None:
            raise refusal(expected="no tolerance without aggregate", found="one", key="tolerance")
        return self


class Level(Strict):
    """One level of a chain of prefixes: who shares it, and how long it is.

    Length: tokens, pages of the rule, or a ratio of the longest prompt of the class, floored to a page; the
    last level may leave it out and is then as long as each row's bound asks. groups: of each parent group.
    ranks: whether a group's rows are on all ranks, or on one rank.
    """

    shared_by: Literal["all", "rank", "group"] = "all"
    groups: Rows | None = None
    popularity: Popularity | None = None
    ranks: Literal["all", "one"] | None = None
    tokens: Tokens | None = None
    pages: Tokens | None = None
    ratio: Ratio | None = None

    @property
    def has_length(self) -> bool:
        """Whether the level says its length."""
        return self.tokens is not None or self.pages is not None or self.ratio is not None

    @model_validator(mode="after")
    def _groups_where_shared_by_group(self) -> Self:
        if self.shared_by == "group" and self.groups is None:
            remedy = "Add it, for example `groups: 8`."
            raise refusal(expected="the key groups", found="shared_by: group alone", remedy=remedy)
        if self.shared_by != "group":
            for key in ("groups", "popularity", "ranks"):
                if getattr(self, key) is not None:
                    found = f"{key}: {self.groups}" if key == "groups" else key
                    found += f" with shared_by: {self.shared_by}"
                    remedy = "Delete it, or write shared_by: group."
                    raise refusal(expected=f"no {key}", found=found, remedy=remedy, key=key)
        weights = self.popularity.weights if self.popularity else None
        if weights is not None and len(weights) != self.groups:
            expected, found = f"{self.groups} weights, one a group", str(len(weights))
            raise refusal(expected=expected, found=found, key="popularity")
        lengths = [key for key in ("tokens", "pages", "ratio") if getattr(self, key) is not None]
        if len(lengths) > 1:
            expected = "one of tokens, pages, ratio"
            raise refusal(expected=expected, found=" and ".join(lengths), key=lengths[1])
        return self


class Prefix(Level):
    """Which rows share one prefix: one level, or a chain of them. message: the message that holds it."""

    levels: Annotated[list[Level], Field(min_length=1)] | None = None
    message: Literal["user", "system"] | None = None

    @model_serializer(mode="wrap")
    def _written(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = written(self)
        if self.levels is not None:
            del content["shared_by"]
        return content

    @property
    def chain(self) -> list[Level]:
        """The levels, from the one that most rows share."""
        return self.levels if self.levels is not None else [self]

    @model_validator(mode="after")
    def _levels_alone(self) -> Self:
        if self.levels is None:
            return self
        beside = [k for k in Level.model_fields if k in self.model_fields_set]
        if beside:
            remedy = "Move it into one of the levels."
            raise refusal(
                expected="levels alone", found=f"{beside[0]} beside levels", remedy=remedy, key=beside[0]
            )
        for number, level in enumerate(self.levels):
            if number < len(self.levels) - 1 and not level.has_length:
                expected = "tokens, pages or ratio for each level but the last"
                raise refusal(expected=expected, found=f"none for level {number + 1}", key="levels")
            if number and level.shared_by == "all":
                expected = "rank or group for each level but the first"
                raise refusal(expected=expected, found=f"all for level {number + 1}", key="levels")
            above = self.levels[:number]
            if level.ranks == "one" and any(a.ranks == "one" or a.shared_by == "rank" for a in above):
                expected = "one level at most that says the rank of its rows"
                raise refusal(expected=expected, found=f"ranks: one for level {number + 1} too", key="levels")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind chosen by name (an encoding, a task) with its options, validated by the kind's own model."""

    name: str
    options: BaseModel


class EngineNumbers(Strict):
    """A cache rule given as its numbers. hit_quantum: page_size where absent. Quantities are tokens."""

    engine: EngineName = Field(examples=registry.names(engines)[:1])
    page_size: Tokens = Field(examples=["128"])
    hit_quantum: Tokens | None = None
    speculative: bool = False
    sliding_window: CachedTokens = 0
    retention: CachedTokens | None = None

    @model_validator(mode="after")
    def _whole_pages(self) -> Self:
        quantum, page_size = self.hit_quantum, self.page_size
        if quantum is not None and quantum % page_size:
            expected = f"a multiple of page_size {page_size}"
            remedy = f"The next one is {ceil_to(quantum, page_size)}."
            raise refusal(expected=expected, found=str(quantum), remedy=remedy, key="hit_quantum")
        if self.retention and not engines.engine(self.engine).retains:
            found = f"{self.retention}, a number that {self.engine} does not have"
            raise refusal(expected="no retention, or 0", found=found, key="retention")
        if self.retention and self.retention % (quantum or page_size):
            expected = f"a multiple of hit_quantum {quantum or page_size}"
            remedy = f"The next one is {ceil_to(self.retention, quantum or page_size)}."
            raise refusal(expected=expected, found=str(self.retention), remedy=remedy, key="retention")
        return self

    def rule(self) -> CacheRule:
        """Return the rule, named by its engine."""
        numbers = self.model_dump(exclude_none=True) | {"hit_quantum": self.hit_quantum or self.page_size}
        return engines.cache_rule(RuleNumbers(name=self.engine, **numbers))


class Session(Strict):
    """Conversations of `turns` requests: each sends all messages before it again, and one more.

    user_len: tokens of each user message but the first (body_len). assistant_len: tokens of each recorded
    answer. think_ms: between two turns.
    """

    turns: Annotated[int, Field(ge=1, le=1000)]
    user_len: Tokens
    assistant_len: Tokens
    think_ms: Annotated[int, Field(ge=0)] | None = None


class Trace(Strict):
    """Rows from a Mooncake trace: JSONL of timestamp (ms), input_length, output_length, hash_ids.

    sha256: of the file, which a manifest keeps. block_size: tokens of a hash id's block. limit: rows taken
    from the start. max_len: rows with a longer prompt are left out. time_scale: multiplies the timestamps.
    """

    path: Annotated[str, Field(min_length=1)]
    sha256: str | None = None
    block_size: Tokens = 512
    limit: Rows | None = None
    max_len: Tokens | None = None
    time_scale: Annotated[float | int, Field(gt=0, le=10**6)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """One class of requests; lengths are tokens.

    name: "" where the spec has one class. weight, count: its share of the formal rows, or their number.
    session: turns of a conversation, of which body_len is the first message.
    """

    name: str
    body_len: int | Distribution
    output_len: int | Distribution
    cached: Cached
    prefix: Prefix
    task: Kind
    weight: float | None = None
    count: int | None = None
    session: Session | None = None


class SeedSplit(Strict):
    """Seeds a rank and group. short: the shared prefix plus just enough; full: body_len."""

    per_rank: Annotated[int, Field(ge=0, le=MOST_ROWS)] = 1
    shape: Literal["short", "full"] = "short"


class CheckSplit(Strict):
    """Checks a rank."""

    per_rank: Annotated[int, Field(ge=0, le=MOST_ROWS)] = 1
    output_len: Tokens = 1


class FormalSplit(Strict):
    """Formal rows: in all, or a rank; exactly one of the two."""

    total: Rows | None = None
    per_rank: Rows | None = None

    @model_validator(mode="after")
    def _one_count(self) -> Self:
        if (self.total is None) == (self.per_rank is None):
            found = "neither" if self.total is None else "both"
            remedy = "Write {total: 640}, for example." if self.total is None else "Delete one of them."
            raise refusal(expected="total or per_rank", found=found, remedy=remedy)
        return self

    def rows(self, dp_ranks: int) -> int:
        """Return the formal rows of all ranks."""
        return self.total or (self.per_rank or 0) * dp_ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """seed is None where nothing is shared."""

    seed: SeedSplit | None
    check: CheckSplit
    formal: FormalSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A validated spec. content: the normalised spec as JSON values, what the manifest keeps.

    content holds each default but no key that is None: a key that joins the grammar later is None where an
    old spec does not name it, so that the fingerprints of old sets hold. requests: its classes; of a trace,
    one, which says the task alone. inputs: the files that it names, by their path inside a built set. lines:
    of the keys in the file.
    """

    name: str
    random_seed: int
    encoding: Kind
    cache: CacheRule
    dp_ranks: int
    requests: tuple[Requests, ...]
    splits: Splits
    content: dict[str, Any]
    place: str
    trace: Trace | None = None
    rounds: int = 1
    order: Order = "generated"
    arrivals: Arrivals | None = None
    inputs: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    lines: Mapping[KeyPath, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def folder(self) -> Path:
        """Where the relative files that its tasks name stand: beside it.

        A manifest does not say where its spec was: the current folder is the best guess.
        """
        return Path() if Path(self.place).name == _BUILT else Path(self.place).parent

    def at(self, *path: str | int) -> str:
        """Return 'file:line key.path' for a message about the value at a path of keys."""
        return Places(source=self.place, lines=self.lines).at(path)
