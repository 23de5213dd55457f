"""Finding, recognising and opening result files."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import orjson
import pytest

from wlgen.audit.results import read_results
from wlgen.errors import Problem, WlgenError
from wlgen.readers import Result

SAMPLES = Path(__file__).parents[1] / "samples"


def read(*paths: Path, client=None):
    return {Path(name).name: list(found) for name, found in read_results(paths, client)}


def test_a_client_is_recognised_from_its_file():
    found = read(SAMPLES / "sglang/bench_serving.jsonl", SAMPLES / "vllm/bench_serve_detailed.json")
    assert {name: len(results) for name, results in found.items()} == {
        "bench_serving.jsonl": 4,
        "bench_serve_detailed.json": 6,
    }


def test_a_folder_stands_for_the_result_files_below_it_each_request_once():
    found = read(SAMPLES / "aisbench/fail")
    assert list(found) == ["rows5_details.jsonl"]
    assert len(found["rows5_details.jsonl"]) == 5
    assert found["rows5_details.jsonl"][0].start is not None  # the database beside it was found


def test_the_failed_file_beside_its_details_adds_nothing():
    folder = SAMPLES / "aisbench/fail"
    assert list(read(*sorted(folder.glob("*.jsonl")))) == ["rows5_details.jsonl"]


def test_a_file_given_twice_is_read_once():
    path = SAMPLES / "sglang/bench_serving.jsonl"
    assert len(list(read_results([path, path.parent, path]))) == 1


def test_a_folder_named_tmp_is_like_any_other(tmp_path):
    folder = tmp_path / "tmp"
    folder.mkdir()
    for name in ("a", "b"):
        shutil.copy(SAMPLES / "sglang/bench_serving.jsonl", folder / f"{name}.jsonl")
    assert len(list(read_results(sorted(folder.iterdir())))) == 2


def test_a_named_client_is_believed(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b'{"usage": {}, "id": "row"}\n')
    with pytest.raises(WlgenError, match="--client"):
        read(path)
    assert len(read(path, client="plain")["x.txt"]) == 1


def test_an_unknown_client_lists_the_known_ones():
    with pytest.raises(
        WlgenError, match=r"--client: expected a known reader.*aisbench.*Did you mean 'sglang'"
    ):
        read(SAMPLES / "sglang/bench_serving.jsonl", client="sglan")


def test_every_path_that_cannot_be_used_is_named_before_anything_is_read(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "folder").mkdir()
    shutil.copy(SAMPLES / "aisbench/rows5.jsonl", tmp_path / "other.jsonl")
    paths = [tmp_path / name for name in ("missing.json", "empty.jsonl", "folder", "other.jsonl")]
    with pytest.raises(WlgenError) as failure:
        read_results(paths)
    assert [problem.place for problem in failure.value.problems] == [str(path) for path in paths]
    found = [problem.found for problem in failure.value.problems]
    assert found[0] == "No such file or directory"
    assert found[1] == "an empty file"


@pytest.mark.parametrize(
    ("content", "found", "remedy"),
    [
        (b"", "an empty file", "wlgen prepare"),
        (b" \n\n", "an empty file", "wlgen prepare"),
        (b"\0" * 5000, "an empty file", "wlgen prepare"),
        ('{"id": "x"}\n'.encode("utf-16"), "a text in UTF-16", "iconv"),
        (b"\x1f\x8b\x08\x00rest", "a gzip archive", "gunzip"),
        (b"PK\x03\x04rest", "a zip archive", "unzip"),
        (None, "No such file or directory", "the run card names it"),
    ],
)
@pytest.mark.parametrize("client", [None, "plain"])
def test_a_file_that_no_reader_reads_is_named_with_a_remedy(tmp_path, content, found, remedy, client):
    path = tmp_path / "formal.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WlgenError) as failure:
        read(path, client=client)
    (problem,) = failure.value.problems
    assert problem.found == found
    assert remedy in problem.remedy


def test_a_mark_that_windows_writes_before_utf_8_belongs_to_no_line(tmp_path):
    path = tmp_path / "formal.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"id": "row", "usage": {}}\n')
    (result,) = read(path)["formal.jsonl"]
    assert isinstance(result, Result)
    assert result.id == "row"


def test_an_empty_file_counts_as_none_where_others_are_read(tmp_path):
    """AIPerf opens a rank's file when it starts, so a killed run leaves some of them empty."""
    paths = [tmp_path / f"formal-rank-{rank:02d}.jsonl" for rank in range(3)]
    for path in paths:
        shutil.copy(SAMPLES / "aiperf/profile_export.jsonl", path)
    paths[1].write_bytes(b"")
    found = read(*paths)
    assert [len(found[path.name]) for path in paths] == [6, 1, 6]
    (problem,) = found[paths[1].name]
    assert isinstance(problem, Problem)
    assert (problem.place, problem.found) == (str(paths[1]), "an empty file")


def killed(folder: Path) -> Path:
    """Make what AISBench leaves of a run that is killed: tmp/tmp_HEX.jsonl and tmp_HEX.db, no details."""
    (folder / "tmp").mkdir()
    lines = (SAMPLES / "aisbench/plugin/rows5_details.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "tmp/tmp_fe1b214a.jsonl").write_bytes(b"".join(lines[:3]))
    shutil.copy(SAMPLES / "aisbench/plugin/db_data/fe1b214a.db", folder / "tmp/tmp_fe1b214a.db")
    return folder


def test_what_a_killed_aisbench_leaves_is_read_with_its_times_and_the_cut_is_said(tmp_path):
    found = read(killed(tmp_path))["tmp_fe1b214a.jsonl"]
    whole = read(SAMPLES / "aisbench/plugin")["rows5_details.jsonl"]
    assert [(r.index, r.start, r.end) for r in found[:3]] == [(r.index, r.start, r.end) for r in whole[:3]]
    assert all(r.start for r in found[:3])
    (problem,) = found[3:]
    assert isinstance(problem, Problem)
    assert "killed" in problem.found


def test_what_aisbench_keeps_in_tmp_beside_its_details_adds_nothing(tmp_path):
    """A run with a failed request keeps tmp/tmp_HEX.jsonl, whose records the details hold too."""
    shutil.copy(SAMPLES / "aisbench/plugin/rows5_details.jsonl", killed(tmp_path))
    assert list(read(tmp_path)) == ["rows5_details.jsonl"]


def test_the_store_of_a_killed_run_may_lack_what_was_not_committed(tmp_path):
    folder = killed(tmp_path)
    with closing(sqlite3.connect(folder / "tmp/tmp_fe1b214a.db")) as store:
        store.execute("DELETE FROM numpy_store WHERE id > 1")
        store.commit()
    found = read(folder)["tmp_fe1b214a.jsonl"]
    assert [r.start is not None for r in found[:3]] == [True, False, False]
    assert not any(r.garbled for r in found[:3])


@pytest.mark.parametrize("size", [20_000, 800_000])
@pytest.mark.parametrize("indent", [None, 2])
def test_inference_perf_is_recognised_however_long_its_first_request_is(tmp_path, size, indent):
    """Version 0.7.0 writes the request, which holds the whole prompt, between the times and the info."""
    records = orjson.loads((SAMPLES / "inference-perf/per_request_lifecycle_metrics.json").read_bytes())
    request = orjson.dumps({"messages": [{"role": "user", "content": "x" * size}]}).decode()
    for record in records:
        record.pop("request", None)
    keys = ("start_time", "end_time", "request", "response", "info", "error")
    own = [
        {key: ({"request": request, "response": "y"} | record).get(key) for key in keys} for record in records
    ]
    path = tmp_path / "per_request_lifecycle_metrics.json"
    path.write_text(json.dumps(own, indent=indent))
    found = read(path)[path.name]
    assert [r.index for r in found] == list(range(6))
    assert {r.text_sha256 for r in found} == {hashlib.sha256(b"x" * size).hexdigest()}
    assert [r.cached_tokens for r in found[:2]] == [0, 3840]


def test_a_hot_journal_of_evalscope_is_named_and_what_was_written_whole_is_read(tmp_path):
    """A process that dies amid a write leaves new pages in the database, and the old ones in the journal."""
    path = tmp_path / "benchmark_data.db"
    shutil.copyfile(SAMPLES / "evalscope/benchmark_data.db", path)
    script = """if True:
        import os, sqlite3, sys
        store = sqlite3.connect(sys.argv[1])
        store.execute("PRAGMA cache_size = 1")
        store.execute("CREATE TABLE other (x)")
        store.execute("UPDATE result SET prompt_tokens = 99")
        store.executemany("INSERT INTO other VALUES (?)", [("x" * 900,)] * 3000)
        os._exit(0)
    """
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, timeout=60)
    journal = tmp_path / "benchmark_data.db-journal"
    assert journal.stat().st_size
    before = path.read_bytes()
    *results, problem = read(path)[path.name]
    assert [(r.prompt_tokens, r.output_tokens) for r in results] == [(260, 4)] * 2
    assert isinstance(problem, Problem)
    assert problem.place == str(journal)
    assert "the run was cut there" in problem.found
    assert path.read_bytes() == before
