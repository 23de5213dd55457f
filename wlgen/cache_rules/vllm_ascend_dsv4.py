"""vllm-ascend serving DeepSeek-V4: hits at multiples of 128 blocks."""

from __future__ import annotations

from typing import Literal

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.engines import cache_rule
from wlgen.strict.model import Strict

COMPRESSION = 128  # tokens that one entry of the most compressed group stands for
SLIDING_WINDOW = 128


class Options(Strict):
    """page_size: --block-size, 128 or 32. speculative: MTP, which doubles the least hit's prefix."""

    page_size: Literal[128, 32] = 128
    speculative: bool = False


def rule(options: Options, *, place: str) -> CacheRule:  # noqa: ARG001 (any option that passes is a rule)
    """Return the rule: quantum 16384 at block size 128, 4096 at 32.

    Source: vllm-ascend issues 10710, 9326 and 16270.
    """
    return cache_rule(
        RuleNumbers(
            name="vllm-ascend-dsv4",
            engine="vllm",
            page_size=options.page_size,
            hit_quantum=COMPRESSION * options.page_size,
            speculative=options.speculative,
            sliding_window=SLIDING_WINDOW,
        )
    )
