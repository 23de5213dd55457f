"""A set of another spec is replaced aloud, and one that was sent somewhere only when a person says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest
from kit.sets import content_of, spec_of

from wlgen.build.build import build
from wlgen.errors import WlgenError
from wlgen.workload.opened import open_workload

pytestmark = pytest.mark.usefixtures("small_bank")

SPEC = spec_of(formal={"total": 4})
OTHER = spec_of(formal={"total": 5})


def test_the_set_that_is_replaced_is_named_and_a_rebuild_is_silent(tmp_path):
    first = build(SPEC, tmp_path)
    sha256 = first.workload.manifest.spec_sha256
    assert first.replaced == ""
    assert build(OTHER, tmp_path).replaced == f"the set small of the spec {sha256[:12]}"
    assert build(OTHER, tmp_path).replaced == ""


def exported(folder: Path, sha256: str) -> None:
    folder.mkdir()
    (folder / "wlgen-export.json").write_bytes(
        orjson.dumps({"format": "wlgen-export/1", "spec_sha256": sha256})
    )


@pytest.mark.parametrize("way", ["journal", "export inside", "export beside"])
def test_a_set_that_was_sent_is_replaced_only_on_request(tmp_path, way):
    old = build(SPEC, tmp_path).workload
    if way == "journal":
        (old.folder / "prepare.jsonl").write_text("{}\n")
    else:
        place = old.folder if way == "export inside" else tmp_path
        exported(place / "run", old.manifest.spec_sha256)
    with pytest.raises(WlgenError, match="expected a set that nobody was sent, or --replace"):
        build(OTHER, tmp_path)
    assert open_workload(old.folder).manifest == old.manifest
    assert build(SPEC, tmp_path).written == 0
    assert build(OTHER, tmp_path, replace=True).replaced
    assert open_workload(old.folder).manifest.spec == OTHER.content


def test_an_export_of_another_set_asks_for_nothing(tmp_path):
    build(SPEC, tmp_path)
    exported(tmp_path / "run", "0" * 64)
    assert build(OTHER, tmp_path).replaced


WLGEN = [sys.executable, "-m", "wlgen"]


@pytest.fixture
def spec_path(tmp_path: Path) -> Path:
    """JSON is YAML: the spec of a set that takes some seconds."""
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(dict(content_of(formal={"total": 20_000}))))
    return path


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_sigterm_cleans_up_as_ctrl_c_does(tmp_path, spec_path, jobs):
    command = [*WLGEN, "build", str(spec_path), "--output", str(tmp_path / "out"), "--jobs", jobs, "-q"]
    process = subprocess.Popen(command)
    end = time.monotonic() + 60
    while not list(tmp_path.glob("out/.small.building/new-*/formal")):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("way", ["full", "closed"])
def test_a_full_or_closed_standard_output_is_one_line_and_no_finding(tmp_path, way):
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(dict(content_of(formal={"total": 4}))))
    command = [*WLGEN, "build", str(spec), "--output", str(tmp_path / "out"), "--jobs", "1"]
    if way == "full":
        with Path("/dev/full").open("wb") as full:
            ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    else:
        reading, writing = os.pipe()
        os.close(reading)
        ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith("wlgen: standard output: expected ")
    assert ended.returncode == 2
    assert (tmp_path / "out" / "small" / "manifest.json").exists()


def test_too_little_memory_is_one_line(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(dict(content_of(formal={"total": 4}))))
    command = " ".join([*WLGEN, "build", str(spec), "--output", str(tmp_path / "out")])
    shell = f"ulimit -v 400000; exec {command}"
    ended = subprocess.run(["bash", "-c", shell], capture_output=True, check=False)
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith(
        "wlgen: memory: expected at least 512 MB of address space, found a limit of 390 MB"
    )
    assert ended.returncode == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["spec", "manifest", "row file"])
def test_a_pipe_where_a_file_is_read_is_refused_before_it_is_opened(tmp_path, place):
    """Opened, it would be waited for without end."""
    folder = build(SPEC, tmp_path).workload.folder
    paths = {"spec": tmp_path / "a.yaml", "manifest": folder / "manifest.json"}
    path = paths.get(place, folder / "formal" / "rank-00.jsonl")
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    args = ["build", str(path), "-q"] if place == "spec" else ["verify", str(folder)]
    ended = subprocess.run([*WLGEN, *args], capture_output=True, timeout=60, check=False)
    assert ended.returncode in (1, 2)
    said = ended.stderr + ended.stdout
    assert b"a pipe, a socket or a device, not a file" in said or b"no readable file" in said
