"""wlgen plan, build and verify as a person runs them: processes, exit codes, interruptions, full disks."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from kit.oracle import broken_promises
from kit.sets import content_of
from typer.testing import CliRunner, Result

from wlgen import __version__
from wlgen.cli import app

WLGEN = [sys.executable, "-c", "from wlgen.cli import main; main()"]
BIG = {"body_len": 2000, "formal": {"total": 1500}}  # built in a second or two


def write_spec(place: Path, **changes: Any) -> Path:
    path = place / "spec.yaml"
    content = content_of(**{"encoding": {"name": "deepseek-v4"}} | changes)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def run(*arguments: object, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    command = [*WLGEN, *map(str, arguments)]
    environment = os.environ | (environment or {})
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def invoke(*arguments: object) -> Result:
    """Run the command in this process: the same but for the exit codes of `main`."""
    return CliRunner().invoke(app, list(map(str, arguments)))


def hashes(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_a_set_is_planned_built_recognised_and_verified(tmp_path):
    spec, output = write_spec(tmp_path), tmp_path / "output"
    planned = run("plan", spec)
    assert planned.returncode == 0
    assert "cached  176 tokens = 11 pages of 16" in planned.stdout
    assert not output.exists()
    built = run("build", spec, "--output", output)
    assert (built.returncode, built.stderr) == (0, "")
    assert built.stdout.startswith(
        f"{output}/small: 6 files written; 2 seed, 2 check, 6 formal rows for 2 ranks\n"
    )
    assert "configured 50.0000 %" in built.stdout
    again = run("build", spec, "--output", output)
    assert "unchanged, every file proved by its hash" in again.stdout
    assert broken_promises(output / "small") == []
    verified = run("verify", output / "small", "--full")
    assert (verified.returncode, verified.stderr) == (0, "")
    assert verified.stdout.endswith("10 rows, 2,950 tokens, 0 findings\n")


def test_two_processes_give_the_same_bytes(tmp_path):
    spec = write_spec(tmp_path, prefix={"shared_by": "group", "groups": 2})
    for number in ("1", "2"):
        done = run("build", spec, "--output", tmp_path / number, environment={"PYTHONHASHSEED": number})
        assert done.returncode == 0
    assert hashes(tmp_path / "1") == hashes(tmp_path / "2")


def test_json_and_quiet(tmp_path):
    spec, output = write_spec(tmp_path), tmp_path / "output"
    assert invoke("build", spec, "--output", output, "--quiet").output == ""
    shown = invoke("build", spec, "--output", output, "--json").output
    assert orjson.loads(shown)["manifest"] == orjson.loads((output / "small/manifest.json").read_bytes())
    assert invoke("verify", output / "small", "--quiet").output == ""
    verified = orjson.loads(invoke("verify", output / "small", "--json").output)
    missing = {"missing_ranks": [], "missing_rounds": []}
    counted = {"findings": [], "rows": 10, "tokens": 2950, "composed": 10}
    head = {"wlgen": __version__, "command": "verify", "ok": True}
    assert verified == {**head, **counted, **missing, "holds": True}
    planned = orjson.loads(invoke("plan", spec, "--json").output)
    assert (planned["prompt_len"], planned["cached_len"]) == (324, 176)


def test_one_rank_alone_is_said_to_be_a_part(tmp_path):
    spec, output = write_spec(tmp_path), tmp_path / "output"
    built = invoke("build", spec, "--output", output, "--rank", 1)
    assert "a part, 1 of 2 ranks" in built.output
    assert "a part, 1 of 2 ranks" in invoke("verify", output / "small").output


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"encoding": {"path": "/no/such"}}, "spec.yaml:3 encoding: expected a folder with tokenizer.json"),
        ({"task": "corpus"}, "spec.yaml:16 requests.task"),
    ],
)
def test_what_the_spec_names_and_is_not_there_is_told_by_its_line(tmp_path, changes, said):
    spec = write_spec(tmp_path, **changes)
    spec.write_text(spec.read_text().replace("name: corpus", "name: corpus\n    files: gone.txt"))
    refused = run("build", spec, "--output", tmp_path / "output")
    assert refused.returncode == 2
    assert said in refused.stderr
    assert not (tmp_path / "output").exists()


def test_two_processes_and_two_machines_build_the_bytes_of_one(tmp_path):
    spec = write_spec(tmp_path)
    for output, options in (
        ("one", ["--jobs", 1]),
        ("two", ["--jobs", 2]),
        ("a", ["--rank", 0]),
        ("b", ["--rank", 1]),
        ("ab", ["--take", tmp_path / "a/small", "--take", tmp_path / "b/small"]),
    ):
        assert invoke("build", spec, "--output", tmp_path / output, *options).exit_code == 0
    for path in (path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.jsonl")):
        content = {(tmp_path / output / path).read_bytes() for output in ("one", "two", "ab")}
        assert len(content) == 1, path
    manifests = [(tmp_path / output / "small/manifest.json").read_bytes() for output in ("one", "two")]
    assert manifests[0] == manifests[1]
    assert invoke("verify", tmp_path / "ab/small").exit_code == 0


def spoil(folder: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    (folder / name).write_bytes(change((folder / name).read_bytes()))


@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        ("formal/rank-00.jsonl", lambda b: b[:-2], "formal/rank-00.jsonl: sha256: expected"),
        ("formal/rank-00.jsonl", lambda b: b.replace(b"word for word", b"word by word", 1), "text"),
        (
            "formal/rank-00.jsonl",
            lambda b: b"".join(b.splitlines(True)[::-1]),
            "formal-r00-000002: id: expected",
        ),
        ("manifest.json", lambda b: b.replace(b'"page_size": 16', b'"page_size": 8'), "manifest.json: "),
        (
            "manifest.json",
            lambda b: b.replace(b'"configured": 0.5', b'"configured": 0.9'),
            "promises: expected",
        ),
    ],
)
def test_a_finding_is_exit_1_and_a_line_with_expected_and_got(tmp_path, name, change, line):
    output = tmp_path / "output"
    assert invoke("build", write_spec(tmp_path), "--output", output).exit_code == 0
    spoil(output / "small", name, change)
    found = invoke("verify", output / "small")
    assert found.exit_code == 1
    assert line in found.output
    assert ", got " in found.output
    as_json = orjson.loads(invoke("verify", output / "small", "--json").output)
    assert as_json["holds"] is False
    assert set(as_json["findings"][0]) == {"id", "promise", "expected", "got"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"cached": {"tokens": 150}},
            "found tokens: 150 tokens = 9.375 pages of 16. The nearest that passes is tokens: 160 (",
        ),
        ({"cached": {"min_ratio": 0.99}}, "The nearest that passes: min_ratio: 0.7901 or body_len: 5410."),
        (
            {"output_len": 5000},
            "tokens of its own (the task copy with output_len 5000), found at best 0 tokens",
        ),
        ({"encoding": {"path": "/nowhere/at-all"}}, "no such folder, /nowhere/at-all"),
        ({"formal": {"total": 3}, "prefix": {"shared_by": "rank"}}, "a multiple of dp_ranks 2"),
    ],
)
def test_bad_input_is_exit_2_one_line_and_leaves_nothing(tmp_path, changes, message):
    spec = write_spec(tmp_path, **changes)
    refused = run("build", spec, "--output", tmp_path / "deep" / "output")
    assert refused.returncode == 2
    assert refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert line.startswith("wlgen: ")
    assert message in line
    assert [path.name for path in tmp_path.iterdir()] == ["spec.yaml"]


def test_a_folder_that_is_no_set_is_exit_2(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        refused = run("verify", folder)
        assert refused.returncode == 2
        assert "Give the folder that `wlgen build` wrote" in refused.stderr


def started(*arguments: object, wait_for: Path) -> subprocess.Popen[bytes]:
    """Start the command, and wait until it has written something."""
    process = subprocess.Popen(
        [*WLGEN, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    while process.poll() is None and not any(
        path.stat().st_size for path in wait_for.glob("new-*/*/*.jsonl")
    ):
        time.sleep(0.01)
    assert process.poll() is None, process.stderr.read() if process.stderr else ""
    return process


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_an_interrupted_build_leaves_no_set_and_the_next_one_recovers(tmp_path, how):
    spec, output = write_spec(tmp_path, **BIG), tmp_path / "output"
    process = started("build", spec, "--output", output, wait_for=output / ".small.building")
    process.send_signal(how)
    _, shown = process.communicate(timeout=60)
    assert process.returncode not in (0, 1, 70)
    assert b"Traceback" not in shown
    assert not (output / "small").exists()
    assert output.exists() == (how == signal.SIGKILL)  # who can, cleans up
    small = write_spec(tmp_path)
    assert invoke("build", small, "--output", output).exit_code == 0
    assert [path.name for path in output.iterdir()] == ["small"]
    assert broken_promises(output / "small") == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_rebuild_leaves_the_old_set_whole(tmp_path, how):
    output = tmp_path / "output"
    assert invoke("build", write_spec(tmp_path), "--output", output).exit_code == 0
    before = hashes(output / "small")
    spec = write_spec(tmp_path, **BIG)
    process = started("build", spec, "--output", output, wait_for=output / ".small.building")
    process.send_signal(how)
    process.communicate(timeout=60)
    assert hashes(output / "small") == before
    assert invoke("verify", output / "small").exit_code == 0


def test_a_second_build_of_one_set_is_told_to_wait(tmp_path):
    spec, output = write_spec(tmp_path, **BIG), tmp_path / "output"
    process = started("build", spec, "--output", output, wait_for=output / ".small.building")
    process.send_signal(signal.SIGSTOP)
    try:
        refused = run("build", spec, "--output", output)
        assert refused.returncode == 2
        assert "expected one build at a time, found another. Wait for it" in refused.stderr
        other = invoke("build", write_spec(tmp_path, name="other"), "--output", output)
        assert other.exit_code == 0
    finally:
        process.kill()
        process.communicate()


def limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_a_place_without_room_is_exit_2_and_leaves_the_old_set(tmp_path):
    output = tmp_path / "output"
    assert invoke("build", write_spec(tmp_path), "--output", output).exit_code == 0
    before = hashes(output)
    spec = write_spec(tmp_path, **BIG)
    command = [*WLGEN, "build", str(spec), "--output", str(output)]
    full = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, preexec_fn=limit_file_size
    )
    assert full.returncode == 2
    assert "expected a writable place with room, found File too large" in full.stderr
    assert hashes(output) == before


def test_an_output_that_cannot_be_written_is_exit_2(tmp_path):
    refused = run("build", write_spec(tmp_path), "--output", "/proc/self/output")
    assert refused.returncode == 2
    assert "Give a writable --output." in refused.stderr
