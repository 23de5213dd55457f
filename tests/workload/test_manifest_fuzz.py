"""A fuzzer of the door for manifests: every command that opens a set ends in 0, 1 or 2, never in a crash."""

# Run: pytest -m slow tests/workload/test_manifest_fuzz.py. Seeds are fixed; what failed once is an example.

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st
from kit.audits import plain
from kit.odd_records import Place, places, put

from wlgen import cli
from wlgen.workload.opened import Workload

pytestmark = pytest.mark.slow
QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck))
words = st.one_of(
    st.text(max_size=12), st.sampled_from(["\x1b[2J", "\x9b2J", "..", "/etc/passwd", "\u202e", "raw"])
)
numbers = st.one_of(
    st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False), st.just(2**53)
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, words),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


def commands(folder: Path, results: Path, out: Path) -> list[tuple[str, ...]]:
    """Return a line of each command that opens a set."""
    here = str(folder)
    return [
        ("verify", here),
        ("verify", here, "--full"),
        ("audit", here, str(results)),
        ("audit", here, str(results), "--json", "--html", str(out / "page.html")),
        ("export", here, "--to", "aiperf", "--output", str(out / "aiperf")),
        ("export", here, "--to", "mooncake", "--output", str(out / "mooncake")),
        ("simulate", here),
        ("schedule", here),
        ("prepare", here, "--url", "http://127.0.0.1:9", "--timeout", "2"),
    ]


def ended(arguments: tuple[str, ...]) -> tuple[int, str]:
    """Return the exit code of a command and all that it printed."""
    out, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    before, sys.argv = sys.argv, ["wlgen", *arguments]
    terminated = signal.getsignal(
        signal.SIGTERM
    )  # a command's own handler would make this run's end a finding
    code = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            cli.main()
    except SystemExit as left:
        code = int(left.code or 0)
    finally:
        sys.argv = before
        signal.signal(signal.SIGTERM, terminated)
        gc.unfreeze()  # a command freezes what it holds, since its process ends; this one goes on
    for stream in (out, errors):
        stream.flush()
    return code, (out.buffer.getvalue() + errors.buffer.getvalue()).decode()


def tried(workload: Workload, place: Path, change: Callable[[Path], None]) -> None:
    """Change a copy of a set, and demand of each command an end in order, and words fit for a terminal."""
    folder = place / "copy"
    shutil.copytree(workload.folder, folder)
    change(folder)
    results = place / "formal.jsonl"
    results.write_bytes(b"".join(plain(row) for row in workload.rows(("formal",))))
    for arguments in commands(folder, results, place):
        code, said = ended(arguments)
        assert code in (0, 1, 2), f"{arguments}: {said}"
        assert said.replace("\n", "").isprintable(), f"{arguments}: {said!r}"
    shutil.rmtree(place)


def content(workload: Workload) -> Any:
    return orjson.loads((workload.folder / "manifest.json").read_bytes())


@pytest.mark.parametrize("kind", ["warm_set", "zero_set"])
def test_what_is_not_changed_passes_every_command(kind, request, tmp_path):
    tried(request.getfixturevalue(kind), tmp_path / "here", lambda _folder: None)


@seed(61)
@settings(QUIET, max_examples=150)
@given(number=st.integers(0, 10**6), value=values)
def test_any_value_in_any_place_of_a_manifest_is_no_crash(warm_set, tmp_path_factory, number, value):
    whole = content(warm_set)
    every: list[Place] = list(places(whole))

    def change(folder: Path) -> None:
        changed = put(whole, every[number % len(every)], value)
        (folder / "manifest.json").write_bytes(orjson.dumps(changed))

    tried(warm_set, tmp_path_factory.mktemp("m"), change)


@seed(62)
@settings(QUIET, max_examples=60)
@given(part=st.floats(0, 1), length=st.integers(0, 40), new=st.binary(max_size=40))
def test_any_bytes_in_any_place_of_a_manifest_are_no_crash(warm_set, tmp_path_factory, part, length, new):
    def change(folder: Path) -> None:
        data = (folder / "manifest.json").read_bytes()
        at = int(part * len(data))
        (folder / "manifest.json").write_bytes(data[:at] + new + data[at + length :])

    tried(warm_set, tmp_path_factory.mktemp("b"), change)


@seed(63)
@settings(QUIET, max_examples=40)
@given(number=st.integers(0, 10**6), value=values)
@example(number=0, value={"\x1f": None})
@example(number=1, value="\x1b[2J")
def test_any_value_in_any_place_of_a_row_is_no_crash(warm_set, tmp_path_factory, number, value):
    """The hash of the file is redone, as a forger does it."""
    path = "formal/rank-00.jsonl"
    lines = [orjson.loads(line) for line in (warm_set.folder / path).read_bytes().splitlines()]
    every: list[Place] = list(places(lines))

    def change(folder: Path) -> None:
        changed = put(lines, every[number % len(every)], value)
        rows = changed if isinstance(changed, list) else [changed]
        data = b"".join(orjson.dumps(row) + b"\n" for row in rows)
        (folder / path).write_bytes(data)
        manifest = content(warm_set)
        for file in manifest["files"]:
            if file["path"] == path:
                file |= {"sha256": hashlib.sha256(data).hexdigest(), "rows": len(rows)}
        (folder / "manifest.json").write_bytes(
            orjson.dumps(manifest, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        )

    tried(warm_set, tmp_path_factory.mktemp("r"), change)
