"""Several processes build what one builds; what fails in one of them is said, and none is left."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.sets import spec_of

from wlgen.build.build import build
from wlgen.build.evidence import Evidence, method_of
from wlgen.build.processes import Jobs
from wlgen.build.ready import Blueprint, blueprint
from wlgen.build.shares import Share, share_out
from wlgen.errors import WlgenError
from wlgen.spec import file as spec_file
from wlgen.workload.opened import Workload

SPEC = spec_of(
    dp_ranks=3, prefix={"shared_by": "group", "groups": 5, "popularity": {"zipf": 1.0}}, formal={"total": 40}
)


def bytes_of(workload: Workload) -> dict[str, bytes]:
    root = workload.folder
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def shares_of(ready: Blueprint, folder: Path, jobs: int | None) -> list[Share]:
    method = method_of(ready.lexicon, ready.tasks)
    return share_out(ready.plan, folder, list(ready.plan.files()), method, jobs)


def test_two_processes_build_every_byte_that_one_builds_the_manifest_too(tmp_path):
    told: list[tuple[int, int]] = []
    one = build(SPEC, tmp_path / "one", jobs=1)
    two = build(SPEC, tmp_path / "two", jobs=2, progress=lambda *rows: told.append(rows))
    assert bytes_of(two.workload) == bytes_of(one.workload)
    assert two.written == one.written == 9
    assert told[-1] == (one_total := sum(f.rows for f in one.workload.manifest.files), one_total)


def test_processes_add_the_files_that_are_missing(tmp_path):
    whole = build(SPEC, tmp_path / "whole").workload
    build(SPEC, tmp_path / "parts", ranks=[1])
    assert build(SPEC, tmp_path / "parts", jobs=2).written == 6
    assert bytes_of(build(SPEC, tmp_path / "parts").workload) == bytes_of(whole)


@pytest.mark.parametrize("jobs", [0, -3])
def test_no_process_at_all_is_refused(tmp_path, jobs):
    with pytest.raises(WlgenError, match=f"--jobs: expected at least 1 process, found {jobs}"):
        build(SPEC, tmp_path, jobs=jobs)


def write(ready: Blueprint, shares: list[Share], act=lambda: None) -> None:
    with Jobs(ready, shares) as jobs:
        act()
        whole = Evidence(shares[0].method).whole(
            row for share in shares for file in share.files for row in ready.plan.rows(*file)
        )
        jobs.write(whole, lambda _rows: None)


def test_a_process_that_is_killed_is_told_from_one_that_is_done(tmp_path):
    ready = blueprint(SPEC)

    def kill() -> None:
        multiprocessing.active_children()[0].kill()

    with pytest.raises(WlgenError, match=r"--jobs: .*ended with code -9\. Give fewer --jobs"):
        write(ready, shares_of(ready, tmp_path, 2), kill)
    assert multiprocessing.active_children() == []


def test_a_failure_in_a_process_is_the_same_error_and_nothing_is_left(tmp_path):
    ready = blueprint(SPEC)
    (tmp_path / "formal").write_text("a file where a folder must be")
    with pytest.raises(WlgenError, match="expected a writable place with room, found File exists"):
        write(ready, shares_of(ready, tmp_path, 2))
    assert multiprocessing.active_children() == []


def test_a_bug_in_a_process_keeps_its_traceback(tmp_path):
    ready = blueprint(SPEC)
    shares = [Share(folder=None, files=s.files, method=s.method) for s in shares_of(ready, tmp_path, 2)]  # type: ignore[arg-type]
    with pytest.raises(TypeError) as failure:
        write(ready, shares)
    assert "write_rows" in failure.value.__notes__[0]


def test_a_text_that_changes_during_a_build_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("The river ran by the old mill. " * 40)
    (tmp_path / "spec.yaml").write_text(
        "name: small\nencoding: {name: deepseek-v4}\ncache: {engine: sglang, page_size: 16}\ndp_ranks: 2\n"
        "requests: {body_len: 320, output_len: 8, cached: {min_ratio: 0.5}, prefix: {shared_by: all}, "
        "task: {name: corpus, files: a.txt}}\nsplits: {formal: {total: 6}}\n"
    )
    ready = blueprint(spec_file.load(tmp_path / "spec.yaml"))
    (tmp_path / "a.txt").write_text("The river ran by the new mill. " * 40)
    with pytest.raises(WlgenError, match="expected texts that stay as they are during a build"):
        write(ready, shares_of(ready, tmp_path / "out", 2))


SCRIPT = """
import sys, time
from pathlib import Path
from kit.sets import spec_of
from wlgen.build import evidence
from wlgen.build.build import build
if sys.argv[2] == "slow" and __name__ != "__main__":
    pass
else:
    if sys.argv[2] == "slow":  # the processes have started, and wait to be told which rows to encode whole
        evidence.Evidence.whole = lambda *_: time.sleep(60)
    build(spec_of(dp_ranks=2), Path(sys.argv[1]), jobs=2)
"""


def script(tmp_path: Path, way: str) -> subprocess.Popen[str]:
    (tmp_path / "script.py").write_text(SCRIPT)
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "out"), way]
    return subprocess.Popen(command, env=os.environ | paths, stderr=subprocess.PIPE, text=True)


def test_a_script_without_the_guard_is_told_of_it(tmp_path):
    _, said = script(tmp_path, "unguarded").communicate(timeout=120)
    assert 'A script that builds with jobs needs `if __name__ == "__main__":`' in said


def children_of(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGTERM])
def test_processes_end_with_the_one_that_started_them(tmp_path, way):
    """Else they would write into the place of the next build."""
    parent = script(tmp_path, "slow")
    until(lambda: len(children_of(parent.pid)) == 2)
    children = children_of(parent.pid)
    parent.send_signal(way)
    parent.communicate(timeout=60)
    until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
