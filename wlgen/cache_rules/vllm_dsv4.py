"""vLLM serving DeepSeek-V4: block 256, hits at multiples of 256."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.cache_rules._forced import forced
from wlgen.engines import cache_rule
from wlgen.pages import MOST_TOKENS
from wlgen.strict.model import Strict, key

PAGE_SIZE = 256
SLIDING_WINDOW = 128
WINDOW_PAGE = 64

CHECKED = "replayed through the KV-cache manager of vLLM 0.32.0"


class Options(Strict):
    """What a spec may say. page_size may be stated, but not changed."""

    page_size: Annotated[int, forced(PAGE_SIZE, "vLLM forces --block-size for DeepSeek-V4")] = key(
        "Tokens of one page: the server's --block-size. The engine forces 256.",
        unit="tokens",
        example="256",
        default=PAGE_SIZE,
    )
    speculative: bool = key(
        "Whether MTP speculation is on, which costs 64 tokens of reuse.",
        example="true",
        default=False,
    )
    retention: Annotated[int, Field(ge=0, multiple_of=PAGE_SIZE, le=MOST_TOKENS)] = key(
        "Tokens from one state that the engine keeps inside a prompt to the next "
        "(--prefix-cache-retention-interval). 0: it keeps none there; 256: it keeps every one.",
        unit="tokens",
        example="16384",
        default=0,
    )


def rule(options: Options, *, place: str) -> CacheRule:  # noqa: ARG001 (any option that passes is a rule)
    """Return the rule. 256 is the least common multiple of the block sizes of the model's groups."""
    return cache_rule(
        RuleNumbers(
            name="vllm-dsv4",
            engine="vllm",
            page_size=options.page_size,
            hit_quantum=PAGE_SIZE,
            speculative=options.speculative,
            sliding_window=SLIDING_WINDOW,
            window_page=WINDOW_PAGE,
            retention=options.retention,
        )
    )
