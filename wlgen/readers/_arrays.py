"""Runs kept as one array a field, in dataset order: what bench_serving and vllm bench serve write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

from wlgen.errors import Problem
from wlgen.readers import Result, Source
from wlgen.readers._document import Cut, Document
from wlgen.readers._door import Part, admitted

Run: TypeAlias = dict[str, Any]
SINGLE = ("backend", "endpoint_type")  # only vLLM's runs have an endpoint_type
ARRAYS = (
    "input_lens",
    "output_lens",
    "ttfts",
    "latencies",
    "start_times",
    "errors",
    "cached_tokens",
    "cached_tokens_details",
)
DECODE = "itls"  # a request's inter-token latencies, kept as their sum


def runs(
    source: Source, result: Callable[[Part, Run, int, str], Result], *, vllm: bool
) -> Iterator[Result | Problem]:
    """Yield the results of each run of a file: result(record, run, index, place).

    record: the values of one request, by field. run: all of the run, a field to its array.

    Inter-token latencies are summed as they are read, so that a run of 20,000 requests of 1024 tokens is not
    held as 20 million numbers; where one of a request's is no number, its sum is "garbled", which is no time.
    """
    document = Document(source.content)
    number = 0
    try:
        while document.more():
            number += 1
            place = f"{source.name}:{number}"
            if not document.is_a(b"{"):
                document.skip()
                yield Problem(place=place, expected="a JSON object a run", found="garbled: another value")
                continue
            run = _run(document)
            if ("endpoint_type" in run) is vllm:
                yield from (_of_run(found, number - 1) for found in _results(place, run, result))
            else:
                ours, other = ("vLLM", "SGLang") if vllm else ("SGLang", "vLLM")
                yield Problem(place=place, expected=f"a run of {ours}", found=f"one of {other} or another")
    except Cut as cut:
        found = f"garbled: {cut}: the file was cut, or is of another client"
        yield Problem(place=source.name, expected="a JSON object a run", found=found)


def _of_run(found: Result | Problem, run: int) -> Result | Problem:
    return replace(found, run=run) if isinstance(found, Result) else found


def decode_end(record: Part) -> float | None:
    """Return the end of a request from its own start: its latency, or first token plus all later ones."""
    latency = record.seconds("latencies")
    if latency is not None:
        return latency
    ttft, decode = record.seconds("ttfts"), record.seconds(DECODE)
    return None if ttft is None or decode is None else ttft + decode


def last_line(words: str) -> str:
    """Return the last line of an error's words: that of a traceback says what went wrong."""
    return words.strip().rsplit("\n", 1)[-1]


def _run(document: Document) -> Run:
    run: Run = {}
    for key in document.members():
        if key == DECODE and document.is_a(b"["):
            run[key] = [_sum(document) for _ in document.items()]
        elif key in ARRAYS or key in SINGLE or key == DECODE:
            try:
                run[key] = document.value()
            except ValueError:
                run[key] = "garbled"
        else:
            document.skip()
    return run


def _sum(document: Document) -> object:
    try:
        values = document.value()
        return None if values is None else float(sum(values))
    except (ValueError, TypeError, OverflowError):
        return "garbled"


def _results(
    place: str, run: Run, result: Callable[[Part, Run, int, str], Result]
) -> Iterator[Result | Problem]:
    fields = {name: run[name] for name in (*ARRAYS, DECODE) if run.get(name) is not None}
    arrays = {name: values for name, values in fields.items() if isinstance(values, list)}
    for name in fields.keys() - arrays.keys():
        found = "garbled: another value"
        yield Problem(place=f"{place}.{name}", expected="an array, a value a request", found=found)
    if "errors" not in arrays or "input_lens" not in arrays:
        expected = "arrays of each request (bench_serving --output-details, vllm --save-detailed)"
        yield Problem(place=place, expected=expected, found="totals only")
        return
    if len({len(values) for values in arrays.values()}) > 1:
        found = ", ".join(f"{name} {len(values)}" for name, values in arrays.items())
        yield Problem(place=place, expected="arrays of one length", found=found)
        return
    for index in range(len(arrays["errors"])):
        record = Part({name: values[index] for name, values in arrays.items()})
        yield admitted(result(record, run, index, f"{place}[{index}]"), record)
