"""SGLang bench_serving: one JSON object a run, arrays in dataset order; no id, no rank, no start times."""

from __future__ import annotations

from collections.abc import Iterator

from wlgen.errors import Problem
from wlgen.readers import Result, Source
from wlgen.readers._arrays import Run, decode_end, last_line, runs
from wlgen.readers._door import Part

BLIND = "bench_serving reads `sglext` only, which vLLM does not send, and keeps it with --cache-report alone"

NATIVE = ("sglang", "sglang-native")


def claims(opening: bytes) -> bool:
    """Return whether the file opens with the keys of a bench_serving run."""
    return opening.startswith(b'{"tag":') and b'"sharegpt_output_len"' in opening


def read(source: Source) -> Iterator[Result | Problem]:
    """Yield the results of each run in the file (runs are appended), each with its index in the dataset."""
    return runs(source, _result, vllm=False)


def _result(record: Part, run: Run, index: int, place: str) -> Result:
    error = record.error("errors")
    return Result(
        place=place,
        index=index,
        success=not error,
        error=last_line(error),
        prompt_tokens=record.count("input_lens"),
        cached_tokens=_cached(record, run),
        output_tokens=record.count("output_lens"),
        first_token=record.seconds("ttfts"),
        end=decode_end(record),
    )


def _cached(record: Part, run: Run) -> int | None:
    # On the OpenAI routes the client writes 0, its default, where the server said nothing, and the server
    # says nothing of a miss. Such a 0 is a miss only where the server did report for other requests of the
    # run. /generate always reports. (SGLang 0.5.23, benchmark/serving.py and output_streamer.py)
    if "reports" not in run:
        details = run.get("cached_tokens_details")
        reported = isinstance(details, list) and any(isinstance(each, dict) for each in details)
        run["reports"] = run.get("backend") in NATIVE or reported
    cached = record.count("cached_tokens")
    return cached if cached or run["reports"] else None
