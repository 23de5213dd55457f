"""The grammar of a spec's file, as strict models; examples are what a message shows for a missing key."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import Field

from wlgen.spec.arrivals import Arrivals
from wlgen.spec.lengths import Length
from wlgen.spec.model import (
    Cached,
    CheckSplit,
    FormalSplit,
    Name,
    Order,
    Prefix,
    RandomSeed,
    Ranks,
    Rows,
    SeedSplit,
    Session,
    Trace,
)
from wlgen.spec.popularity import Weight
from wlgen.strict.model import Strict

DEFAULT_ENCODING = {"name": "deepseek-v4"}
DEFAULT_TASK = {"name": "copy"}


class ClassFields(Strict):
    """What the rows of a class are."""

    body_len: Length = Field(examples=["131072"])
    output_len: Length = Field(examples=["1024"])
    cached: Cached = Field(examples=["{min_ratio: 0.9}"])
    prefix: Prefix = Field(default=Prefix(), examples=["{shared_by: all}"])
    task: dict[str, Any] = Field(default=DEFAULT_TASK, examples=["{name: copy}"])
    session: Session | None = Field(default=None, examples=["{turns: 6, user_len: 200, assistant_len: 150}"])


class NamedClass(ClassFields):
    """One of several classes, and its share."""

    name: Name = Field(examples=["cold"])
    weight: Weight | None = Field(default=None, examples=["1"])
    count: Rows | None = Field(default=None, examples=["320"])


class TraceRequests(Strict):
    """Rows taken from a trace."""

    trace: Trace = Field(examples=["{path: trace.jsonl}"])
    task: dict[str, Any] = Field(default=DEFAULT_TASK, examples=["{name: copy}"])


class SplitFields(Strict):
    """The splits of rows drawn from classes."""

    seed: SeedSplit | None = Field(default=None, examples=["{per_rank: 1}"])
    check: CheckSplit = Field(default=CheckSplit(), examples=["{per_rank: 1}"])
    formal: FormalSplit = Field(examples=["{total: 640}"])


class TraceFormal(Strict):
    """Formal rows of a trace: at most `total`."""

    total: Rows | None = None


class TraceSplits(Strict):
    """The splits of a trace: formal rows alone."""

    formal: TraceFormal = Field(default=TraceFormal(), examples=["{total: 640}"])


class CommonFields(Strict):
    """The grammar. The mappings that choose a kind are checked by that kind's own model."""

    name: Name = Field(examples=["warm-128k"])
    random_seed: RandomSeed = 0
    encoding: dict[str, Any] = Field(default=DEFAULT_ENCODING, examples=["{name: deepseek-v4}"])
    cache: dict[str, Any] = Field(examples=["{rule: sglang}"])
    dp_ranks: Ranks = 1
    rounds: Annotated[int, Field(ge=1, le=1000)] | None = None


class SingleFile(CommonFields):
    """A spec of one class."""

    requests: ClassFields = Field(examples=["{body_len: 131072, output_len: 1024, cached: {min_ratio: 0.9}}"])
    splits: SplitFields = Field(examples=["{formal: {total: 640}}"])
    order: Order | None = None
    arrivals: Arrivals | None = Field(default=None, examples=["{rate: 10}"])


class ClassesFile(SingleFile):
    """A spec of several classes."""

    requests: Annotated[list[NamedClass], Field(min_length=1)]  # type: ignore[assignment]


class TraceFile(CommonFields):
    """A spec of a trace."""

    requests: TraceRequests
    splits: TraceSplits = TraceSplits()


AnyFile: TypeAlias = SingleFile | ClassesFile | TraceFile
