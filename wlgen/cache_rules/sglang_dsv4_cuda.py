"""SGLang serving DeepSeek-V4 on CUDA: page 256."""

from __future__ import annotations

from typing import Annotated

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.cache_rules._forced import forced
from wlgen.engines import cache_rule
from wlgen.strict.model import Strict

PAGE_SIZE = 256
SLIDING_WINDOW = 128


class Options(Strict):
    """page_size may be stated, but not changed. speculative: MTP."""

    page_size: Annotated[int, forced(PAGE_SIZE, "SGLang forces it for DeepSeek-V4 on CUDA")] = PAGE_SIZE
    speculative: bool = False


def rule(options: Options, *, place: str) -> CacheRule:  # noqa: ARG001 (any option that passes is a rule)
    """Return the rule. Hits end on any page where the sliding window is kept."""
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
