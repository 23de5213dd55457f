"""AIPerf: profile_export.jsonl, one record a request; conversation_id is the row's id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wlgen.errors import Problem
from wlgen.readers import Result, Source
from wlgen.readers._lines import records
from wlgen.readers._usage import count, seconds

NANO, MILLI = 1e-9, 1e-3


def claims(opening: bytes) -> bool:
    """Return whether the first line is a record with AIPerf's metadata."""
    return opening.startswith(b'{"metadata":') and b'"conversation_id"' in opening


def read(source: Source) -> Iterator[Result | Problem]:
    """Yield the results of a profile export, those of a warm-up phase too: they were sent as well.

    An absent usage_prompt_cache_read_tokens means not reported. End is request_latency after the start, the
    last response with content, which AIPerf's own end-to-end figure uses (0.13.0).
    """
    for found in records(source):
        if isinstance(found, Problem):
            yield found
            continue
        place, record = found
        metadata = record.get("metadata")
        if isinstance(metadata, dict) and isinstance(metadata.get("conversation_id"), str):
            yield _result(place, metadata, record.get("metrics") or {}, record.get("error"))
        else:
            expected = "a record with metadata.conversation_id (AIPerf --export-level records)"
            yield Problem(place=place, expected=expected, found=f"the keys {', '.join(list(record)[:6])}")


def _result(place: str, metadata: dict[str, Any], metrics: dict[str, Any], error: object) -> Result:
    def metric(name: str) -> object:
        return (metrics.get(name) or {}).get("value")

    start = seconds(metadata.get("request_start_ns"), NANO)
    ttft = seconds(metric("time_to_first_token"), MILLI)
    latency = seconds(metric("request_latency"), MILLI)
    end = seconds(metadata.get("request_end_ns"), NANO)
    if start is not None and latency is not None:
        end = start + latency
    cancelled = metadata.get("was_cancelled") is True
    message = error.get("message") or error.get("type") if isinstance(error, dict) else error
    return Result(
        place=place,
        id=metadata["conversation_id"],
        success=not error and not cancelled,
        error=str(message or ("cancelled" if cancelled else "")),
        prompt_tokens=count(metric("usage_prompt_tokens")),
        cached_tokens=count(metric("usage_prompt_cache_read_tokens")),
        output_tokens=count(metric("usage_completion_tokens")),
        start=start,
        first_token=start + ttft if start is not None and ttft is not None else None,
        end=end,
    )
