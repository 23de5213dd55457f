"""vllm-ascend serving DeepSeek-V4: hits at multiples of 128 blocks."""

from __future__ import annotations

from typing import Literal

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.engines import cache_rule
from wlgen.strict.model import Strict, key

COMPRESSION = 128  # tokens that one entry of the most compressed group stands for
SLIDING_WINDOW = 128

CHECKED = "taken from vllm-ascend issues 10710, 9326 and 16270, not run"


class Options(Strict):
    """What a spec may say of vllm-ascend with DeepSeek-V4."""

    page_size: Literal[128, 32] = key(
        "Tokens of one block: the server's --block-size. Hits come in multiples of 128 blocks.",
        unit="tokens",
        example="32",
        default=128,
    )
    speculative: bool = key(
        "Whether MTP speculation is on, which costs one hit quantum of reuse.", example="true", default=False
    )


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
