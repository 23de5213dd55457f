"""vLLM: hash-chained blocks, and ranks pinned by a header. Facts of 0.32.0, unless said otherwise."""

from __future__ import annotations

import re
from http import HTTPStatus

from wlgen.cache.blocks import BlockCache
from wlgen.cache.blocks_window import WindowBlockCache
from wlgen.cache.rule import CacheRule, PrefixCache, RuleNumbers
from wlgen.engines._engine import Counters, Engine, Launch, PairWay
from wlgen.engines._json import fields_of

_BLOCK_SIZE = re.compile(rb'^vllm:cache_config_info\{.*block_size="(\d+)"', re.MULTILINE)


def _rule(numbers: RuleNumbers) -> CacheRule:
    """Add the facts of the blocks.

    EAGLE/MTP match one more block of each group that the draft model uses, and drop it. That is a quantum; in
    DeepSeek-V4, whose draft uses the window's group alone, it is a block of the window. With several groups
    the dropped block may hold a prompt's last token, so a repeated prompt of 512 tokens hits 256 of them.
    """
    dropped = (numbers.window_page or numbers.hit_quantum) if numbers.speculative else 0
    hybrid = numbers.sliding_window > 0 or numbers.hit_quantum != numbers.page_size
    return CacheRule.of(
        numbers,
        lookahead=dropped,
        hybrid=hybrid,
        computed=0 if numbers.speculative and hybrid else 1,
        kept_back=(1, 0) if numbers.speculative else (1,),
        kept_below=numbers.hit_quantum if numbers.speculative else 0,
    )


def _new_cache(rule: CacheRule, capacity: int | None, _chunk: int) -> PrefixCache:
    return WindowBlockCache(rule, capacity) if rule.hybrid else BlockCache(rule, capacity)


def _read_page_size(page: bytes) -> int | None:
    found = _BLOCK_SIZE.search(page)
    return int(found[1]) if found else None


def _flushed(status: int, content: bytes) -> bool | None:
    """Return what the answer's `success` says; True for an empty answer, as vLLM gave before about 0.12."""
    if status != HTTPStatus.OK:
        return None
    return not content.strip() or bool(fields_of(content).get("success", True))


def _launch(of: Launch) -> str:
    sizes = f"--data-parallel-size {of.ranks} --block-size {of.page_size} --max-model-len {of.context_len}"
    asked = "--enable-prefix-caching --enable-prompt-tokens-details"
    return f"VLLM_SERVER_DEV_MODE=1 vllm serve MODEL \\\n  {sizes} \\\n  {asked}"


# A pin is a header here, and these proxies write the headers of both requests themselves.
_PAIRS = (
    PairWay(
        name="toy_proxy_server",
        about="the proxy of vLLM's NIXL tests: it sends Authorization and X-Request-Id, and no other header",
        source="read in vllm-project/vllm, tests/v1/kv_connector/nixl_integration; not run",
    ),
    PairWay(
        name="mooncake",
        about="the MooncakeConnector's documented way, which is the same toy_proxy_server",
        source="read in kvcache-ai/Mooncake, mooncake-wheel/mooncake/README.md; not run",
    ),
    PairWay(
        name="vllm-ascend",
        about="vllm-ascend's load_balance_proxy_server_example: no header of the client goes on, a failed "
        "request is sent up to three times, and usage carries the prefill server's cached tokens",
        source="read in vllm-project/vllm-ascend, examples/disaggregated_prefill_v1; not run",
    ),
)

ENGINE = Engine(
    name="vllm",
    title="vLLM",
    rule=_rule,
    new_cache=_new_cache,
    retains=True,
    own_pages=("/version",),
    page_size_pages=("/metrics",),
    read_page_size=_read_page_size,
    pin_field=None,
    completion_fields=lambda special: {"add_special_tokens": special},
    flush_page=lambda _seconds: "/reset_prefix_cache",
    flushed=_flushed,
    no_flush_page="vLLM has this page only with VLLM_SERVER_DEV_MODE=1; --no-flush goes on without.",
    report_flag="Start the server with --enable-prompt-tokens-details.",
    # vLLM counts a lookup when it first schedules a request, so these show requests that were aborted later.
    idle_proofs=(("vllm:request_success_total", "vllm:prefix_cache_queries_total"),),
    counters=Counters(
        prefix="vllm:",
        flag="",
        rank_label="engine",
        plain={
            "vllm:prompt_tokens_total": "prompt_tokens",
            "vllm:prompt_tokens_cached_total": "cached_tokens",
            "vllm:prefix_cache_hits_total": "cached_device",
            "vllm:external_prefix_cache_hits_total": "cached_external",
            "vllm:generation_tokens_total": "output_tokens",
            "vllm:num_preemptions_total": "retracted",
            "vllm:spec_decode_num_drafts_total": "drafts",
            "vllm:spec_decode_num_draft_tokens_total": "proposed_tokens",
            "vllm:spec_decode_num_accepted_tokens_total": "accepted_tokens",
            "vllm:num_requests_running": "running",
            "vllm:num_requests_waiting": "waiting",
        },
        divided={
            "vllm:request_success_total": (
                "finished_reason",
                {"abort": ("requests", "aborted"), "error": ("requests", "aborted"), "": ("requests",)},
            ),
        },
        needed={"cached_tokens": "vLLM counts hits only with prefix caching on: --enable-prefix-caching"},
        zero=("aborted",),
        sums={"cached_tokens": ("cached_device", "cached_external")},  # before 0.12 or so
    ),
    pairs=_PAIRS,
    port=8000,
    launch=_launch,
    rehearsed_as="vllm",
)
