"""SGLang bench_serving: one JSON object a run, arrays in dataset order; no id, no rank, no start times."""

from __future__ import annotations

from collections.abc import Iterator

from wlgen.errors import Problem
from wlgen.readers import Result, Source
from wlgen.readers._arrays import Run, at, decode_end, runs
from wlgen.readers._usage import count, seconds

NATIVE = ("sglang", "sglang-native")


def claims(opening: bytes) -> bool:
    """Return whether the file opens with the keys of a bench_serving run."""
    return opening.startswith(b'{"tag":') and b'"sharegpt_output_len"' in opening


def read(source: Source) -> Iterator[Result | Problem]:
    """Yield the results of each run in the file (runs are appended), each with its index in the dataset."""
    return runs(source, _result, vllm=False)


def _result(run: Run, index: int, place: str) -> Result:
    error = str(at(run, "errors", index) or "")
    return Result(
        place=place,
        index=index,
        success=not error,
        error=error.strip().rsplit("\n", 1)[-1],  # a traceback's last line says it
        prompt_tokens=count(at(run, "input_lens", index)),
        cached_tokens=_cached(run, index),
        output_tokens=count(at(run, "output_lens", index)),
        first_token=seconds(at(run, "ttfts", index)),
        end=decode_end(run, index),
    )


def _cached(run: Run, index: int) -> int | None:
    # On the OpenAI routes the client writes 0, its default, where the server said nothing, and the server
    # says nothing of a miss. Such a 0 is a miss only where the server did report for other requests of the
    # run. /generate always reports. (SGLang 0.5.23, benchmark/serving.py and output_streamer.py)
    if "reports" not in run:
        details = run.get("cached_tokens_details") or []
        run["reports"] = run.get("backend") in NATIVE or any(each is not None for each in details)
    cached = count(at(run, "cached_tokens", index))
    return cached if cached or run["reports"] else None
