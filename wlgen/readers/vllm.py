"""vLLM `bench serve --save-result --save-detailed`: arrays in dataset order; no cached tokens, id or rank."""

from __future__ import annotations

from collections.abc import Iterator

from wlgen.errors import Problem
from wlgen.readers import Result, Source
from wlgen.readers._arrays import Run, at, decode_end, runs
from wlgen.readers._usage import count, seconds


def claims(opening: bytes) -> bool:
    """Return whether the file opens with the keys of a vllm bench serve result."""
    return opening.startswith(b'{"date":') and b'"endpoint_type"' in opening


def read(source: Source) -> Iterator[Result | Problem]:
    """Yield the results of a run, each with its index in the dataset."""
    return runs(source, _result, vllm=True)


def _result(run: Run, index: int, place: str) -> Result:
    error = str(at(run, "errors", index) or "")
    start, ttft = seconds(at(run, "start_times", index)), seconds(at(run, "ttfts", index))
    latency, origin = decode_end(run, index), start or 0.0
    return Result(
        place=place,
        index=index,
        success=not error,
        error=error.strip().rsplit("\n", 1)[-1],
        prompt_tokens=count(at(run, "input_lens", index)),
        output_tokens=count(at(run, "output_lens", index)),
        start=start,
        first_token=None if ttft is None else origin + ttft,
        end=None if latency is None else origin + latency,
    )
