"""Witnesses: what a server says of itself; one short file for each kind of record, pure and streaming.

Clients drop figures that servers keep. `vllm bench serve` stores no cached tokens, but vLLM's counters,
SGLang's request files and SGLang's log do. A kind is one module here with OPTION, the option of `wlgen audit`
that takes its files; `claims(opening)`, whether a file that begins with these bytes is surely of this kind;
and `read(name, content)`, which yields values in file order. A line that cannot be read is yielded as a
Problem in its place, so that the rest of the file is still read. Parsing only: `wlgen/server/scrape.py` asks.

What other rooms import of it, beside the names below:
_scrape_file  the JSON of a scrape file, written and read
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Literal, Protocol, TypeAlias

from wlgen.errors import Problem

Role: TypeAlias = Literal["plain", "prefill", "decode"]
ROLES: tuple[Role, ...] = ("plain", "prefill", "decode")
TIERS = ("device", "host", "storage", "external")  # where a hit lay; external: in another server's store

# What a server counts, in wlgen's own words; the engines' names for them stand with the engines.
# computed, hit_*: tokens of admitted prefill work by rank, which SGLang counts apart from finished requests.
COUNTS = (
    "requests",
    "prompt_tokens",
    "cached_tokens",
    *(f"cached_{tier}" for tier in TIERS),
    "output_tokens",
    "aborted",
    "retracted",
    "verify_steps",
    "drafts",
    "proposed_tokens",
    "accepted_tokens",
    "computed",
    *(f"hit_{tier}" for tier in TIERS),
)
GAUGES = ("running", "waiting")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCounts:
    """The counters of one server at one moment.

    total: of the whole server. ranks: of each data-parallel rank, if its labels tell ranks apart. Keys are
    COUNTS and GAUGES; a key that is absent is unknown, which is not 0. started: a number that tells this
    start of the process from every other one (vLLM: when it began, in seconds since 1970; SGLang: how many
    seconds the start took, 52.28871300400351), None if the server does not say. missing: what it does not
    count, and the flag that makes it.
    """

    url: str
    role: Role
    engine: str
    started: float | None = None
    total: Mapping[str, int] = field(default_factory=dict)
    ranks: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What `wlgen prepare` served between its flush and the scrape: its own seeds and checks.

    flushed: the counters right after the flush. requests, prompt_tokens, cached_tokens: what the answers to
    seeds and checks sum to. set_sha256: the spec's fingerprint.
    """

    set_sha256: str
    flushed: tuple[ServerCounts, ...]
    requests: int
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """The counters of all servers of a run at one moment.

    time: ISO 8601, UTC. quiet: two readings a second apart were equal and nothing ran or waited.
    """

    time: str
    quiet: bool
    servers: tuple[ServerCounts, ...]
    prepared: Prepared | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequest:
    """One request as its server recorded it. None means that the server did not say.

    id: the request's id, a row's id where the client sent it. text_sha256, prompt_sha256: of the text that
    the server was sent, of the ids (little-endian uint32); both absent where prompts are left out.
    received: when the server received it, in seconds since 1970 on the server's clock.
    tiers: cached tokens by where they lay. verify_steps: of speculative decoding. accept_rate: accepted
    drafts / draft slots.
    """

    place: str
    id: str | None = None
    text_sha256: str | None = None
    prompt_sha256: str | None = None
    success: bool = True
    error: str = ""
    received: float | None = None
    dp_rank: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    tiers: Mapping[str, int] | None = None
    verify_steps: int | None = None
    accept_rate: float | None = None
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillBatch:
    """One prefill batch of a log: tokens computed and tokens found in the cache.

    A request of 16388 tokens that is prefilled in chunks of 8192 stands in three batches, so batches give
    sums and never a request.
    """

    place: str
    dp_rank: int | None
    computed: int
    cached: int


Told: TypeAlias = Scrape | ServedRequest | PrefillBatch


class Witness(Protocol):
    """What a module of this folder offers."""

    OPTION: str

    def claims(self, opening: bytes) -> bool:
        """Return whether a file that opens with these bytes is surely of this kind."""
        ...

    def read(self, name: str, content: BinaryIO) -> Iterator[Told | Problem]:
        """Yield what one file says, in file order, streaming; `name` is for messages."""
        ...
