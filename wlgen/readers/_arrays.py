"""Runs kept as one array a field, in dataset order: what bench_serving and vllm bench serve write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from wlgen.errors import Problem
from wlgen.readers import Result, Source
from wlgen.readers._document import Cut, Document
from wlgen.readers._usage import seconds

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


def runs(
    source: Source, result: Callable[[Run, int, str], Result], *, vllm: bool
) -> Iterator[Result | Problem]:
    """Yield the results of each run of a file: result(run, index, place), run mapping a field to its array.

    Inter-token latencies are summed as they are read, into run["decode"], so that a run of 20,000 requests
    of 1024 tokens is not held as 20 million numbers.
    """
    document = Document(source.content)
    number = 0
    try:
        while document.more():
            number += 1
            run, place = _run(document), f"{source.name}:{number}"
            if ("endpoint_type" in run) is vllm:
                yield from _results(place, run, result)
            else:
                ours, other = ("vLLM", "SGLang") if vllm else ("SGLang", "vLLM")
                yield Problem(place=place, expected=f"a run of {ours}", found=f"one of {other} or another")
    except Cut as cut:
        found = f"{cut}: the file was cut, or is of another client"
        yield Problem(place=source.name, expected="a JSON object a run", found=found)


def decode_end(run: Mapping[str, Any], index: int) -> float | None:
    """Return the end of a request from its own start: its latency, or first token plus all later ones."""
    latency = seconds(at(run, "latencies", index))
    if latency is not None:
        return latency
    ttft, decode = seconds(at(run, "ttfts", index)), seconds(at(run, "decode", index))
    return None if ttft is None or decode is None else ttft + decode


def at(run: Mapping[str, Any], name: str, index: int) -> Any:
    """Return the value of a field for one request, or None where the run has no such field."""
    values = run.get(name)
    return values[index] if isinstance(values, list) and index < len(values) else None


def _run(document: Document) -> Run:
    run: Run = {}
    for key in document.members():
        if key in ARRAYS or key in SINGLE:
            run[key] = document.value()
        elif key == "itls":
            run["decode"] = [float(sum(document.value())) for _ in document.items()]
        else:
            document.skip()
    return run


def _results(place: str, run: Run, result: Callable[[Run, int, str], Result]) -> Iterator[Result | Problem]:
    lengths = {name: len(run[name]) for name in ARRAYS if isinstance(run.get(name), list)}
    if "errors" not in lengths or "input_lens" not in lengths:
        expected = "arrays of each request (bench_serving --output-details, vllm --save-detailed)"
        yield Problem(place=place, expected=expected, found="totals only")
        return
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        yield Problem(place=place, expected="arrays of one length", found=found)
        return
    for index in range(lengths["errors"]):
        yield result(run, index, f"{place}[{index}]")
