"""Exporters: one short file a client; pure, rows in, (name, bytes) out, streaming.

An exporter is one module here that is an `Exporter`: its name is the client's.

What other rooms import of it, beside the names below:
_run_card  the run card of an export
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import orjson

from wlgen.encodings import Message
from wlgen.engines import PairWay, engine
from wlgen.workload.manifest import Manifest
from wlgen.workload.rows import KEYS, OptionalKeys, Row
from wlgen.workload.splits import Split

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Chunk: TypeAlias = bytes | memoryview
File: TypeAlias = tuple[str, Iterator[Chunk]]
FileUnit: TypeAlias = Literal["split", "rank", "rank where pinned by header"]


@dataclass(frozen=True, slots=True)
class Json:
    """A text as the JSON string that it is, quotes and escapes included: written without decoding it."""

    raw: Chunk

    @property
    def text(self) -> str:
        """The text itself, decoded."""
        decoded: str = orjson.loads(self.raw)
        return decoded


class Said(NamedTuple):
    """One message of a prompt, its content not decoded."""

    role: str
    content: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt(OptionalKeys):
    """A row as exporters see it: the fields of Row, its texts not decoded, and its ids where a form has them.

    ids: shape (prompt_len,). To decode 128K prompts and encode them again is most of a naive export.
    """

    id: str
    split: Split
    dp_rank: int
    group: str
    round: int
    messages: tuple[Said, ...]
    body_len: int
    prompt_len: int
    shared_len: int
    cached_len: int
    output_len: int
    prompt_sha256: str
    ids: NDArray[np.uint32] | None = None

    @classmethod
    def of(cls, row: Row, ids: NDArray[np.uint32] | None = None) -> Prompt:
        """Return the prompt of a row."""
        said = tuple(Said(role, Json(orjson.dumps(content))) for role, content in row.messages)
        return cls(**{name: getattr(row, name) for name in FIELDS} | {"messages": said, "ids": ids})

    def row(self) -> Row:
        """Return the row, its texts decoded."""
        messages = tuple(Message(role, content.text) for role, content in self.messages)
        return Row(**{name: getattr(self, name) for name in FIELDS} | {"messages": messages})


FIELDS = KEYS  # of a row, in the order of its line


def part(split: Split, round_: int) -> str:
    """Return the name of a split of a round, as files and results bear it; seeds are of all rounds."""
    return f"{split}-round-{round_}" if round_ else split


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way in which a client's files carry the prompts.

    name: what `--form` takes. about: what the files hold, for help and errors.
    ids: the prompts come with their ids. tokenizer: the files include a tokenizer folder.
    completes: the prompts go to /v1/completions even where the set is a chat, as ids do for most clients.
    """

    name: str
    about: str
    ids: bool = False
    tokenizer: bool = False
    completes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What an export is made for.

    form: a name of the exporter's FORMS. folder: where the files will stand, absolute, forward slashes.
    model: the server's model name for whole request bodies; "" leaves it out. tokenizer: tokenizer.json,
    b"" unless the form asks for it. pair: the way to the servers of a prefill/decode pair; None for one
    server.
    """

    manifest: Manifest
    form: str
    folder: str
    model: str = ""
    tokenizer: bytes = b""
    pair: PairWay | None = None

    @property
    def has_times(self) -> bool:
        """Whether rows have a timestamp_ms."""
        spec = self.manifest.spec
        return bool(spec.get("arrivals")) or "trace" in spec["requests"]

    @property
    def builds_up(self) -> bool:
        """Whether rows find what earlier formal rows left: conversations, traces, classes that begin cold."""
        classes = self.manifest.classes
        return any({"session", "trace"} & of.keys() or (of.get("cached") or {}).get("cold") for of in classes)

    @property
    def pin_fields(self) -> tuple[str, ...]:
        """The keys of a body that hold the row's rank; none if the engine takes the rank in a header alone.

        SGLang takes ("routed_dp_rank",), and on a pair behind mini_lb "disagg_prefill_dp_rank" beside it.
        """
        if self.pair:
            return self.pair.pin_fields
        field = engine(self.manifest.cache.engine).pin_field
        return () if field is None else (field,)

    @property
    def pins_in_body(self) -> bool:
        """Whether the set's engine takes the rank in the body: SGLang does, vLLM only in a header."""
        return bool(self.pin_fields)

    @property
    def is_chat(self) -> bool:
        """Whether the set's text goes to a chat endpoint."""
        return bool(self.manifest.encoding.get("chat", True))

    @property
    def template_kwargs(self) -> dict[str, Any]:
        """{"chat_template_kwargs": ...} where the set's framing needs it of each chat request, or {}."""
        kwargs = dict(self.manifest.encoding.get("server_kwargs") or {})
        return {"chat_template_kwargs": kwargs} if kwargs and self.is_chat else {}

    def apart(self, unit: FileUnit) -> bool:
        """Return whether the files are one a rank."""
        return unit == "rank" or (unit != "split" and not self.pins_in_body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """What was exported of one split, round and rank. All lengths are in tokens.

    output_lens: the distinct ones, ascending. cached_lens: the least and the most. request_len: of the
    longest request, its prompt with framing and its output. shared_len: of all prefixes that the rows share,
    each once. own_lens: the most that one row adds to its cached tokens, output included, and the sum of all
    rows. behind: of a row that continues another one, how many rows after it the file has it, at the least;
    None where no row continues another one. Two conversations that take turns have 2.
    """

    split: Split
    round: int
    dp_rank: int
    rows: int
    output_lens: tuple[int, ...]
    cached_lens: tuple[int, int]
    request_len: int = 0
    shared_len: int = 0
    own_lens: tuple[int, int] = (0, 0)
    behind: int | None = None

    @property
    def part(self) -> str:
        """What is run at once: "formal", or "formal-round-1" of a later round."""
        return part(self.split, self.round)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCard:
    """How a person runs the files: shell, and Markdown whose lines start with "- ".

    source, checked: CLIENT and CHECKED of the exporter. install: what `pip install` is given, in an
    environment for this client alone; "" if there is nothing to install. setup: variables of the commands,
    beside those that every card sets. commands: part -> exact shell lines. audit: what `wlgen audit` is given
    after the set, with PART for the part, "" where nothing can be audited. off: each known trap and what
    switches it off. blind: what the client does not report, in a sentence or two, and what tells it instead;
    "" if it reports all that an audit asks. limits: what this client cannot do.
    """

    source: str
    checked: bool
    install: str = ""
    setup: str
    commands: Mapping[str, str]
    audit: str
    off: str
    blind: str = ""
    limits: str = ""


class Exporter(Protocol):
    """What each module of this folder provides.

    CLIENT: the client and version that the module's facts are of. CHECKED: whether tests/clients and
    tests/servers ran this version by its card. FORMS: the first is the default. ONE_FILE_A: a split, whose
    rows come from the ranks in turn (a client that sends in file order then loads them evenly); a rank; or a
    rank only where the engine takes the rank in a header alone and this client has one header a run.
    TAKES_TIMES: whether the client sends each row at its own time; the ranks' rows then come in the order of
    their times, where they have any.
    """

    CLIENT: str
    CHECKED: bool
    FORMS: tuple[Form, ...]
    ONE_FILE_A: FileUnit
    TAKES_TIMES: bool

    def files(self, prompts: Iterable[Prompt], target: Target) -> Iterator[File]:
        """Yield each file's relative name and its chunks; a file is consumed before the next is asked for.

        The prompts are consumed lazily. WlgenError names the first row the client cannot carry.
        """

    def run_card(self, target: Target, portions: Sequence[Portion]) -> RunCard:
        """Return the run card of the portions that were exported."""
