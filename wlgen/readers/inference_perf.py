"""inference-perf: per_request_lifecycle_metrics.json, an array; no id, the server's usage verbatim."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wlgen.errors import Problem
from wlgen.readers import Result, Source
from wlgen.readers._document import Cut, Document
from wlgen.readers._door import Part, admitted, decoded
from wlgen.readers._usage import counts, text_sha256

# The keys that stand before the request, which holds the whole prompt: 20 KB of a row of 4096 tokens.
_OPENING = re.compile(rb'\s*\[\s*\{\s*"start_time":[^,"]+,\s*"end_time":[^,"]+,\s*"(request|info)":')

BLIND = ""


def claims(opening: bytes) -> bool:
    """Return whether the file opens as an array of lifecycle metrics."""
    return _OPENING.match(opening) is not None


def read(source: Source) -> Iterator[Result | Problem]:
    """Yield the results in file order, with the hash of the request's text where the file keeps it."""
    document = Document(source.content)
    try:
        for index in document.items():
            held = document.record(f"{source.name}[{index}]")
            if isinstance(held, Problem):
                yield held
            elif not isinstance(held.get("info"), dict):
                expected = "a request with info.response_metrics"
                yield Problem(place=f"{source.name}[{index}]", expected=expected, found=held.keys)
            else:
                yield admitted(_result(held, index, f"{source.name}[{index}]"), held)
    except Cut as cut:
        found = f"garbled: {cut}: the file was cut, or is of another client"
        yield Problem(place=source.name, expected="an array of requests", found=found)


def _result(record: Part, index: int, place: str) -> Result:
    response = record.part("info").part("response_metrics")
    counted = counts(response.part("server_usage"))
    tokens = response.items("output_token_times") or response.items("chunk_times")
    error = record.error("error")
    return Result(
        place=place,
        index=index,
        text_sha256=_text(record.get("request")),
        success=not error,
        error=error,
        prompt_tokens=counted.prompt,
        cached_tokens=counted.cached,
        output_tokens=counted.output,
        start=record.seconds("start_time"),
        first_token=response.time(tokens[0], "output_token_times[0]") if tokens else None,
        end=record.seconds("end_time"),
    )


def _text(request: object) -> str | None:
    if isinstance(request, str):
        try:
            request = decoded(request.encode(errors="surrogatepass"))
        except ValueError:
            return text_sha256(request)
    return text_sha256(request)
