"""SGLang: a radix tree of pages, and ranks pinned in the body. Facts of 0.5.23, unless said otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from wlgen.cache.radix import RadixCache
from wlgen.cache.radix_window import WindowRadixCache
from wlgen.cache.rule import CacheRule, PrefixCache, RuleNumbers
from wlgen.engines._engine import Counters, Engine, Launch, PairWay
from wlgen.engines._json import fields_of
from wlgen.witnesses import TIERS

_PIN = "routed_dp_rank"  # data_parallel_rank is its name before pull request 19268, and an alias since
_PREFILL_PIN = "disagg_prefill_dp_rank"  # with routed_dp_rank since pull request 19268
_EVERY_ROUTE = ("/v1/chat/completions", "/v1/completions", "/generate")
_SPARE = 8  # tokens of the context that SGLang keeps from a request: it ends one that would come within two
_BOOTSTRAP = 8998  # the default of --disaggregation-bootstrap-port


def _rule(numbers: RuleNumbers) -> CacheRule:
    """Add the facts of the tree.

    Under EAGLE/MTP the tree is keyed by bigrams, and n tokens make n - 1 bigrams: a hit needs one token more.
    The tree takes whole quanta, and a later prompt can resume at each of them, unless a sliding window has
    freed what it needs there.
    """
    ahead = 1 if numbers.speculative else 0
    return CacheRule.of(
        numbers, lookahead=ahead, hybrid=numbers.sliding_window > 0, kept_back=(1 + ahead,), kept_below=0
    )


def _new_cache(rule: CacheRule, capacity: int | None, chunk: int) -> PrefixCache:
    if rule.sliding_window == 0 and rule.hit_quantum == rule.page_size:
        return RadixCache(rule, capacity, chunk)
    return WindowRadixCache(rule, capacity, chunk)


def _read_page_size(page: bytes) -> int | None:
    found = fields_of(page).get("page_size")
    return found if type(found) is int else None


def _native_body(ids: Sequence[int], dp_rank: int | None) -> Mapping[str, Any]:
    sampling = {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True}
    body: dict[str, Any] = {"input_ids": list(ids), "sampling_params": sampling}
    return body if dp_rank is None else body | {_PIN: dp_rank}


def _flushed(status: int, _content: bytes) -> bool | None:
    """Return False for 400: some requests wait or run, and only idle ranks are flushed."""
    if status == HTTPStatus.OK:
        return True
    return False if status == HTTPStatus.BAD_REQUEST else None


def _read_computed(page: bytes) -> list[int] | None:
    """Return the prompt tokens that each rank has computed, from /v1/loads; None if the page does not say."""
    loads = fields_of(page).get("loads")
    rows = loads if isinstance(loads, list) else []
    found = [row.get("total_prefill_uncached_tokens") for row in rows if isinstance(row, dict)]
    computed = [count for count in found if type(count) is int]
    return computed if computed and len(computed) == len(rows) else None


def _launch(of: Launch) -> str:
    """Return the line that starts a server.

    Each server of a pair counts for itself, so --enable-metrics belongs to both sides. The decode server
    gives the answers, so its --enable-cache-report tells the client what the prefill server found cached.
    """
    role = f" \\\n  --disaggregation-mode {of.role}" if of.role else ""
    if of.role == "prefill":
        role += f" --disaggregation-bootstrap-port {_BOOTSTRAP}"
    if of.role == "decode":
        role += " --port 30001"
    sizes = f"--dp-size {of.ranks} --page-size {of.page_size} --context-length {of.context_len + _SPARE}"
    asked = f"--enable-metrics --enable-cache-report{role}"
    return f"python -m sglang.launch_server --model-path MODEL \\\n  {sizes} \\\n  {asked}"


_ROUTER = (
    "python -m sglang_router.launch_router --pd-disaggregation{} --port 8080 \\\n"
    f"  --prefill http://PREFILL_HOST:PORT {_BOOTSTRAP} --decode http://DECODE_HOST:PORT"
)
_PAIRS = (
    PairWay(
        name="route",
        about="wlgen's own router, `wlgen route`: it pins the prefill rank alone",
        pin_fields=(_PIN,),
        routes=_EVERY_ROUTE,
        start="wlgen route --port 8080 $PREFILL $DECODE",
        source="run on a pair of 0.5.23 with two ranks a side",
    ),
    PairWay(
        name="mini_lb",
        about="SGLang's mini_lb, which passes a body on as it is",
        pin_fields=(_PIN, _PREFILL_PIN),
        routes=_EVERY_ROUTE,
        binds_decode=True,
        start=_ROUTER.format(" --mini-lb"),
        source="run on a pair of 0.5.23 with two ranks a side",
    ),
    PairWay(
        name="sglang-router",
        about="sglang-router, which keeps the pin on /v1/completions alone, and takes no token ids there",
        pin_fields=(_PIN, _PREFILL_PIN),
        routes=("/v1/completions",),
        takes_ids=False,
        binds_decode=True,
        start=_ROUTER.format(""),
        source="run with sglang-router 0.3.2 on a pair of 0.5.23",
    ),
    PairWay(
        name="dynamo",
        about="Dynamo, whose own prefill router chooses the rank and tells it to the decode side",
        source="read in ai-dynamo/dynamo, pull requests 4221 and 9936; not run",
    ),
)

ENGINE = Engine(
    name="sglang",
    title="SGLang",
    rule=_rule,
    new_cache=_new_cache,
    prefill_adder=True,
    own_pages=("/model_info", "/get_model_info"),  # the second is what older servers have
    page_size_pages=("/server_info", "/get_server_info"),
    read_page_size=_read_page_size,
    pin_field=_PIN,
    completion_fields=lambda _special: {},
    native_page="/generate",
    native_body=_native_body,
    flush_page=lambda seconds: f"/flush_cache?timeout={seconds:g}",
    flushed=_flushed,
    no_flush_page="Is --url the server itself, or a router before it? --no-flush goes on without.",
    report_flag="Start the server with --enable-cache-report.",
    counters=Counters(
        prefix="sglang:",
        flag="start SGLang with --enable-metrics",
        rank_label="dp_rank",
        plain={
            "sglang:num_requests_total": "requests",
            "sglang:prompt_tokens_total": "prompt_tokens",
            "sglang:generation_tokens_total": "output_tokens",
            "sglang:num_aborted_requests_total": "aborted",
            "sglang:num_retracted_requests_total": "retracted",
            "sglang:spec_verify_calls_total": "verify_steps",
            "sglang:num_running_reqs": "running",
            "sglang:num_queue_reqs": "waiting",
        },
        # SGLang counts finished requests for the whole server, without a rank, and admitted work for each
        # rank. The sources of cached_tokens_total are disjoint; it has `total` only if no details are known.
        divided={
            "sglang:cached_tokens_total": (
                "cache_source",
                {tier: ("cached_tokens", f"cached_{tier}") for tier in TIERS} | {"": ("cached_tokens",)},
            ),
            "sglang:prefill_effective_tokens_total": (
                "mode",
                {"input": ("computed",)} | {f"{tier}_hit": (f"hit_{tier}",) for tier in TIERS} | {"": ()},
            ),
        },
        needed={},
        zero=("requests", "prompt_tokens", "cached_tokens", "output_tokens", "aborted", "retracted"),
        sums={},
        # Its pages are put together from several processes, so they lack process_start_time_seconds. How
        # long each phase of the start took has nine decimals, "52.28871300400351": no two starts share it.
        start="sglang:startup_time_seconds",
    ),
    load_page="/v1/loads",
    idle_proofs=(  # metrics_collector of 0.5.23
        ("sglang:prefill_effective_tokens_total",),
        ("sglang:num_requests_total", "sglang:num_aborted_requests_total"),
    ),
    prefill_pin_field=_PREFILL_PIN,
    pairs=_PAIRS,
    port=30000,
    launch=_launch,
    read_computed=_read_computed,
    rehearsed_as="sglang",
)
