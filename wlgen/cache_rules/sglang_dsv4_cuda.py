"""SGLang serving DeepSeek-V4 on CUDA: page 256."""

from __future__ import annotations

from typing import Annotated

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.cache_rules._forced import forced
from wlgen.engines import cache_rule
from wlgen.strict.model import Strict, key

PAGE_SIZE = 256
SLIDING_WINDOW = 128

CHECKED = "read in the source of SGLang 0.5.23, not run"


class Options(Strict):
    """What a spec may say. page_size may be stated, but not changed."""

    page_size: Annotated[int, forced(PAGE_SIZE, "SGLang forces it for DeepSeek-V4 on CUDA")] = key(
        "Tokens of one page: the server's --page-size. The engine forces 256.",
        unit="tokens",
        example="256",
        default=PAGE_SIZE,
    )
    speculative: bool = key(
        "Whether MTP speculation is on, which costs one token of reuse.", example="true", default=False
    )


def rule(options: Options, *, place: str) -> CacheRule:  # noqa: ARG001 (any option that passes is a rule)
    """Return the rule. A hit may end at any page before which the cache keeps a whole sliding window."""
    return cache_rule(
        RuleNumbers(
            name="sglang-dsv4-cuda",
            engine="sglang",
            page_size=options.page_size,
            hit_quantum=options.page_size,
            speculative=options.speculative,
            sliding_window=SLIDING_WINDOW,
        )
    )
