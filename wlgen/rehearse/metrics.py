"""The metrics page, with each engine's own names, as Prometheus text."""

from __future__ import annotations

from collections.abc import Sequence

from wlgen.rehearse.ranks import Rank
from wlgen.rehearse.settings import NOTICE

_GAUGE, _COUNTER = "gauge", "counter"


def metrics_page(ranks: Sequence[Rank], *, engine: str, model: str, page_size: int) -> str:
    """Return the page. Counters are cumulative since the start and include priming, as on the engines."""
    lines = [f"# {NOTICE}"]
    for name, kind, counts in _sglang(ranks) if engine == "sglang" else _vllm(ranks):
        lines.append(f"# TYPE {name} {kind}")
        label = "dp_rank" if engine == "sglang" else "engine"
        extra = ',finished_reason="length"' if name == "vllm:request_success_total" else ""
        lines += [
            f'{name}{{model_name="{model}",{label}="{rank.index}"{extra}}} {float(count)}'
            for rank, count in zip(ranks, counts, strict=True)
        ]
    if engine == "vllm":
        lines.append("# TYPE vllm:cache_config_info gauge")
        lines.append(f'vllm:cache_config_info{{block_size="{page_size}",enable_prefix_caching="True"}} 1.0')
    return "\n".join(lines) + "\n"


def _sglang(ranks: Sequence[Rank]) -> list[tuple[str, str, list[float]]]:
    return [
        ("sglang:num_requests_total", _COUNTER, [r.requests for r in ranks]),
        ("sglang:num_aborted_requests_total", _COUNTER, [r.aborted for r in ranks]),
        ("sglang:prompt_tokens_total", _COUNTER, [r.prompt_tokens for r in ranks]),
        ("sglang:generation_tokens_total", _COUNTER, [r.output_tokens for r in ranks]),
        ("sglang:cached_tokens_total", _COUNTER, [r.cached_tokens for r in ranks]),
        ("sglang:num_running_reqs", _GAUGE, [r.running for r in ranks]),
        ("sglang:num_queue_reqs", _GAUGE, [r.waiting for r in ranks]),
        ("sglang:cache_hit_rate", _GAUGE, [r.cached_tokens / max(1, r.prompt_tokens) for r in ranks]),
    ]


def _vllm(ranks: Sequence[Rank]) -> list[tuple[str, str, list[float]]]:
    return [
        ("vllm:request_success_total", _COUNTER, [r.requests for r in ranks]),
        ("vllm:prompt_tokens_total", _COUNTER, [r.prompt_tokens for r in ranks]),
        ("vllm:generation_tokens_total", _COUNTER, [r.output_tokens for r in ranks]),
        ("vllm:prefix_cache_queries_total", _COUNTER, [r.looked_up for r in ranks]),
        ("vllm:prefix_cache_hits_total", _COUNTER, [r.cached_tokens for r in ranks]),
        ("vllm:num_requests_running", _GAUGE, [r.running for r in ranks]),
        ("vllm:num_requests_waiting", _GAUGE, [r.waiting for r in ranks]),
    ]
