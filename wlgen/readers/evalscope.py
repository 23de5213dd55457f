"""evalscope perf: benchmark_data.db, a SQLite table with the body sent and every event that came back."""

from __future__ import annotations

import base64
import dataclasses
import io
import pickle
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import orjson

from wlgen.errors import Problem, printable
from wlgen.readers import Garbled, Result, Source
from wlgen.readers._door import Part, admitted, error_words
from wlgen.readers._usage import Counts, counts, text_sha256

BLIND = (
    "of a stream evalscope keeps only the running sum of cached tokens, in workload_timeline.json beside its "
    "database: none lies there that fits, or its sum is 0, which may mean that nothing was reported"
)
_TIMELINE = "workload_timeline.json"
_ROUNDED = 2e-6  # seconds: the timeline keeps times to the microsecond

_COLUMNS = (
    "request",
    "request_id",
    "success",
    "start_time",
    "latency",
    "first_chunk_latency",
    "prompt_tokens",
    "completion_tokens",
    "response_messages",
)
_QUERY = f"SELECT {', '.join(_COLUMNS)} FROM result ORDER BY rowid"  # noqa: S608 (names of ours alone)


def claims(opening: bytes) -> bool:
    """Return whether the file is a SQLite database whose schema is evalscope's."""
    return opening.startswith(b"SQLite format 3\0") and b"inter_token_latencies" in opening


def read(source: Source) -> Iterator[Result | Problem]:
    """Yield the results in the order they ended; joined by the trace's request_id, or by the text.

    Of a stream evalscope drops the last event, which has no choices but the usage, and keeps two token counts
    of it in its table (1.14.1). It adds up the third, cached tokens, in workload_timeline.json, a point for
    each row of the table: 118784, 237568. A run that was killed while it wrote leaves a journal beside the
    database: a Problem names it.
    """
    name = Path(source.name).name
    path, journal = source.beside(name), source.beside(f"{name}-journal")
    if path is None:
        yield Problem(place=source.name, expected="a database on disk", found="none")
        return
    with ExitStack() as stack:
        try:
            settled = path if journal is None else _rolled_back(path, journal, stack)
            yield from _records(settled, source.name, _cached_by_row(settled, source.beside(_TIMELINE)))
        except (sqlite3.Error, OSError) as failure:
            found = f"garbled: {printable(str(failure))}"
            yield Problem(place=source.name, expected="evalscope's table `result`", found=found)
    if journal is not None:
        yield Problem(
            place=f"{source.name}-journal",
            expected="a database that evalscope has closed",
            found="a hot journal: evalscope was killed while it wrote. What it had written whole is read, "
            "and the run was cut there",
        )


def _rolled_back(path: Path, journal: Path, stack: ExitStack) -> Path:
    """Return a copy of a database from which SQLite may take back what was written by half.

    The database itself already holds the pages of the unfinished write, and SQLite does not read it before
    it has restored those in the journal, which changes the file. The copy goes when the stack is closed.
    """
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="wlgen-")))
    for each in (path, journal):
        copyfile(each, folder / each.name)
    with closing(sqlite3.connect(folder / path.name)) as store:
        store.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return folder / path.name


def _cached_by_row(database: Path, timeline: Path | None) -> Mapping[int, int]:
    """Return the cached tokens of each row of the table, by its place; nothing if the timeline does not fit.

    Each successful row has a point in the timeline, in the order of the table: its end, counted from the
    first row's start, proves that they belong together. A sum that stays 0 says nothing, since evalscope
    adds 0 where a server reports nothing.
    """
    if timeline is None:
        return {}
    try:
        told = orjson.loads(timeline.read_bytes())
        start, points = float(told["wall_start"]), told["points"]
        sums = [int(point["cum_cached_prompt"]) for point in points]
        ends = [start + float(point["t"]) for point in points]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as store:
        rows = store.execute("SELECT success, completed_time FROM result ORDER BY rowid").fetchall()
    places = [place for place, (success, _) in enumerate(rows) if success]
    if len(places) != len(points) or sums != sorted(sums) or not any(sums):
        return {}
    if not _are_same([rows[place][1] for place in places], ends):
        return {}
    return {place: now - before for place, before, now in zip(places, [0, *sums], sums, strict=False)}


def _are_same(completed: Sequence[object], ends: Sequence[float]) -> bool:
    pairs = zip(completed, ends, strict=True)
    return all(isinstance(time, int | float) and abs(time - end) <= _ROUNDED for time, end in pairs)


def _records(path: Path, name: str, cached: Mapping[int, int]) -> Iterator[Result | Problem]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as store:
        # A text that is no UTF-8 would otherwise end the reading of the whole table.
        store.text_factory = lambda text: text.decode(errors="replace")
        for number, values in enumerate(store.execute(_QUERY)):
            record = Part(dict(zip(_COLUMNS, values, strict=True)))
            result = _result(record, f"{name}[{number}]")
            if result.success and result.cached_tokens is None and number in cached:
                result = dataclasses.replace(result, cached_tokens=cached[number])
            yield admitted(result, record)


def _result(record: Part, place: str) -> Result:
    events = _events(record)
    success = bool(record.count("success"))
    start, latency = record.seconds("start_time"), record.seconds("latency")
    first, origin = record.seconds("first_chunk_latency"), start or 0.0
    ended = success and latency is not None
    counted = _usage(events, record)
    return Result(
        place=place,
        id=record.text("request_id") or None,
        text_sha256=text_sha256(record.json("request")),
        success=success,
        error="" if success else error_words(events[-1] if events else None) or "failed",
        prompt_tokens=record.count("prompt_tokens") if counted.prompt is None else counted.prompt,
        cached_tokens=counted.cached,
        output_tokens=record.count("completion_tokens") if counted.output is None else counted.output,
        start=start,
        first_token=origin + first if ended and first else None,
        end=None if latency is None or not ended else origin + latency,
    )


class _Plain(pickle.Unpickler):
    """Loads lists, dicts, strings and numbers; a pickle that names anything else is refused, not run."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"events that hold a {module_name}.{global_name}")


def _events(record: Part) -> list[Any]:
    messages = record.text("response_messages")
    if not messages:
        return []
    try:
        loaded = _Plain(io.BytesIO(base64.b64decode(messages))).load()
    except Exception as failure:  # noqa: BLE001 (a broken pickle may raise any error, as pickle's pages say)
        loaded = printable(str(failure) or type(failure).__name__)
    if isinstance(loaded, list):
        return loaded
    record.garbled.append(Garbled("response_messages", "a pickled list of events", f"{loaded}"[:300]))
    return []


def _usage(events: list[Any], record: Part) -> Counts:
    blocks = [event["usage"] for event in events if isinstance(event, dict) and event.get("usage")]
    return counts(Part(blocks[-1], "usage", record.garbled)) if blocks else Counts()
