"""Two runs under one glob: told by their times, named by file, and never added up."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from kit.audits import good, manifest, plain, rows, write_set

from wlgen import cli
from wlgen.audit.audit import audit
from wlgen.audit.model import Audit
from wlgen.errors import WlgenError
from wlgen.readers import Reader, Result, Source, guidellm, sglang
from wlgen.workload.rows import Row

FORMAL = [each for each in rows() if each.split == "formal"]
RANK = [[each for each in FORMAL if each.dp_rank == rank] for rank in (0, 1)]
SAMPLES = Path(__file__).parents[1] / "samples"


def at(content: list[Row], start: float) -> list[Result]:
    """Return good results of rows sent one after another from `start` on."""
    return [
        replace(r, start=start + n, first_token=start + n + 0.5, end=start + n + 0.9)
        for n, r in enumerate(good(content))
    ]


def audited(**files: list[Result]) -> Audit:
    return audit(rows(), files.items(), manifest())


def test_a_later_run_of_the_same_rows_is_named_and_not_added():
    with pytest.raises(WlgenError) as refused:
        audited(monday=at(FORMAL, 100), tuesday=at(FORMAL, 500))
    (problem,) = refused.value.problems
    assert (problem.place, problem.expected) == ("tuesday", "the results of one run")
    assert problem.found == (
        "run 2, which sends 8 rows of monday again, begun 392.100 s after the first had ended"
    )
    assert "wlgen prepare" in problem.remedy


def test_the_files_of_a_run_stay_together_whatever_their_order():
    with pytest.raises(WlgenError) as refused:
        audited(
            b1=at(RANK[1], 501),
            a0=at(RANK[0], 100),
            b0=at(RANK[0], 500),
            a1=at(RANK[1], 101),
        )
    (problem,) = refused.value.problems
    assert problem.place == "b0 and 1 more"
    assert "8 rows of a0 and 1 more again" in problem.found


def test_three_runs_are_two_problems():
    with pytest.raises(WlgenError) as refused:
        audited(a=at(FORMAL, 100), b=at(FORMAL, 500), c=at(FORMAL, 900))
    assert [problem.place for problem in refused.value.problems] == ["b", "c"]


def test_what_a_killed_run_left_is_a_run_beside_the_whole_one():
    with pytest.raises(WlgenError, match="whole: expected the results of one run"):
        audited(killed=at(FORMAL[:2], 100), whole=at(FORMAL, 500))


def test_ranks_one_after_another_are_one_run():
    found = audited(rank0=at(RANK[0], 100), rank1=at(RANK[1], 500))
    assert found.findings == ()
    assert found.results == 8


def test_a_row_that_is_sent_twice_within_one_run_is_a_finding_of_that_row():
    """A client that repeats at the end of its file, or two processes that were given one file."""
    found = audited(rank0=at([*RANK[0], RANK[0][0]], 100), rank1=at(RANK[1], 100))
    assert [(f.id, f.promise, f.got) for f in found.findings] == [(RANK[0][0].id, "sent_once", 2)]
    both = audited(one=at(FORMAL, 100), other=at(FORMAL, 101))
    assert {(f.promise, f.got) for f in both.findings} == {("sent_once", 2)}


def test_a_single_row_that_is_sent_again_later_is_no_second_run():
    found = audited(all=at(FORMAL, 100), retried=at([*FORMAL[:1], *at_other()], 500))
    assert [(f.id, f.got) for f in found.findings] == [(FORMAL[0].id, 2)]


def at_other() -> list[Row]:
    """Return rows of another split, so that the repeated one is the smaller part of its file."""
    return [each for each in rows() if each.split != "formal"]


def test_rounds_are_other_rows_and_no_second_run():
    later = [replace(each, round=1, id=each.id.replace("formal", "formal-1")) for each in FORMAL]
    content = [*FORMAL, *later]
    files = [("a", at(FORMAL, 100)), ("b", at(later, 500))]
    found = audit(content, files, manifest(), rounds=(0, 1))
    assert found.findings == ()


def test_runs_that_one_file_of_bench_serving_holds_are_told_without_times(tmp_path):
    """bench_serving appends a line a run to its file, and records durations alone."""
    path = tmp_path / "formal.jsonl"
    path.write_bytes((SAMPLES / "sglang/bench_serving.jsonl").read_bytes() * 2)
    results = [replace(r, prompt_tokens=2052) for r in read(sglang, path)]
    content = [each for each in rows(2) if each.split == "formal"]
    with pytest.raises(WlgenError) as refused:
        audit(content, [(str(path), results)], manifest())
    (problem,) = refused.value.problems
    assert problem.place == str(path)
    assert problem.found == f"run 2, which sends 4 rows of {path} again"


def test_guidellms_rates_are_runs_of_one_report(tmp_path):
    report = orjson.loads((SAMPLES / "guidellm/benchmarks.json").read_bytes())
    report["benchmarks"] = report["benchmarks"][:1] * 2
    path = tmp_path / "benchmarks.json"
    path.write_bytes(orjson.dumps(report))
    assert {r.run for r in read(guidellm, path)} == {0, 1}


def read(reader: Reader, path: Path) -> list[Result]:
    with path.open("rb") as content:
        found = list(reader.read(Source(name=str(path), content=content)))
    return [each for each in found if isinstance(each, Result)]


def test_the_command_names_the_files_and_exits_with_2(tmp_path, monkeypatch, capsys):
    folder = write_set(tmp_path / "set")
    for name, start in (("20261130_1", 100.0), ("20261201_1", 900.0)):
        out = tmp_path / "out" / name
        out.mkdir(parents=True)
        lines = [
            plain(each, start=start + n, first_token=start + n, end=start + n + 1)
            for n, each in enumerate(FORMAL)
        ]
        (out / "formal.jsonl").write_bytes(b"".join(lines))
    monkeypatch.setattr(sys, "argv", ["wlgen", "audit", str(folder), str(tmp_path / "out")])
    with pytest.raises(SystemExit) as left:
        cli.main()
    streams = capsys.readouterr()
    assert (left.value.code, streams.out) == (2, "")
    assert "20261201_1/formal.jsonl: expected the results of one run, found run 2" in streams.err
    assert "20261130_1/formal.jsonl again, begun 792.000 s after the first had ended" in streams.err
