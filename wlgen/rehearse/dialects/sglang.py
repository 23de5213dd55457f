"""SGLang 0.5.23's HTTP server, as a real, unmodified server answered on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wlgen.rehearse.dialects._dialect import Dialect, Kind, RefusedError
from wlgen.rehearse.dialects._samples import Metric, by_rank
from wlgen.rehearse.ranks import Rank
from wlgen.rehearse.settings import Settings


def _rank_of(fields: Mapping[str, Any], headers: Mapping[str, str], kind: Kind) -> int | None:
    """Return the rank that the body names. A header overrides it, but /generate ignores the header."""
    header = headers.get("x-data-parallel-rank")
    if header is not None and kind != "generate":
        try:
            return int(header)
        except ValueError as failure:
            message = f"Invalid X-Data-Parallel-Rank header: must be an integer, got '{header}'"
            raise RefusedError(400, message) from failure
    for key in ("routed_dp_rank", "data_parallel_rank"):  # the second is the older name of the first
        value = fields.get(key)
        if value is None:
            continue
        if not isinstance(value, int | float) or value != int(value):  # 1.0 and true are 1 to the engine
            raise RefusedError(400, f"{key}: expected a whole number, found {value!r}")
        return int(value)
    return None


def _refusal(kind: str, message: str, error_type: str, status: int) -> dict[str, Any]:
    if kind == "generate":
        return {"error": {"message": message}}
    return {"object": "error", "message": message, "type": error_type, "param": None, "code": status}


def _pages(settings: Settings, ranks: Sequence[Rank]) -> dict[str, Any]:
    server = {
        "version": settings.mark,
        "served_model_name": settings.model,
        "dp_size": settings.ranks,
        "page_size": settings.rule.page_size,
        "max_total_num_tokens": settings.capacity,
        "enable_metrics": settings.enable_metrics,
        "enable_cache_report": settings.faults.no_cached < 1,
    }
    model = {"model_path": settings.model, "is_generation": True}
    loads = [
        {
            "dp_rank": rank.index,
            "num_running_reqs": rank.running,
            "num_waiting_reqs": rank.waiting,
            "total_prefill_uncached_tokens": rank.computed,
        }
        for rank in ranks
    ]
    return {
        "/server_info": server,
        "/get_server_info": server,
        "/model_info": model,
        "/get_model_info": model,
        "/v1/loads": {"dp_rank_count": settings.ranks, "loads": loads},
    }


def _metrics(settings: Settings, ranks: Sequence[Rank], started: float) -> list[Metric]:
    """Return the counters: of finished requests without a rank, of admitted work by rank."""
    whole = {"model_name": settings.model}
    total = {
        "num_requests_total": sum(r.requests for r in ranks),
        "num_aborted_requests_total": sum(r.aborted for r in ranks),
        "prompt_tokens_total": sum(r.prompt_tokens for r in ranks),
        "generation_tokens_total": sum(r.output_tokens for r in ranks),
    }
    # A counter is announced from the start; its line appears with its first event.
    found: list[Metric] = [
        (f"sglang:{name}", "counter", [(whole, float(n))] if n else []) for name, n in total.items()
    ]
    cached = sum(r.cached_tokens for r in ranks)
    device = [(whole | {"cache_source": "device"}, float(cached))] if cached else []
    found.append(("sglang:cached_tokens_total", "counter", device))
    # How long the start took: it has no process_start_time_seconds. Here the seconds of the minute stand for
    # it, since each start must have another number.
    took = [(whole | {"phase": "tokenizer_e2e"}, started % 60)]
    found.append(("sglang:startup_time_seconds", "gauge", took))
    label = {"model_name": settings.model}
    modes: tuple[tuple[str, Callable[[Rank], int]], ...] = (
        ("input", lambda r: r.computed),
        ("device_hit", lambda r: r.looked_up - r.computed),
    )
    samples = [
        (label | {"dp_rank": str(r.index), "mode": mode}, float(of(r))) for r in ranks for mode, of in modes
    ]
    found.append(("sglang:prefill_effective_tokens_total", "counter", samples))
    found.append(("sglang:num_running_reqs", "gauge", by_rank(ranks, label, "dp_rank", lambda r: r.running)))
    found.append(("sglang:num_queue_reqs", "gauge", by_rank(ranks, label, "dp_rank", lambda r: r.waiting)))
    return found


DIALECT = Dialect(
    ids_field="input_ids",
    rank_of=_rank_of,
    name_of=lambda fields, _headers: fields.get("rid"),
    part_break=" ",
    detail_field="return_cached_tokens_details",
    meta_field="return_meta_info",
    streams_ids=False,
    any_model=True,
    thinks=False,
    in_turn=True,  # load_balance_method auto is round robin
    id_prefix={"chat": "", "completion": "", "generate": ""},
    ends_apart=True,
    output_ids_key="response_token_ids",
    prompt_ids_on_top=False,
    more_usage={"reasoning_tokens": 0},
    more_choice={"matched_stop": None},  # no answer of a rehearsal ends at a stop text
    more_answer={"metadata": {"weight_version": "default"}},
    refusal=_refusal,
    pages=_pages,
    flush_page="/flush_cache",
    flush_waits=True,
    metrics=_metrics,
    metrics_by_flag=True,
)
