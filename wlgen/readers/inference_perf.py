"""inference-perf: per_request_lifecycle_metrics.json, an array; no id, the server's usage verbatim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from wlgen.errors import Problem
from wlgen.readers import Result, Source
from wlgen.readers._document import Cut, Document
from wlgen.readers._usage import counts, seconds, text_sha256


def claims(opening: bytes) -> bool:
    """Return whether the file opens as an array of lifecycle metrics."""
    keys = (b'"start_time"', b'"end_time"', b'"info"')
    return opening.lstrip().startswith(b"[") and all(key in opening for key in keys)


def read(source: Source) -> Iterator[Result | Problem]:
    """Yield the results in file order, with the hash of the request's text where the file keeps it."""
    document = Document(source.content)
    try:
        for index in document.items():
            yield _result(document.value(), index, f"{source.name}[{index}]")
    except Cut as cut:
        found = f"{cut}: the file was cut, or is of another client"
        yield Problem(place=source.name, expected="an array of requests", found=found)


def _result(record: Any, index: int, place: str) -> Result | Problem:
    if not isinstance(record, dict) or not isinstance(record.get("info"), dict):
        return Problem(place=place, expected="a request with info.response_metrics", found=repr(record)[:60])
    response = record["info"].get("response_metrics") or {}
    counted = counts(response.get("server_usage"))
    tokens = response.get("output_token_times") or response.get("chunk_times") or []
    error = record.get("error")
    message = error.get("error_msg") or error.get("error_type") if isinstance(error, dict) else error
    return Result(
        place=place,
        index=index,
        text_sha256=_text(record.get("request")),
        success=not error,
        error=str(message or ""),
        prompt_tokens=counted.prompt,
        cached_tokens=counted.cached,
        output_tokens=counted.output,
        start=seconds(record.get("start_time")),
        first_token=seconds(tokens[0]) if tokens else None,
        end=seconds(record.get("end_time")),
    )


def _text(request: object) -> str | None:
    if isinstance(request, str):
        try:
            request = orjson.loads(request)
        except orjson.JSONDecodeError:
            return text_sha256(request)
    return text_sha256(request)
