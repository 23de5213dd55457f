"""vLLM's hash-chained blocks: one kind of attention, or hybrid groups with a larger hit quantum."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.engines import cache_rule
from wlgen.errors import error
from wlgen.pages import ceil_to
from wlgen.strict.model import Strict


class Options(Strict):
    """page_size: --block-size, 16 as in the engine. hit_quantum: page_size where absent.

    hit_quantum is the least common multiple of the block sizes of a hybrid model's groups; retention is
    --prefix-cache-retention-interval, with hit_quantum for the engine's None.
    """

    page_size: Annotated[int, Field(ge=1)] = 16
    hit_quantum: Annotated[int, Field(ge=1)] | None = None
    speculative: bool = False
    sliding_window: Annotated[int, Field(ge=0)] = 0
    retention: Annotated[int, Field(ge=0)] = 0


def rule(options: Options, *, place: str) -> CacheRule:
    """Return the rule; WlgenError where hit_quantum is no multiple of page_size, or retention of it."""
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
