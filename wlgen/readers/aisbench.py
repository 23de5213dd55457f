"""AISBench: SET_details.jsonl, in order of completion, with its times in db_data/NAME.db beside it."""

from __future__ import annotations

import io
import re
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any, TypeAlias

from wlgen.errors import Problem
from wlgen.readers import Result, Source
from wlgen.readers._lines import records
from wlgen.readers._usage import count, counts, text_sha256

Times: TypeAlias = tuple[float | None, float | None, float | None]
_RETRIES = re.compile(r"After (\d+) retries")


def claims(opening: bytes) -> bool:
    """Return whether the first line opens as a record of AISBench."""
    return opening.startswith(b'{"data_abbr":')


def read(source: Source) -> Iterator[Result | Problem]:
    """Yield the results of a details file, of the stock model class or of one that keeps usage.

    A record of SET_failed.jsonl is passed over: the details hold it too. Time points are those of the last
    attempt: before the POST, then one a stream event (AISBench 3.1.20260630). The dp_rank that a model class
    may keep is the rank that was asked for, not one that was observed.
    """
    with ExitStack() as open_stores:
        stores = _TimePoints(source, open_stores)
        for found in records(source):
            if isinstance(found, Problem):
                yield found
                continue
            place, record = found
            if "success" in record and count(record.get("id")) is not None:
                yield _result(place, record, stores)
            elif "error_info" not in record:
                yield Problem(place=place, expected="a record of SET_details.jsonl", found=_keys(record))
        yield from stores.problems


def _result(place: str, record: dict[str, Any], stores: _TimePoints) -> Result:
    extra = record.get("extra_perf_data") or {}
    usage = counts(extra.get("usage"))
    error = str(record.get("error_info") or "")
    success = record["success"] is True
    start, first_token, end = stores.of(record)
    return Result(
        place=place,
        id=extra.get("wl_id"),
        index=record["id"],
        text_sha256=text_sha256(record.get("input")),
        success=success,
        error=error,
        attempts=_attempts(error, success=success),
        # 0 is what AISBench writes where the response had no usage
        prompt_tokens=usage.prompt or count(record.get("input_tokens")) or None,
        cached_tokens=count(extra.get("cached_tokens")) if usage.cached is None else usage.cached,
        output_tokens=count(record.get("output_tokens")) if usage.output is None else usage.output,
        start=start,
        first_token=first_token,
        end=end,
        finish_reason=extra.get("finish_reason"),
    )


def _attempts(error: str, *, success: bool) -> int:
    # A stream that was cut and then retried says success true, and keeps the error of the attempt before.
    retries = _RETRIES.search(error)
    failed = int(retries[1]) if retries else int(bool(error))
    return failed + 1 if success else max(1, failed)


def _keys(record: dict[str, Any]) -> str:
    return f"an object with the keys {', '.join(list(record)[:6])}"


class _TimePoints:
    """The run's stores of time points, opened as records name them, one blob a look-up."""

    def __init__(self, source: Source, stack: ExitStack) -> None:
        self._source = source
        self._stack = stack
        self._open: dict[str, sqlite3.Connection | None] = {}
        self.problems: list[Problem] = []

    def of(self, record: dict[str, Any]) -> Times:
        """Return start, first token and end: the first time point, the second and the last."""
        import numpy as np  # noqa: PLC0415 (only this reader needs it)

        name, reference = record.get("db_name"), record.get("time_points")
        if not isinstance(name, str) or not isinstance(reference, dict):
            return None, None, None
        try:
            if name not in self._open:
                self._open[name] = self._connect(name)
            store = self._open[name]
            query = "SELECT arr_blob FROM numpy_store WHERE id = ?"
            found = store and store.execute(query, (reference.get("__db_ref__"),)).fetchone()
            points: Any = np.load(io.BytesIO(found[0]), allow_pickle=False) if found else ()
        except (sqlite3.Error, ValueError, EOFError, OSError) as failure:
            self._open[name] = None
            expected = "time points in numpy_store(id, arr_blob)"
            self.problems.append(Problem(place=f"db_data/{name}", expected=expected, found=str(failure)))
            return None, None, None
        if len(points) > 1:
            return float(points[0]), float(points[1]), float(points[-1])
        return (float(points[0]) if len(points) else None), None, None  # a failure has its start alone

    def _connect(self, name: str) -> sqlite3.Connection | None:
        # An interrupted run leaves its store under tmp/.
        path = self._source.beside(f"db_data/{name}") or self._source.beside(f"tmp/tmp_{name}")
        if path is None:
            return None
        unchanging = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
        store = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{unchanging}", uri=True)
        return self._stack.enter_context(closing(store))
