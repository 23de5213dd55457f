"""Finding, recognising and opening result files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from wlgen.audit.results import read_results
from wlgen.errors import WlgenError

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
