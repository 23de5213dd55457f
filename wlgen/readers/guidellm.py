"""guidellm: benchmarks.json, which repeats every request's body; ids are random, so text joins."""

from __future__ import annotations

from collections.abc import Iterator

from wlgen.errors import Problem
from wlgen.readers import Result, Source
from wlgen.readers._document import Cut, Document
from wlgen.readers._door import Part, admitted
from wlgen.readers._usage import text_sha256

BLIND = ""

MILLI = 1e-3
OUTCOMES = ("successful", "errored", "incomplete")


def claims(opening: bytes) -> bool:
    """Return whether the file opens with guidellm's metadata."""
    return opening.lstrip().startswith(b"{") and b'"guidellm_version"' in opening


def read(source: Source) -> Iterator[Result | Problem]:
    """Yield the results of each benchmark of the report: successful, errored, incomplete, as they come."""
    document = Document(source.content)
    seen = False
    try:
        for key in document.members():
            if key != "benchmarks":
                document.skip()
                continue
            seen = True
            if not document.is_a(b"["):
                document.skip()
                yield Problem(place=f"{source.name}:benchmarks", expected="a list", found="garbled: no list")
                continue
            for number in document.items():
                yield from _benchmark(document, f"{source.name}:benchmarks[{number}]", number)
    except Cut as cut:
        found = f"garbled: {cut}: the file was cut, or is of another client"
        yield Problem(place=source.name, expected="a guidellm report", found=found)
        return
    if not seen:
        yield Problem(place=source.name, expected="benchmarks[].requests", found="no benchmarks")


def _benchmark(document: Document, place: str, run: int) -> Iterator[Result | Problem]:
    if not document.is_a(b"{"):
        document.skip()
        yield Problem(place=place, expected="a benchmark, an object", found="garbled: another value")
        return
    for key in document.members():
        if key != "requests" or not document.is_a(b"{"):
            document.skip()
            continue
        for outcome in document.members():
            if outcome not in OUTCOMES or not document.is_a(b"["):
                document.skip()
                continue
            for number in document.items():
                held = document.record(f"{place}.{outcome}[{number}]")
                if isinstance(held, Problem):
                    yield held
                else:
                    yield admitted(_result(held, outcome, f"{place}.{outcome}[{number}]", run), held)


def _result(record: Part, outcome: str, place: str, run: int) -> Result:
    start = record.seconds("request_start_time")
    ttft = record.seconds("time_to_first_token_ms", MILLI)
    return Result(
        place=place,
        text_sha256=_text(record.json("request_args")),
        success=outcome == "successful",
        error="" if outcome == "successful" else record.part("info").error("error") or outcome,
        prompt_tokens=record.count("prompt_tokens"),
        cached_tokens=record.count("cached_tokens"),
        output_tokens=record.count("output_tokens"),
        start=start,
        first_token=start + ttft if start is not None and ttft is not None else None,
        end=record.seconds("request_end_time"),
        run=run,
    )


def _text(sent: object) -> str | None:
    body = sent.get("body") if isinstance(sent, dict) else None
    return text_sha256(body if isinstance(body, dict) else sent)
