"""vLLM 0.32.0's HTTP server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wlgen.rehearse.dialects._dialect import Dialect, Kind
from wlgen.rehearse.dialects._samples import Metric, by_rank
from wlgen.rehearse.ranks import Rank
from wlgen.rehearse.settings import Settings


def _rank_of(_fields: Mapping[str, Any], headers: Mapping[str, str], _kind: Kind) -> int | None:
    """Return the rank of the header, which alone pins a request; a header that is no integer is ignored."""
    try:
        return int(headers["x-data-parallel-rank"])
    except (KeyError, ValueError):
        return None


def _metrics(settings: Settings, ranks: Sequence[Rank], started: float) -> list[Metric]:
    counters: dict[str, Callable[[Rank], float]] = {
        "prompt_tokens_total": lambda r: r.prompt_tokens,
        "prompt_tokens_cached_total": lambda r: r.cached_tokens,
        "generation_tokens_total": lambda r: r.output_tokens,
        "prefix_cache_queries_total": lambda r: r.looked_up,
        "prefix_cache_hits_total": lambda r: r.cached_tokens,
    }
    gauges: dict[str, Callable[[Rank], float]] = {
        "num_requests_running": lambda r: r.running,
        "num_requests_waiting": lambda r: r.waiting,
    }
    label = {"model_name": settings.model}
    ended = by_rank(ranks, label | {"finished_reason": "length"}, "engine", lambda r: r.requests)
    found: list[Metric] = [("vllm:request_success_total", "counter", ended)]
    found += [(f"vllm:{k}", "counter", by_rank(ranks, label, "engine", of)) for k, of in counters.items()]
    found += [(f"vllm:{k}", "gauge", by_rank(ranks, label, "engine", of)) for k, of in gauges.items()]
    facts = {"block_size": str(settings.rule.page_size), "enable_prefix_caching": "True"}
    found.append(("process_start_time_seconds", "gauge", [({}, started)]))
    found.append(("vllm:cache_config_info", "gauge", [(facts, 1.0)]))
    return found


DIALECT = Dialect(
    ids_field=None,
    rank_of=_rank_of,
    name_of=lambda _fields, headers: headers.get("x-request-id"),
    part_break="\n",
    detail_field=None,
    meta_field=None,
    streams_ids=True,
    any_model=False,
    thinks=True,
    in_turn=False,  # the least 4 * waiting + running; ties rotate
    id_prefix={"chat": "chatcmpl-", "completion": "cmpl-", "generate": ""},
    ends_apart=False,
    output_ids_key="token_ids",
    prompt_ids_on_top=True,
    more_usage={},
    more_choice={},
    more_answer={},
    refusal=lambda _kind, message, error_type, status: {
        "error": {"message": message, "type": error_type, "param": None, "code": status}
    },
    pages=lambda settings, _ranks: {"/version": {"version": settings.mark}},
    flush_page="/reset_prefix_cache",
    flush_waits=False,
    metrics=_metrics,
    metrics_by_flag=False,
)
