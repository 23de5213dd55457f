"""What wlgen must know of an engine: one value that each file of this folder fills in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wlgen.cache.rule import CacheRule, PrefixCache, RuleNumbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The names of an engine's counters on /metrics, and what each of them counts.

    prefix: what every name begins with. flag: how to start the server so that it has /metrics, "" if it
    always has. rank_label: the label that holds the rank. plain: a counter's name -> what it counts.
    divided: a counter's name -> (label, the label's value -> what such samples count); "" stands for every
    other value. needed: a count -> what to do if the page lacks it. zero: counts that are 0 if the page
    lacks them, since a counter with labels appears with its first event. sums: a count that an older server
    lacks -> the counts that it is the sum of. start: a number that a process sets once, when it starts, and
    that tells a restart: seconds since 1970, or how long the start took.
    """

    prefix: str
    flag: str
    rank_label: str
    plain: Mapping[str, str]
    divided: Mapping[str, tuple[str, Mapping[str, tuple[str, ...]]]]
    needed: Mapping[str, str]
    zero: tuple[str, ...]
    sums: Mapping[str, tuple[str, ...]]
    start: str = "process_start_time_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairWay:
    """One way from a client to the servers of a prefill/decode pair, and what becomes of a pin on it.

    name: what `wlgen export --pair` takes. about: what stands on this way, in a few words.
    pin_fields: the body's keys that pin a request to a prefill rank; empty if no client can pin on this way.
    routes: the routes on which the way keeps these keys. takes_ids: whether /v1/completions takes token ids.
    binds_decode: whether the pin binds the decode rank, too: 16 prefill ranks then need 16 decode ranks.
    start: the shell line that starts it, with $PREFILL and $DECODE for its servers; "" if wlgen knows none.
    source: where these facts were run or read.
    """

    name: str
    about: str
    pin_fields: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    takes_ids: bool = True
    binds_decode: bool = False
    start: str = ""
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What the shell lines that start a server of this engine depend on.

    ranks: its data-parallel ranks. page_size: tokens of a page. context_len: tokens that the longest request
    needs, its prompt with framing and its output. role: "prefill" or "decode" in a pair, "" for a plain
    server.
    """

    ranks: int
    page_size: int
    context_len: int
    role: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The facts of one engine. Quantities are tokens; a page is a path of its HTTP server.

    Reuse:
    name: as in a spec. title: as its makers write it.
    rule: adds the engine's facts to a rule's numbers. new_cache: makes the cache that replays a rule, from
    the rule, the capacity (None for no limit) and the tokens of a prefill chunk.
    retains: whether the engine has the setting `retention`, the distance between points where a hybrid model
    keeps state.
    prefill_adder: whether its scheduler cuts prompts into prefill rounds as SGLang's PrefillAdder does.

    Its server:
    own_pages: pages that only this engine has, so that an answer tells which engine runs.
    page_size_pages: pages to read one after the other until `read_page_size` finds the page size in the text.
    pin_field: the key of a request's body that names its rank; None if only the header X-Data-Parallel-Rank
    does.
    completion_fields: the keys that a completions body needs beside the prompt, from whether the server must
    add the tokenizer's own tokens around a text.
    native_page, native_body: a page that takes token ids and reports cached tokens whatever the flags, and
    its body for (ids, rank or None); None if the engine has no such page.
    flush_page: the page to POST to, from the seconds that the server may wait for running requests.
    flushed: whether every cache is empty now, from the status and content of that page's answer; None if the
    answer is an error of another kind.
    no_flush_page: what to do if the server has no such page.
    report_flag: what to do if `usage` lacks cached tokens.
    counters: the names of its counters. load_page: a page that says, whatever the flags, how many tokens each
    rank has computed, which `read_computed` reads; "" if the engine has none.
    idle_proofs: groups of those counters. If the counters of one group did not change, nobody sent a request
    meanwhile: they count each request that begins, or each that ends, aborted ones included.
    prefill_pin_field: the body's second key, for the rank on the prefill side of a pair; None if wlgen knows
    no pair of this engine.
    pairs: the known ways to the servers of its prefill/decode pairs; the first one that pins is wlgen's
    advice. port: the port that its server listens on by default.
    launch: the shell line that starts a server so that a set can be checked on it.
    rehearsed_as: the file in rehearse/dialects/ that answers requests as this engine does.
    """

    name: str
    title: str
    rule: Callable[[RuleNumbers], CacheRule]
    new_cache: Callable[[CacheRule, int | None, int], PrefixCache]
    retains: bool = False
    prefill_adder: bool = False

    own_pages: tuple[str, ...]
    page_size_pages: tuple[str, ...]
    read_page_size: Callable[[bytes], int | None]
    pin_field: str | None
    completion_fields: Callable[[bool], Mapping[str, object]]
    native_page: str | None = None
    native_body: Callable[[Sequence[int], int | None], Mapping[str, Any]] | None = None
    flush_page: Callable[[float], str]
    flushed: Callable[[int, bytes], bool | None]
    no_flush_page: str
    report_flag: str
    counters: Counters
    load_page: str = ""
    read_computed: Callable[[bytes], list[int] | None] = field(default=lambda _page: None)
    idle_proofs: tuple[tuple[str, ...], ...] = ()
    prefill_pin_field: str | None = None
    pairs: tuple[PairWay, ...] = ()
    port: int
    launch: Callable[[Launch], str]
    rehearsed_as: str

    def pinned(self, dp_rank: int | None) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the body's fields and the headers that pin a request to a rank; empty for None."""
        if dp_rank is None:
            return {}, {}
        fields = {} if self.pin_field is None else {self.pin_field: dp_rank}
        return fields, {PIN_HEADER: str(dp_rank)}


PIN_HEADER = "X-Data-Parallel-Rank"  # both engines read it on their OpenAI routes, whatever its case
