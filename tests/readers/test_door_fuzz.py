"""A fuzzer of the door for records: whatever a result file holds ends in results, findings and problems."""

# Run: pytest -m slow tests/readers/test_door_fuzz.py. Seeds are fixed; what failed once is an example.

from __future__ import annotations

import io
import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st
from kit.audits import manifest, rows
from kit.odd_records import APART, CLIENTS, SAMPLES, content, document, places, put, read
from rich.console import Console

from wlgen.audit.audit import audit
from wlgen.errors import Problem, WlgenError
from wlgen.readers import Result, Source, aisbench, evalscope
from wlgen.readers._door import LATEST, MOST
from wlgen.report.answer import answer
from wlgen.report.provenance import Provenance
from wlgen.report.terminal import terminal

pytestmark = pytest.mark.slow
QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck))
KEYS = ["usage", "prompt_tokens", "cached_tokens", "value", "message", "info", "body", "error", "id", "text"]
words = st.one_of(st.text(max_size=12), st.sampled_from(["\x1b[2J", "\x9b2J", "NaN", "\r", "\u202e"]))
numbers = st.one_of(st.integers(), st.integers(-(10**30), 10**30), st.floats(), st.just(10**400))
leaves = st.one_of(st.none(), st.booleans(), numbers, words)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=8,
)
WHOLE = {client: document(client) for client in CLIENTS}
PLACES = {client: list(places(WHOLE[client])) for client in CLIENTS}
ROWS = [replace(row, id=f"s{n}") if n < 6 else row for n, row in enumerate(rows(4))]


def told(found: list[Result | Problem]) -> None:
    """Demand that each figure is one, and that no word does anything to a terminal."""
    for item in found:
        if isinstance(item, Problem):
            assert str(item).isprintable(), str(item)
            continue
        for count in (item.index, item.dp_rank, item.prompt_tokens, item.cached_tokens, item.output_tokens):
            assert count is None or (type(count) is int and 0 <= count <= 3 * MOST)
        for time in (item.start, item.first_token, item.end):
            assert time is None or (math.isfinite(time) and 0 <= time <= 2 * LATEST)
        for said in (
            item.place,
            item.id,
            item.error,
            item.finish_reason,
            *(w for g in item.garbled for w in g),
        ):
            assert said is None or said.isprintable(), repr(said)


SOURCE = Provenance.of(manifest(), clients=[], results=[], witnesses=[], options={})


def audited(found: list[Result | Problem]) -> None:
    """Demand that an audit ends in a report, which a terminal shows as it is, or in bad input."""
    screen = io.StringIO()
    try:
        outcome = audit(ROWS, [("formal.jsonl", found)], manifest(), absent_is_zero=True)
    except WlgenError as failure:
        screen.write(str(failure))
    else:
        Console(file=screen, highlight=False, soft_wrap=True).print(terminal(outcome))
        orjson.dumps(answer(outcome, SOURCE))
    assert screen.getvalue().replace("\n", "").isprintable()


@seed(51)
@settings(QUIET, max_examples=4000)
@given(client=st.sampled_from(CLIENTS), number=st.integers(0, 10**6), value=values)
def test_any_value_in_any_place_costs_no_other_record_and_ends_in_a_report(client, number, value):
    at = PLACES[client][number % len(PLACES[client])]
    changed = put(WHOLE[client], at, value)
    found = read(client, content(client, changed))
    told(found)
    audited(found)
    if client in APART and (where := _record_of(client, at)) is not None:
        good = read(client, content(client, WHOLE[client]))
        others = [item for number, item in enumerate(good) if number != where]
        kept = {item for item in found if isinstance(item, Result)}
        assert kept >= set(others)


def _record_of(client: str, at: tuple[str | int, ...]) -> int | None:
    """Return which record a place stands in, None where it holds several."""
    if client != "guidellm":
        return at[0] if at and isinstance(at[0], int) else None
    prefix = ("benchmarks", 0, "requests", "successful")
    return int(at[4]) if at[:4] == prefix and len(at) > 4 else None


@seed(52)
@settings(QUIET, max_examples=3000)
@given(
    client=st.sampled_from(CLIENTS),
    part=st.floats(0, 1),
    length=st.integers(0, 40),
    new=st.binary(max_size=40)
    | st.sampled_from([b'"', b"{", b"]", b"[" * 3000, b'{"a":' * 2000, b"\\", b"\n"]),
)
@example(client="plain", part=0.0, length=0, new=b'{"id": "x", "text": "\\ud800", "usage": NaN}\n')
@example(client="guidellm", part=0.0, length=1, new=b'{"\\x": 1, ')
@example(client="sglang", part=0.0, length=0, new=b"} ")
@example(client="plain", part=0.59375, length=1, new=b"")
def test_any_bytes_in_any_place_end_in_a_report(client, part, length, new):
    data = content(client, WHOLE[client])
    at = int(part * len(data))
    found = read(client, data[:at] + new + data[at + length :])
    told(found)
    audited(found)


@seed(53)
@settings(QUIET, max_examples=500)
@given(data=st.binary(max_size=200), client=st.sampled_from(CLIENTS))
def test_any_file_at_all_ends_in_a_report(data, client):
    found = read(client, data)
    assert all(isinstance(item, Problem) for item in found if item)
    audited(found)


stored = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), words, st.binary(max_size=60))
COLUMNS = ["request", "request_id", "success", "start_time", "latency", "first_chunk_latency"]
COLUMNS += ["prompt_tokens", "completion_tokens", "response_messages"]


def copied(folder: Path, sample: str, change: str, value: Any) -> Path:
    """Return a copy of a sample's database after one statement with one value."""
    path = folder / Path(sample).name
    path.write_bytes((SAMPLES / sample).read_bytes())
    with closing(sqlite3.connect(path)) as store:
        store.execute(change, (value,))
        store.commit()
    return path


@seed(54)
@settings(QUIET, max_examples=600)
@given(column=st.sampled_from(COLUMNS), value=stored.filter(lambda v: not isinstance(v, str) or v.isascii()))
def test_any_value_of_evalscopes_table_costs_no_other_row(tmp_path_factory, column, value):
    change = f"UPDATE result SET {column} = ? WHERE rowid = 1"  # noqa: S608 (a column of the list above)
    path = copied(tmp_path_factory.mktemp("e"), "evalscope/benchmark_data.db", change, value)
    found = list(
        evalscope.read(
            Source(
                name=str(path), content=io.BytesIO(), beside=lambda name: path if name == path.name else None
            )
        )
    )
    told(found)
    audited(found)
    assert isinstance(found[1], Result)
    assert not found[1].garbled


@seed(55)
@settings(QUIET, max_examples=600)
@given(value=st.one_of(st.integers(), st.binary(max_size=60), st.integers(0, 300)))
def test_any_stored_times_of_aisbench_cost_no_other_record_its_times(tmp_path_factory, value):
    sample = "aisbench/plugin/db_data/fe1b214a.db"
    if isinstance(value, int):  # one byte of a whole blob
        with closing(sqlite3.connect(SAMPLES / sample)) as store:
            blob = bytearray(store.execute("SELECT arr_blob FROM numpy_store WHERE id = 1").fetchone()[0])
        blob[value % len(blob)] ^= 1 + abs(value) % 255
        value = bytes(blob)
    change = "UPDATE numpy_store SET arr_blob = ? WHERE id = 1"
    path = copied(tmp_path_factory.mktemp("a"), sample, change, value)
    lines = io.BytesIO((SAMPLES / "aisbench/plugin/rows5_details.jsonl").read_bytes())
    found = list(aisbench.read(Source(name="formal.jsonl", content=lines, beside=lambda _: path)))
    told(found)
    audited(found)
    assert [item.start is not None for item in found[1:] if isinstance(item, Result)] == [True] * 4
