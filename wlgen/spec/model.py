"""The spec: what a person asks for. The same models validate it, feed the plan, and write the manifest.

A spec is a DrawnSpec, whose rows are drawn from classes, or a TraceSpec, whose rows a trace lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapSerializer,
    WrapValidator,
    model_validator,
)

from wlgen.cache.rule import CacheRule
from wlgen.spec.arrivals import Arrivals
from wlgen.spec.inputs import Inputs
from wlgen.spec.kinds import CacheKind, EncodingKind, TaskKind
from wlgen.spec.lengths import Length
from wlgen.spec.popularity import Weight
from wlgen.spec.prefix import Prefix
from wlgen.spec.splits import CheckSplit, Rows, SeedSplit, Splits, TraceSplits
from wlgen.strict.model import Strict, key, refusal
from wlgen.strict.problems import Places
from wlgen.workload.bounds import UNBOUNDED, Bound, Tokens

Order: TypeAlias = Literal["generated", "group", "interleaved", "shuffled", "short_to_long"]
DEFAULT_ENCODING = {"name": "deepseek-v4"}
DEFAULT_TASK = {"name": "copy"}
_BUILT = "manifest.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


def _folder_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        near = re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-._")[:100]
        expected = "a folder name: a-z, 0-9, dots, _ and -, a letter or digit first, at most 100"
        raise refusal(expected=expected, remedy=f"Write {near}." if near else "")
    return name


Name = Annotated[str, AfterValidator(_folder_name)]
Ranks = Annotated[int, Field(ge=1, le=2**16, strict=True)]  # strict outside a model too
RandomSeed = Annotated[int, Field(ge=0, le=2**63 - 1)]


class Session(Strict):
    """Conversations: each request sends all earlier messages of its conversation again, and one more."""

    turns: Annotated[int, Field(ge=1, le=1000)] = key(
        "Requests in one conversation. The number of formal rows must be a multiple of it.",
        unit="rows",
        example="6",
    )
    user_len: Tokens = key(
        "The length of each user message but the first, which has body_len tokens.",
        unit="tokens",
        example="200",
    )
    assistant_len: Tokens = key("The length of each recorded answer.", unit="tokens", example="150")
    think_ms: Annotated[int, Field(ge=0, le=10**9)] | None = key(
        "The time from one turn of a conversation to the next. Left out, rows have no times.",
        unit="milliseconds",
        example="2000",
        default=None,
    )


class Trace(Strict):
    """Rows of a Mooncake trace: JSONL lines of timestamp, input_length, output_length and hash_ids."""

    path: Annotated[str, Field(min_length=1)] = key(
        "The trace's file, relative to the spec. ~ and $VARIABLES are expanded. The built set keeps a copy.",
        example="trace.jsonl",
    )
    sha256: str | None = key(
        "The file's SHA-256 in hex. A manifest holds it; in a spec it makes a changed file an error.",
        example="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        default=None,
    )
    block_size: Tokens = key(
        "Tokens of the prompt that one hash id stands for.", unit="tokens", example="16", default=512
    )
    limit: Rows | None = key(
        "Rows taken from the start of the trace.", unit="rows", example="1000", default=None
    )
    min_len: Tokens | None = key(
        "Rows with a shorter prompt are left out. The plan prints how many.",
        unit="tokens",
        example="5",
        default=None,
    )
    max_len: Tokens | None = key(
        "Rows with a longer prompt are left out. The plan prints how many.",
        unit="tokens",
        example="131072",
        default=None,
    )
    time_unit: Literal["ms", "s"] | None = key(
        "The unit of the timestamps. Left out, whole numbers are milliseconds, as in Mooncake's traces, and "
        "61.114 is an error until you say whether it is ms or s.",
        example="s",
        default=None,
    )
    time_scale: Annotated[float | int, Field(gt=0, le=10**6)] | None = key(
        "Multiplies the timestamps: 2 sends the trace at half its speed.", example="0.5", default=None
    )

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> Self:
        inputs: Inputs | None = info.context
        if inputs is None:  # `spec.checks` validates parts of a spec alone, and reads no files
            return self
        kept = inputs.take(self.path, self.sha256)
        return self.model_copy(update={"path": kept.path, "sha256": kept.sha256})


class Requests(Strict):
    """One class of requests: how long they are, what they share, and how much of them must be cached."""

    left_out = frozenset({"name", "weight"})
    misnamed: ClassVar[Mapping[str, str]] = {
        "prompt_len": "Write 'body_len': the plan adds the tokens of the chat framing to it."
    }

    body_len: Length = key(
        "Tokens of the message text, the chat framing left out: one number or a distribution.",
        unit="tokens",
        example="131072",
    )
    output_len: Length = key(
        "Tokens that the server must generate: one number or a distribution.", unit="tokens", example="1024"
    )
    cached: Bound = key("What each check and formal row must find cached.", example="{min_ratio: 0.9}")
    prefix: Prefix = key(
        "Which rows share one prefix, and how long it is.", example="{shared_by: all}", default=Prefix()
    )
    task: TaskKind = key(
        "What the text of a request asks for.",
        example="{name: copy}",
        default=DEFAULT_TASK,
        validate_default=True,
    )
    session: Session | None = key(
        "Turns of a conversation. Left out, each request stands alone.",
        example="{turns: 6, user_len: 200, assistant_len: 150}",
        default=None,
    )
    name: Name = key(
        "The class's name. Only in a list of classes, where each has one.", example="cold", default=""
    )
    weight: Weight = key(
        "The class's share of the formal rows beside the other weights. Only in a list of classes.",
        example="1",
        default=1,
    )
    count: Rows | None = key(
        "The class's exact number of formal rows, instead of a weight. Only in a list of classes.",
        unit="rows",
        example="320",
        default=None,
    )


class TraceRequests(Strict):
    """Requests that a trace lists."""

    trace: Trace = key("The trace that lists the rows.", example="{path: trace.jsonl}")
    task: TaskKind = key(
        "What the text of a request asks for.",
        example="{name: copy}",
        default=DEFAULT_TASK,
        validate_default=True,
    )


class CommonKeys(Strict):
    """The keys that every spec has. Beside them a spec keeps its file's path and the line of each key."""

    left_out = frozenset({"rounds"})

    name: Name = key("The name of the set and of its folder.", example="warm-128k")
    random_seed: RandomSeed = key(
        "Chooses the texts. Sets of one random_seed share text with each other, so give each its own.",
        example="20261018",
        default=0,
    )
    encoding: EncodingKind = key(
        "The tokenizer and the chat framing of the server under test.",
        example="{name: deepseek-v4}",
        default=DEFAULT_ENCODING,
        validate_default=True,
    )
    chosen_rule: CacheKind = key(
        "How the engine under test reuses prefixes: a named rule, or an engine with its numbers.",
        example="{rule: sglang}",
        alias="cache",
    )
    dp_ranks: Ranks = key(
        "Data-parallel ranks of the server, each with a prefix cache of its own.",
        unit="ranks",
        example="16",
        default=1,
    )
    rounds: Annotated[int, Field(ge=1, le=1000)] = key(
        "How many times there are new checks and formal rows over the same prefixes: a server that keeps its "
        "cache can run the set that often.",
        unit="rounds",
        example="3",
        default=1,
    )
    _places: Places = PrivateAttr(default=Places(source=""))
    _inputs: Mapping[str, bytes] = PrivateAttr(default_factory=dict)

    def read_from(self, places: Places, inputs: Mapping[str, bytes]) -> Self:
        """Return the spec with the places of its keys, and with its files' bytes by their path in the set."""
        spec = self.model_copy()
        spec._places, spec._inputs = places, inputs  # noqa: SLF001 (its own)
        return spec

    @property
    def cache(self) -> CacheRule:
        """The cache rule of the engine under test."""
        return self.chosen_rule.rule

    @property
    def place(self) -> str:
        """What messages call the spec: the path of its file."""
        return self._places.source

    @property
    def inputs(self) -> Mapping[str, bytes]:
        """The bytes of the files that the spec names, by their path inside a built set."""
        return self._inputs

    @cached_property
    def content(self) -> dict[str, Any]:
        """The spec as JSON values: what the manifest keeps, and what the fingerprint covers.

        It holds every default and no key that is None, so that a spec that writes a default out has the same
        fingerprint as one that leaves it out.
        """
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @property
    def folder(self) -> Path:
        """The folder from which a task's relative paths start: the spec's own.

        A manifest does not say where its spec stood: a spec read from one takes the current folder.
        """
        return Path() if Path(self.place).name == _BUILT else Path(self.place).parent

    def at(self, *path: str | int) -> str:
        """Return 'file:line key.path' for a message about the value at a path of keys."""
        return self._places.at(path)


def _one_or_several(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Take one class as a list of one. Messages still say requests.cached: they follow the mapping."""
    return validate(value if isinstance(value, list | tuple) else [value])


def _as_asked(classes: Any, write: SerializerFunctionWrapHandler) -> Any:
    """Write a single class, which has no name, as the mapping that it was in the spec."""
    written = write(classes)
    return written if classes[0].name else written[0]


class DrawnSpec(CommonKeys):
    """A spec whose rows are drawn from one class of requests, or from several."""

    left_out = frozenset({"rounds", "order"})

    requests: Annotated[
        tuple[Requests, ...],
        Field(min_length=1, strict=False),
        WrapValidator(_one_or_several),
        WrapSerializer(_as_asked),
    ] = key(
        "The requests: one class, a list of classes that each have a name, or a trace.",
        example="{body_len: 131072, output_len: 1024, cached: {min_ratio: 0.9}}",
    )
    splits: Splits = key(
        "How many seeds, checks and formal rows there are.", example="{formal: {total: 640}}"
    )
    order: Order = key(
        "The order of a rank's formal rows in its file.", example="shuffled", default="generated"
    )
    arrivals: Arrivals | None = key(
        "When each row is sent. Left out, rows have no times and a client sends them as fast as it can.",
        example="{rate: 10}",
        default=None,
    )

    @property
    def trace(self) -> None:
        """None: the rows are drawn."""

    @model_validator(mode="after")
    def _splits_resolved(self) -> Self:
        """Give seeds to a warm set only, and no checks to a cold one: they would fill its cache."""
        splits = self.splits
        warm = any(of.cached.warm for of in self.requests)
        cold = any(of.cached.cold for of in self.requests)
        check = CheckSplit(per_rank=0) if cold else splits.check
        seed = (splits.seed or SeedSplit()) if warm else None
        resolved = splits.model_copy(update={"seed": seed, "check": check})
        return self.model_copy(update={"splits": resolved})


class TraceSpec(CommonKeys):
    """A spec whose rows a trace lists."""

    order: ClassVar[Order] = "generated"
    arrivals: ClassVar[None] = None

    asked: TraceRequests = key(
        "The requests: a trace and the task that writes their texts.",
        example="{trace: {path: trace.jsonl}}",
        alias="requests",
    )
    splits: TraceSplits = key(
        "How many formal rows there are.", example="{formal: {total: 640}}", default=TraceSplits()
    )

    @property
    def trace(self) -> Trace:
        """The trace."""
        return self.asked.trace

    @cached_property
    def requests(self) -> tuple[Requests, ...]:
        """One class for all rows. Only its task counts: the trace gives lengths and sharing."""
        one = Requests.model_construct(body_len=1, output_len=1, cached=UNBOUNDED, task=self.asked.task)
        return (one,)


Spec: TypeAlias = DrawnSpec | TraceSpec
