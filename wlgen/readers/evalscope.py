"""evalscope perf: benchmark_data.db, a SQLite table with the body sent and every event that came back."""

from __future__ import annotations

import base64
import io
import pickle
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import orjson

from wlgen.errors import Problem
from wlgen.readers import Result, Source
from wlgen.readers._usage import Counts, count, counts, seconds, text_sha256

_QUERY = """SELECT request, request_id, success, start_time, latency, first_chunk_latency, prompt_tokens,
completion_tokens, response_messages FROM result ORDER BY rowid"""


def claims(opening: bytes) -> bool:
    """Return whether the file is a SQLite database whose schema is evalscope's."""
    return opening.startswith(b"SQLite format 3\0") and b"inter_token_latencies" in opening


def read(source: Source) -> Iterator[Result | Problem]:
    """Yield the results in the order they ended; joined by the trace's request_id, or by the text.

    Of a stream evalscope drops the last event, which has no choices but the usage, and keeps the two token
    counts of it: cached tokens are then not observed, and only of whole responses they are (1.14.1).
    """
    path = source.beside(Path(source.name).name)
    if path is None:
        yield Problem(place=source.name, expected="a database on disk", found="none")
        return
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as store:
            for number, record in enumerate(store.execute(_QUERY)):
                yield _result(record, f"{source.name}[{number}]")
    except sqlite3.Error as failure:
        expected = "evalscope's table `result`"
        yield Problem(place=source.name, expected=expected, found=str(failure))


def _result(record: tuple[Any, ...], place: str) -> Result | Problem:
    request, request_id, success, start, latency, first, prompt, output, messages = record
    try:
        sent = orjson.loads(request)
        loaded = _Plain(io.BytesIO(base64.b64decode(messages))).load()
    except (TypeError, ValueError, EOFError, pickle.UnpicklingError) as failure:
        return Problem(place=place, expected="a request and its events", found=str(failure))
    events = loaded if isinstance(loaded, list) else []
    start, ended = seconds(start), bool(success) and seconds(latency) is not None
    origin = start or 0.0
    counted = _usage(events)
    return Result(
        place=place,
        id=request_id or None,
        text_sha256=text_sha256(sent),
        success=bool(success),
        error="" if success else str(events[-1])[:200] if events else "failed",
        prompt_tokens=count(prompt) if counted.prompt is None else counted.prompt,
        cached_tokens=counted.cached,
        output_tokens=count(output) if counted.output is None else counted.output,
        start=start,
        first_token=origin + first if ended and first else None,
        end=origin + latency if ended else None,
    )


class _Plain(pickle.Unpickler):
    """Loads lists, dicts, strings and numbers; a pickle that names anything else is refused, not run."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"events that hold a {module_name}.{global_name}")


def _usage(events: list[Any]) -> Counts:
    blocks = [event["usage"] for event in events if isinstance(event, dict) and event.get("usage")]
    return counts(blocks[-1]) if blocks else Counts()
