"""The spec: what a person asks for, validated. Reading it from YAML, with file:line, is spec_file's work."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from wlgen.cache_rules import CacheRule


class Strict(BaseModel):
    """A frozen model that takes no unknown key and converts no type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _exact(value: object) -> object:
    # 0.9 in YAML means nine tenths, not the nearest binary double.
    return Fraction(str(value)) if type(value) in (int, float) else value


Tokens = Annotated[int, Field(ge=1, le=2**31)]
Ratio = Annotated[
    Fraction,
    BeforeValidator(_exact),
    Field(ge=0, le=1),
    PlainSerializer(float),
]


class Cached(Strict):
    """What each check and formal row must find cached, in tokens or as a ratio of prompt_len."""

    min_ratio: Ratio | None = None
    tokens: Annotated[int, Field(ge=0)] | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None


class Prefix(Strict):
    """Which rows share one prefix."""

    shared_by: Literal["all", "rank", "group"] = "all"
    groups: Annotated[int, Field(ge=1)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind chosen by name (an encoding, a task) with its options, validated by the kind's own model."""

    name: str
    options: BaseModel


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

    per_rank: Annotated[int, Field(ge=0)] = 1
    shape: Literal["short", "full"] = "short"


class CheckSplit(Strict):
    """Checks a rank."""

    per_rank: Annotated[int, Field(ge=0)] = 1
    output_len: Tokens = 1


class FormalSplit(Strict):
    """Formal rows: in all, or a rank; exactly one of the two."""

    total: Annotated[int, Field(ge=1)] | None = None
    per_rank: Annotated[int, Field(ge=1)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """seed is None where nothing is shared."""

    seed: SeedSplit | None
    check: CheckSplit
    formal: FormalSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A validated spec. content: the normalised spec as JSON values, what the manifest keeps."""

    name: str
    random_seed: int
    encoding: Kind
    cache: CacheRule
    dp_ranks: int
    requests: Requests
    splits: Splits
    content: dict[str, Any]
    place: str
