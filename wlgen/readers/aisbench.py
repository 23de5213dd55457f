"""AISBench: SET_details.jsonl, in order of completion, with its times in db_data/NAME.db beside it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from struct import iter_unpack
from typing import TypeAlias

from wlgen.errors import Problem
from wlgen.readers import Garbled, Result, Source
from wlgen.readers._door import Part, admitted
from wlgen.readers._lines import records
from wlgen.readers._usage import counts, text_sha256

BLIND = "AISBench's stock model class keeps no cached tokens (that of `wlgen export --to aisbench` does)"

Times: TypeAlias = tuple[float | None, float | None, float | None]
UNFINISHED = "tmp_"  # opens the names of the files of a run that has not ended
FLOAT = 8  # bytes
_RETRIES = re.compile(r"After (\d{1,6}) retries")
# What numpy.save writes of a list of floats, and the only thing that AISBench stores.
_FLOATS = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '<f8', 'fortran_order': (?:False|True), 'shape': \((\d+),\), \} *\n",
    re.DOTALL,
)


def claims(opening: bytes) -> bool:
    """Return whether the first line opens as a record of AISBench."""
    return opening.startswith(b'{"data_abbr":')


def read(source: Source) -> Iterator[Result | Problem]:
    """Yield the results of a details file, of the stock model class or of one that keeps usage.

    A record of SET_failed.jsonl is passed over: the details hold it too. Time points are those of the last
    attempt: before the POST, then one a stream event (AISBench 3.1.20260630). The dp_rank that a model class
    may keep is the rank that was asked for, not one that was observed. A run that was killed leaves its
    records in tmp/tmp_HEX.jsonl: they are read, and a Problem says that they may not be all.
    """
    with ExitStack() as open_stores:
        stores = _TimePoints(source, open_stores)
        for found in records(source):
            if isinstance(found, Problem):
                yield found
                continue
            place, record = found
            if "success" in record and "id" in record:
                yield admitted(_result(place, record, stores), record)
            elif "error_info" not in record:
                expected = "a record of SET_details.jsonl"
                yield Problem(place=place, expected=expected, found=record.keys)
        yield from stores.problems
    if Path(source.name).name.startswith(UNFINISHED):
        yield Problem(
            place=source.name,
            expected="SET_details.jsonl, which AISBench writes when a run ends",
            found="the records of a run that was killed: it was cut here",
            remedy="AISBench writes them in batches, so requests that ended last may be missing",
        )


def _result(place: str, record: Part, stores: _TimePoints) -> Result:
    extra = record.part("extra_perf_data")
    usage = counts(extra.part("usage"))
    error = record.error("error_info")
    success = record.get("success") is True
    start, first_token, end = stores.of(record)
    return Result(
        place=place,
        id=extra.text("wl_id"),
        index=record.count("id"),
        text_sha256=text_sha256(record.get("input")),
        success=success,
        error=error,
        attempts=_attempts(error, success=success),
        # 0 is what AISBench writes where the response had no usage
        prompt_tokens=usage.prompt or record.count("input_tokens") or None,
        cached_tokens=extra.count("cached_tokens") if usage.cached is None else usage.cached,
        output_tokens=record.count("output_tokens") if usage.output is None else usage.output,
        start=start,
        first_token=first_token,
        end=end,
        finish_reason=extra.text("finish_reason"),
    )


def _attempts(error: str, *, success: bool) -> int:
    # A stream that was cut and then retried says success true, and keeps the error of the attempt before.
    retries = _RETRIES.search(error)
    failed = int(retries[1]) if retries else int(bool(error))
    return failed + 1 if success else max(1, failed)


class _TimePoints:
    """The run's stores of time points, opened as records name them, one blob a look-up."""

    def __init__(self, source: Source, stack: ExitStack) -> None:
        self._source = source
        self._stack = stack
        self._open: dict[str, sqlite3.Connection | None] = {}
        self.problems: list[Problem] = []

    def of(self, record: Part) -> Times:
        """Return start, first token and end: the first time point, the second and the last."""
        name, reference = record.text("db_name"), record.part("time_points").count("__db_ref__")
        if name is None or reference is None:
            return None, None, None
        if name != Path(name).name or not name.isprintable():
            record.garbled.append(Garbled("db_name", "the name of a file", ascii(name)[:60]))
            return None, None, None
        try:
            if name not in self._open:
                self._open[name] = self._connect(name)
            store = self._open[name]
            query = "SELECT arr_blob FROM numpy_store WHERE id = ?"
            found = store and store.execute(query, (reference,)).fetchone()
        except (sqlite3.Error, OSError) as failure:
            self._open[name] = None
            expected = "time points in numpy_store(id, arr_blob)"
            self.problems.append(Problem(place=f"db_data/{name}", expected=expected, found=str(failure)))
            return None, None, None
        return self._points(found[0], record) if found else (None, None, None)

    @staticmethod
    def _points(blob: object, record: Part) -> Times:
        held = blob if isinstance(blob, bytes) else b""
        opening = _FLOATS.match(held)
        if not opening or len(held) - opening.end() != FLOAT * int(opening[1][:18]):
            record.garbled.append(Garbled("time_points", "a stored list of floats", "other bytes"))
            return None, None, None
        points = [point for (point,) in iter_unpack("<d", held[opening.end() :])]
        several = points if len(points) > 1 else [*points[:1], None, None]  # a failure has its start alone
        if not points:
            return None, None, None
        start, first, end = (record.time(several[at], "time_points") for at in (0, 1, -1))
        return start, first, end

    def _connect(self, name: str) -> sqlite3.Connection | None:
        # A run that was killed leaves its store under tmp/, beside the records that name it.
        places = (f"db_data/{name}", f"tmp/{UNFINISHED}{name}", f"{UNFINISHED}{name}", f"../db_data/{name}")
        path = next(filter(None, map(self._source.beside, places)), None)
        if path is None:
            return None
        unchanging = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
        store = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{unchanging}", uri=True)
        return self._stack.enter_context(closing(store))
