"""SGLang's radix tree over one kind of attention, or over full and sliding-window attention."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.engines import cache_rule
from wlgen.pages import MOST_TOKENS
from wlgen.strict.model import Strict, key

CHECKED = "replayed through the radix trees of SGLang 0.5.23, and against its server on a CPU"


class Options(Strict):
    """What a spec may say of SGLang's radix tree."""

    page_size: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = key(
        "Tokens of one page of the tree: the server's --page-size. Left out, it is 1, the engine's default.",
        unit="tokens",
        example="128",
        default=1,
    )
    speculative: bool = key(
        "Whether EAGLE or MTP speculation is on, which costs one token of reuse.",
        example="true",
        default=False,
    )
    sliding_window: Annotated[int, Field(ge=0, le=MOST_TOKENS)] = key(
        "The window of a model that mixes full and sliding-window attention; 0 for other models.",
        unit="tokens",
        example="4096",
        default=0,
    )


def rule(options: Options, *, place: str) -> CacheRule:  # noqa: ARG001 (any option that passes is a rule)
    """Return the rule. A hit may end at the end of any page."""
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
