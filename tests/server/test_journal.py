"""The journal tells what a server holds, survives being cut off, and belongs to one process at a time."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path

import orjson
import pytest

from wlgen.errors import WlgenError
from wlgen.server.journal import Journal

TARGET = {"event": "begin", "set": "small", "url": "http://one", "model": "m"}


def ended(name: str, split: str, *, success: bool = True, findings: tuple = ()) -> dict:
    return {
        "event": "ended",
        "id": name,
        "split": split,
        "dp_rank": 0,
        "success": success,
        "findings": list(findings),
    }


def written(path, *events: dict):
    with Journal(path) as journal:
        for event in events:
            journal.write(event)
    with Journal(path) as journal:
        return journal.history


def test_it_tells_good_seeds_passed_checks_and_what_was_sent(tmp_path):
    history = written(
        tmp_path / "j",
        TARGET,
        {"event": "flush"},
        {"event": "sent", "id": "s0"},
        ended("s0", "seed"),
        {"event": "sent", "id": "s1"},
        ended("s1", "seed", success=False),
        {"event": "sent", "id": "c0"},
        ended("c0", "check"),
        {"event": "sent", "id": "c1"},
    )
    assert history.seeded == {"s0": 0}
    assert history.passed == {"c0"}
    assert history.sent == {"s0", "s1", "c0", "c1"}
    assert not history.failed


def test_a_flush_and_another_target_make_it_forget(tmp_path):
    seeded = (TARGET, {"event": "sent", "id": "s0"}, ended("s0", "seed"))
    assert written(tmp_path / "a", *seeded, TARGET).seeded == {"s0": 0}
    assert written(tmp_path / "b", *seeded, TARGET, {"event": "flush"}).seeded == {}
    assert written(tmp_path / "c", *seeded, TARGET | {"url": "http://two"}).seeded == {}


def test_a_finding_marks_it_until_the_next_flush(tmp_path):
    failed = (TARGET, ended("c0", "check", findings=[{"promise": "cached_bound"}]))
    assert written(tmp_path / "a", *failed).failed == {0}
    assert not written(tmp_path / "b", *failed, {"event": "flush"}).failed


def test_the_counts_are_those_of_the_last_look(tmp_path):
    prepared = (TARGET, {"event": "prepared", "counts": {"requests": 7}})
    history = written(tmp_path / "j", *prepared)
    assert (history.closed, history.counts) == (True, {"requests": 7})
    history = written(tmp_path / "j", TARGET)
    assert (history.closed, history.counts) == (False, None)


def test_a_journal_that_is_void_forgets_its_rows_and_that_the_cache_was_empty(tmp_path):
    seeded = (TARGET, {"event": "flush"}, {"event": "sent", "id": "s0"}, ended("s0", "seed"))
    assert written(tmp_path / "a", *seeded).flushed
    history = written(tmp_path / "b", *seeded, {"event": "void", "reason": "--fresh"})
    assert (history.seeded, history.sent, history.flushed) == ({}, set(), False)


@pytest.mark.parametrize("torn", [b'{"event":"sent","id":"s', b"{"])
def test_a_last_line_cut_off_while_written_is_dropped_and_written_over(tmp_path, torn):
    path = tmp_path / "j"
    written(path, TARGET, {"event": "sent", "id": "s0"})
    path.write_bytes(path.read_bytes() + torn)
    history = written(path, ended("s0", "seed"))
    assert history.seeded == {"s0": 0}
    assert torn not in path.read_bytes().splitlines()


@pytest.mark.parametrize("line", [b"not json\n", b"[]\n", b'{"id":"s0"}\n', b'{"event":"ended","id":"s0"}\n'])
def test_a_line_that_is_no_event_is_named_by_its_number(tmp_path, line):
    path = tmp_path / "j"
    written(path, TARGET)
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(WlgenError, match=r"j:2: expected an event of a preparation"), Journal(path):
        pass


def test_each_line_is_on_the_disk_before_the_write_returns(tmp_path, monkeypatch):
    path = tmp_path / "j"
    synced = []
    monkeypatch.setattr("os.fsync", lambda _: synced.append(path.read_bytes()))
    written(path, TARGET, {"event": "sent", "id": "s0"})
    assert [content.count(b"\n") for content in synced] == [1, 2]


def test_two_preparations_cannot_write_one_journal(tmp_path):
    with (
        Journal(tmp_path / "j"),
        pytest.raises(WlgenError, match="another preparation"),
        Journal(tmp_path / "j"),
    ):
        pass


def test_a_place_that_cannot_be_written_is_bad_input(tmp_path):
    with pytest.raises(WlgenError, match="a writable journal"), Journal(tmp_path / "no" / "j"):
        pass


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_a_pipe_a_folder_or_a_device_is_no_journal_and_is_not_opened(tmp_path, kind):
    """A pipe that nobody reads would be waited for without end."""
    path = Path("/dev/null") if kind == "device" else tmp_path / "j"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(WlgenError, match="expected a writable journal"), Journal(path):
        pass


ODD = [None, 7, -1, True, "x", [], {}, [[]], {"a": []}, 1.5]


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("key", ["event", "id", "split", "dp_rank", "success", "findings", "counts"])
def test_a_value_that_no_preparation_writes_is_named_by_its_line(tmp_path, key, value):
    path, event = tmp_path / "j", ended("s0", "seed") | {"counts": {"requests": 1}}
    path.write_bytes(orjson.dumps(TARGET) + b"\n" + orjson.dumps(event | {key: value}) + b"\n")
    fits = type(value) is type(event[key]) and value != {"a": []}
    with nullcontext() if fits or (key, value) == ("counts", None) else pytest.raises(WlgenError) as refused:
        Journal(path).__enter__().__exit__(None, None, None)
    if refused:
        assert str(refused.value).startswith(f"{path}:2: expected an event of a preparation")
        assert str(refused.value).isprintable()


@pytest.mark.parametrize("line", [b"7", b"[]", b"null", b'"x"', b"\x1b[2J", b'{"event": ["begin"]}', b"{}"])
def test_a_line_that_is_no_event_is_named(tmp_path, line):
    path = tmp_path / "j"
    path.write_bytes(line + b"\n")
    with pytest.raises(WlgenError, match="Move it away"), Journal(path):
        pass


def test_a_full_disk_is_said_with_the_journals_name_to_every_rank(tmp_path):
    with Journal(tmp_path / "j") as journal:
        os.dup2(full := os.open("/dev/full", os.O_WRONLY), journal._file.fileno())
        os.close(full)
        for found in ("No space left on device", "a line before this one failed"):
            with pytest.raises(
                WlgenError, match=f"j: expected a journal with room for a line, found {found}"
            ):
                journal.write(TARGET)
