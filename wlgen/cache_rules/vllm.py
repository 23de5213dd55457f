"""vLLM's hash-chained blocks: one kind of attention, or hybrid groups with a larger hit quantum."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.engines import cache_rule
from wlgen.errors import error
from wlgen.pages import MOST_TOKENS, ceil_to
from wlgen.strict.model import Strict, key

CHECKED = "replayed through the KV-cache manager of vLLM 0.32.0, and against its server on a CPU"


class Options(Strict):
    """What a spec may say of vLLM's hash-chained blocks."""

    page_size: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = key(
        "Tokens of one block: the server's --block-size. Left out, it is 16, the engine's default.",
        unit="tokens",
        example="128",
        default=16,
    )
    hit_quantum: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = key(
        "Hits come only in multiples of hit_quantum: in a hybrid model the least common multiple of its "
        "groups' block sizes. Left out, it is page_size.",
        unit="tokens",
        example="256",
        default=None,
    )
    speculative: bool = key(
        "Whether EAGLE or MTP speculation is on, which costs one hit quantum of reuse.",
        example="true",
        default=False,
    )
    sliding_window: Annotated[int, Field(ge=0, le=MOST_TOKENS)] = key(
        "The window of a model that mixes full and sliding-window attention; 0 for other models.",
        unit="tokens",
        example="4096",
        default=0,
    )
    retention: Annotated[int, Field(ge=0, le=MOST_TOKENS)] = key(
        "Tokens from one state that the engine keeps inside a hybrid model's prompt to the next "
        "(--prefix-cache-retention-interval). 0: it keeps none there. hit_quantum: the engine's None.",
        unit="tokens",
        example="16384",
        default=0,
    )


def rule(options: Options, *, place: str) -> CacheRule:
    """Return the rule; WlgenError if a number is not the multiple of another that it must be."""
    quantum = options.hit_quantum or options.page_size
    if quantum % options.page_size:
        near = ceil_to(quantum, options.page_size)
        expected = f"hit_quantum to be a multiple of page_size {options.page_size}"
        raise error(place, expected=expected, found=str(quantum), remedy=f"The next one is {near}.")
    if options.retention % quantum:
        near = ceil_to(options.retention, quantum)
        expected = f"retention to be a multiple of hit_quantum {quantum}"
        raise error(place, expected=expected, found=str(options.retention), remedy=f"The next one is {near}.")
    return cache_rule(
        RuleNumbers(
            name="vllm",
            engine="vllm",
            page_size=options.page_size,
            hit_quantum=quantum,
            speculative=options.speculative,
            sliding_window=options.sliding_window,
            retention=options.retention,
        )
    )
