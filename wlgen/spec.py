"""The spec: what a person asks for, validated. Reading it from YAML, with file:line, is spec_file's work."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, PlainSerializer, model_validator

from wlgen.cache_rules import CacheRule, Engine
from wlgen.pages import ceil_to
from wlgen.places import KeyPath, Places
from wlgen.strict import Strict, refusal

MOST_TOKENS = 2**31
MOST_ROWS = 10**9
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


Name = Annotated[str, AfterValidator(_folder_name)]
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
    """What each check and formal row must find cached, in tokens or as a ratio of prompt_len."""

    min_ratio: Ratio | None = None
    tokens: CachedTokens | None = None
    max_tokens: CachedTokens | None = None

    @property
    def warm(self) -> bool:
        """Whether the bound asks for cached tokens, so that rows share more than the framing head."""
        return bool(self.min_ratio or self.tokens)

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        given = [key for key in Cached.model_fields if getattr(self, key) is not None]
        if not given:
            remedy = "Write {min_ratio: 0.9} for a warm set, {max_tokens: 0} for a zero set."
            raise refusal(expected="min_ratio, tokens or max_tokens", found="none of them", remedy=remedy)
        if self.max_tokens is not None and len(given) > 1:
            found = " and ".join(given)
            remedy = "max_tokens bounds a set from above, the other two from below: keep one side."
            raise refusal(expected="max_tokens alone", found=found, remedy=remedy)
        return self


class Prefix(Strict):
    """Which rows share one prefix."""

    shared_by: Literal["all", "rank", "group"] = "all"
    groups: Rows | None = None

    @model_validator(mode="after")
    def _groups_where_shared_by_group(self) -> Self:
        if self.shared_by == "group" and self.groups is None:
            remedy = "Add it, for example `groups: 8`."
            raise refusal(expected="the key groups", found="shared_by: group alone", remedy=remedy)
        if self.shared_by != "group" and self.groups is not None:
            expected, found = "no groups", f"groups: {self.groups} with shared_by: {self.shared_by}"
            remedy = "Delete it, or write shared_by: group."
            raise refusal(expected=expected, found=found, remedy=remedy, key="groups")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind chosen by name (an encoding, a task) with its options, validated by the kind's own model."""

    name: str
    options: BaseModel


class EngineNumbers(Strict):
    """A cache rule given as its numbers. hit_quantum: page_size where absent. Quantities are tokens."""

    engine: Engine = Field(examples=["sglang"])
    page_size: Tokens = Field(examples=["128"])
    hit_quantum: Tokens | None = None
    speculative: bool = False
    sliding_window: CachedTokens = 0

    @model_validator(mode="after")
    def _whole_pages(self) -> Self:
        quantum, page_size = self.hit_quantum, self.page_size
        if quantum is not None and quantum % page_size:
            expected = f"a multiple of page_size {page_size}"
            remedy = f"The next one is {ceil_to(quantum, page_size)}."
            raise refusal(expected=expected, found=str(quantum), remedy=remedy, key="hit_quantum")
        return self

    def rule(self) -> CacheRule:
        """Return the rule, named by its engine."""
        numbers = self.model_dump() | {"hit_quantum": self.hit_quantum or self.page_size}
        return CacheRule(name=self.engine, **numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """One class of requests; lengths are tokens."""

    body_len: int
    output_len: int
    cached: Cached
    prefix: Prefix
    task: Kind


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
    old spec does not name it, so that the fingerprints of old sets hold. lines: of the keys in the file.
    """

    name: str
    random_seed: int
    encoding: Kind
    cache: CacheRule
    dp_ranks: int
    requests: Requests
    splits: Splits
    content: dict[str, Any]
    place: str
    lines: Mapping[KeyPath, int] = field(default_factory=dict, compare=False, repr=False)

    def at(self, *path: str | int) -> str:
        """Return 'file:line key.path' for a message about the value at a path of keys."""
        return Places(source=self.place, lines=self.lines).at(path)
