"""guidellm: benchmarks.json, which repeats every request's body; ids are random, so text joins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from wlgen.errors import Problem
from wlgen.readers import Result, Source
from wlgen.readers._document import Cut, Document
from wlgen.readers._usage import count, seconds, text_sha256

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
            for number in document.items():
                yield from _benchmark(document, f"{source.name}:benchmarks[{number}]")
    except Cut as cut:
        found = f"{cut}: the file was cut, or is of another client"
        yield Problem(place=source.name, expected="a guidellm report", found=found)
        return
    if not seen:
        yield Problem(place=source.name, expected="benchmarks[].requests", found="no benchmarks")


def _benchmark(document: Document, place: str) -> Iterator[Result | Problem]:
    for key in document.members():
        if key != "requests":
            document.skip()
            continue
        for outcome in document.members():
            if outcome not in OUTCOMES or not document.is_a(b"["):
                document.skip()
                continue
            for number in document.items():
                yield _result(document.value(), outcome, f"{place}.{outcome}[{number}]")


def _result(record: Any, outcome: str, place: str) -> Result | Problem:
    text = _text(record.get("request_args")) if isinstance(record, dict) else None
    if text is None:
        return Problem(place=place, expected="request_args with the text sent", found=repr(record)[:60])
    info = record.get("info") or {}
    start = seconds(record.get("request_start_time"))
    ttft = seconds(record.get("time_to_first_token_ms"), MILLI)
    return Result(
        place=place,
        text_sha256=text,
        success=outcome == "successful",
        error="" if outcome == "successful" else str(info.get("error") or outcome),
        prompt_tokens=count(record.get("prompt_tokens")),
        cached_tokens=count(record.get("cached_tokens")),
        output_tokens=count(record.get("output_tokens")),
        start=start,
        first_token=start + ttft if start is not None and ttft is not None else None,
        end=seconds(record.get("request_end_time")),
    )


def _text(request_args: object) -> str | None:
    try:
        sent = orjson.loads(request_args) if isinstance(request_args, str) else request_args
    except orjson.JSONDecodeError:
        return None
    body = sent.get("body") if isinstance(sent, dict) else None
    return text_sha256(body if isinstance(body, dict) else sent)
