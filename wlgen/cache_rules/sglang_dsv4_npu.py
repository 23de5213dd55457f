"""SGLang serving DeepSeek-V4 on an NPU: page 128, hits at multiples of 2048."""

from __future__ import annotations

from typing import Annotated

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.cache_rules._forced import forced
from wlgen.engines import cache_rule
from wlgen.strict.model import Strict, key

PAGE_SIZE = 128
HIT_QUANTUM = 16 * PAGE_SIZE
SLIDING_WINDOW = 128

CHECKED = "replayed through the NPU component of SGLang 0.5.23, its allocator faked"


class Options(Strict):
    """What a spec may say. page_size may be stated, but not changed."""

    page_size: Annotated[int, forced(PAGE_SIZE, "SGLang forces it for DeepSeek-V4 on an NPU")] = key(
        "Tokens of one page: the server's --page-size. The engine forces 128.",
        unit="tokens",
        example="128",
        default=PAGE_SIZE,
    )
    speculative: bool = key(
        "Whether MTP speculation is on, which costs one token of reuse.", example="true", default=False
    )


def rule(options: Options, *, place: str) -> CacheRule:  # noqa: ARG001 (any option that passes is a rule)
    """Return the rule. The engine rounds matches and insertions down to 16 pages, where it keeps state."""
    return cache_rule(
        RuleNumbers(
            name="sglang-dsv4-npu",
            engine="sglang",
            page_size=options.page_size,
            hit_quantum=HIT_QUANTUM,
            speculative=options.speculative,
            sliding_window=SLIDING_WINDOW,
        )
    )
