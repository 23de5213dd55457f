"""What wlgen must know of an engine: one value that each file of this folder fills in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wlgen.cache.rule import CacheRule, PrefixCache, RuleNumbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The names of an engine's counters on /metrics, and what each of them counts.

    prefix: what every name begins with. flag: how to start the server so that it has the page, "" where it
    always has. rank_label: the label that tells the rank. plain: name -> count. divided: name -> (label,
    value of the label -> counts), where "" stands for every other value. needed: count -> what to do where it
    is not there. zero: counts that are 0 where they are absent, since a counter with labels appears with its
    first event. sums: count -> the counts that make it up where an older server does not have it.
    """

    prefix: str
    flag: str
    rank_label: str
    plain: Mapping[str, str]
    divided: Mapping[str, tuple[str, Mapping[str, tuple[str, ...]]]]
    needed: Mapping[str, str]
    zero: tuple[str, ...]
    sums: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The facts of one engine. Quantities are tokens, pages are paths of its HTTP server.

    Reuse:
    name: as a spec says it. title: as its makers write it.
    rule: adds the engine's facts to a rule's numbers. new_cache: makes the cache that replays a rule, from
    the rule, the capacity (None for no limit) and the tokens of a prefill chunk.
    retains: the engine has a number `retention`, the distance between points where a hybrid model keeps
    state.
    prefill_adder: its scheduler cuts prompts into rounds as SGLang's PrefillAdder does.

    Its server:
    own_pages: pages that this engine alone has; one that answers tells which engine runs.
    page_size_pages: pages to read one after the other until `read_page_size` finds the tokens of a page in
    the text.
    pin_field: the body's key for the rank of a request, None where only the header X-Data-Parallel-Rank pins.
    completion_fields: what a completions body needs beside the prompt; its argument says whether the server
    is to add the tokenizer's own tokens around a text.
    native_page, native_body: a page that takes token ids and reports cached tokens whatever the flags, and
    its body for (ids, rank or None); None where the engine has none.
    flush_page: the page to POST to, from the seconds that the server may wait for running requests.
    flushed: from the status and the content of its answer, whether every cache is empty now; None where the
    answer is an error of another kind.
    no_flush_page: what to do where the server has no such page.
    report_flag: what to do where cached tokens are missing from `usage`.
    counters: the names of its counters. load_page: a page that says what each rank
    computed so far, whatever the flags, read by `read_computed`; "" where there is none.
    idle_proofs: groups of those counters; each group that did not move proves by itself that nothing was sent
    meanwhile, since it counts work begun, or aborts beside requests.
    prefill_pin_field: the body's second key that pins a request to a rank of the prefill side of a pair; None
    where no pair of the engine is known.
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
    rehearsed_as: str

    def pinned(self, dp_rank: int | None) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the body's fields and the headers that pin a request to a rank; empty for None."""
        if dp_rank is None:
            return {}, {}
        fields = {} if self.pin_field is None else {self.pin_field: dp_rank}
        return fields, {PIN_HEADER: str(dp_rank)}


PIN_HEADER = "X-Data-Parallel-Rank"  # both engines read it on their OpenAI routes, whatever its case
