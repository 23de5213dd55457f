"""SGLang's radix tree over one kind of attention, or over full and sliding-window attention."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.engines import cache_rule
from wlgen.strict.model import Strict


class Options(Strict):
    """page_size: --page-size, 1 as in the engine. speculative: EAGLE or MTP. sliding_window: tokens."""

    page_size: Annotated[int, Field(ge=1)] = 1
    speculative: bool = False
    sliding_window: Annotated[int, Field(ge=0)] = 0


def rule(options: Options, *, place: str) -> CacheRule:  # noqa: ARG001 (any option that passes is a rule)
    """Return the rule. Hits end on any page of the tree."""
    return cache_rule(
        RuleNumbers(
            name="sglang",
            engine="sglang",
            page_size=options.page_size,
            hit_quantum=options.page_size,
            speculative=options.speculative,
            sliding_window=options.sliding_window,
        )
    )
