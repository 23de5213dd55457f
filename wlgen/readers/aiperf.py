"""AIPerf: profile_export.jsonl, one record a request; conversation_id is the row's id."""

from __future__ import annotations

from collections.abc import Iterator

from wlgen.errors import Problem
from wlgen.readers import Result, Source
from wlgen.readers._door import Part, admitted
from wlgen.readers._lines import records

BLIND = ""

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
        if "metadata" in record:
            yield admitted(_result(place, record), record)
        else:
            expected = "a record with metadata.conversation_id (AIPerf --export-level records)"
            yield Problem(place=place, expected=expected, found=record.keys)


def _result(place: str, record: Part) -> Result:
    metadata, metrics = record.part("metadata"), record.part("metrics")
    start = metadata.seconds("request_start_ns", NANO)
    ttft = metrics.part("time_to_first_token").seconds("value", MILLI)
    latency = metrics.part("request_latency").seconds("value", MILLI)
    end = metadata.seconds("request_end_ns", NANO)
    if start is not None and latency is not None:
        end = start + latency
    cancelled = metadata.get("was_cancelled") is True
    error = record.error("error")
    return Result(
        place=place,
        id=metadata.text("conversation_id"),
        success=not error and not cancelled,
        error=error or ("cancelled" if cancelled else ""),
        prompt_tokens=metrics.part("usage_prompt_tokens").count("value"),
        cached_tokens=metrics.part("usage_prompt_cache_read_tokens").count("value"),
        output_tokens=metrics.part("usage_completion_tokens").count("value"),
        start=start,
        first_token=start + ttft if start is not None and ttft is not None else None,
        end=end,
    )
