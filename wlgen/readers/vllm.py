"""vLLM `bench serve --save-result --save-detailed`: arrays in dataset order; no cached tokens, id or rank."""

from __future__ import annotations

from collections.abc import Iterator

from wlgen.errors import Problem
from wlgen.readers import Result, Source
from wlgen.readers._arrays import Run, decode_end, last_line, runs
from wlgen.readers._door import Part

BLIND = "`vllm bench serve` keeps no cached tokens"


def claims(opening: bytes) -> bool:
    """Return whether the file opens with the keys of a vllm bench serve result."""
    return opening.startswith(b'{"date":') and b'"endpoint_type"' in opening


def read(source: Source) -> Iterator[Result | Problem]:
    """Yield the results of a run, each with its index in the dataset."""
    return runs(source, _result, vllm=True)


def _result(record: Part, _run: Run, index: int, place: str) -> Result:
    error = record.error("errors")
    start, ttft = record.seconds("start_times"), record.seconds("ttfts")
    latency, origin = decode_end(record), start or 0.0
    return Result(
        place=place,
        index=index,
        success=not error,
        error=last_line(error),
        prompt_tokens=record.count("input_lens"),
        output_tokens=record.count("output_lens"),
        start=start,
        first_token=None if ttft is None else origin + ttft,
        end=None if latency is None else origin + latency,
    )
