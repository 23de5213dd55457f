"""Export: whole or not at all, proved while read, and nobody's files are lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash
from kit.carried import lines

from wlgen.errors import WlgenError
from wlgen.export.export import export
from wlgen.export.folder import EXPORT
from wlgen.workload.exchange import NewFolder
from wlgen.workload.opened import Workload

Copy = Callable[[Workload], Workload]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_marker_proves_each_file_and_names_the_set(warm_set: Workload, tmp_path: Path):
    export(warm_set, "sglang", tmp_path / "out", ranks=[1])
    marker = json.loads((tmp_path / "out/wlgen-export.json").read_bytes())
    assert marker["format"] == "wlgen-export/1"
    assert (marker["set"], marker["spec_sha256"]) == (warm_set.manifest.name, warm_set.manifest.spec_sha256)
    assert (marker["client"], marker["form"], marker["ranks"]) == ("sglang", "text", [1])
    files = {f["path"]: f for f in marker["files"]}
    found = tree(tmp_path / "out")
    assert files.keys() == found.keys() - {"wlgen-export.json"}
    for name, content in found.items():
        if name in files:
            assert files[name]["xxh3"] == xxhash.xxh3_128_hexdigest(content)
            assert files[name]["bytes"] == len(content)


def test_splits_and_ranks_can_be_chosen(warm_set: Workload, tmp_path: Path):
    exported = export(warm_set, "plain", tmp_path / "out", splits=["formal"], ranks=[1])
    rows = lines(tmp_path / "out/formal.jsonl")
    assert {(row["split"], row["dp_rank"]) for row in rows} == {("formal", 1)}
    assert exported.rows == len(rows) == 5
    assert not (tmp_path / "out/check.jsonl").exists()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"client": "sglan"}, r"--to: expected a known exporter: .*found 'sglan'. Did you mean 'sglang'"),
        ({"form": "id"}, r"--form: expected a form of plain: text \(.*found 'id'. Did you mean 'ids'"),
        ({"splits": ["seeds"]}, r"--split: expected one that the set has: check, formal, found seeds"),
        ({"splits": ["seed"]}, r"--split: expected one that the set has: check, formal, found seed"),
        ({"ranks": [2]}, r"--rank: expected one that the set has: 0, 1, found 2"),
        ({"ranks": [-1]}, r"--rank: expected one that the set has: 0, 1, found -1"),
    ],
)
def test_what_the_set_or_the_client_has_not_is_refused(
    zero_set: Workload, tmp_path: Path, asked: dict[str, str], message: str
):
    with pytest.raises(WlgenError, match=message):
        export(zero_set, **{"client": "plain", "output": tmp_path / "out", **asked})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("client", ["plain", "vllm", "aisbench"])
@pytest.mark.parametrize("damage", ["a byte", "cut", "a line less", "missing"])
def test_a_damaged_set_is_never_exported(
    warm_set: Workload, copy_of: Copy, tmp_path: Path, client: str, damage: str
):
    workload = copy_of(warm_set)
    path = workload.folder / "formal/rank-01.jsonl"
    content = path.read_bytes()
    if damage == "a byte":
        at = content.rindex(b'"content":"') + 40
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    elif damage == "cut":
        path.write_bytes(content[:-100])
    elif damage == "a line less":
        path.write_bytes(b"".join(content.splitlines(keepends=True)[:-1]))
    else:
        path.unlink()
    with pytest.raises(WlgenError, match=r"formal/rank-01.jsonl"):
        export(workload, client, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / ".out.exporting").exists()


def test_a_failed_export_leaves_the_earlier_one(warm_set: Workload, copy_of: Copy, tmp_path: Path):
    workload = copy_of(warm_set)
    export(workload, "plain", tmp_path / "out")
    before = tree(tmp_path / "out")
    (workload.folder / "check/rank-00.jsonl").write_bytes(b"{}\n")
    with pytest.raises(WlgenError):
        export(workload, "plain", tmp_path / "out")
    assert tree(tmp_path / "out") == before


def test_an_earlier_export_is_replaced_and_results_stay(
    warm_set: Workload, zero_set: Workload, tmp_path: Path
):
    """Clients write their results into the folder: an hour of accelerator time must not go with it."""
    out = tmp_path / "out"
    export(warm_set, "vllm", out)
    mine = [out / "results/formal/a.json", out / "formal/notes.txt", out / "notes.txt"]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kept")
    export(zero_set, "sglang", out)
    assert [path.read_text() for path in mine] == ["kept"] * 3
    marker = json.loads((out / "wlgen-export.json").read_bytes())
    assert marker["client"] == "sglang"
    assert not (out / "formal/rank-00.jsonl").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_a_file_of_somebodys_where_the_export_writes_one_is_refused(warm_set: Workload, tmp_path: Path):
    out = tmp_path / "out"
    export(warm_set, "vllm", out)
    (out / "formal.jsonl").write_text("mine")
    before = tree(out)
    with pytest.raises(WlgenError, match="expected no file of yours where the export writes one"):
        export(warm_set, "plain", out)
    assert tree(out) == before


@pytest.mark.parametrize("content", [{}, {"notes.txt": "mine"}, {"wlgen-export.json": "{}"}])
def test_other_folders_are_refused_and_empty_ones_taken(
    warm_set: Workload, tmp_path: Path, content: dict[str, str]
):
    out = tmp_path / "out"
    out.mkdir()
    for name, text in content.items():
        (out / name).write_text(text)
    before = tree(out)
    if not content:
        export(warm_set, "plain", out)
        assert (out / "RUN.md").exists()
        return
    with pytest.raises(WlgenError, match=r"expected an earlier export or no folder, found"):
        export(warm_set, "plain", out)
    assert tree(out) == before


def test_the_sets_own_folder_is_never_written(warm_set: Workload, copy_of: Copy, tmp_path: Path):
    workload = copy_of(warm_set)
    link = tmp_path / "link"
    link.symlink_to(workload.folder)
    before = tree(workload.folder)
    for out in (workload.folder, workload.folder / "exports", workload.folder.parent, link / "deep/er"):
        with pytest.raises(WlgenError, match="expected a folder apart from the set"):
            export(workload, "plain", out)
    assert tree(workload.folder) == before


def test_a_file_in_the_place_of_the_output_is_refused(warm_set: Workload, tmp_path: Path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(WlgenError, match="expected an earlier export or no folder, found a file"):
        export(warm_set, "plain", tmp_path / "out")


def test_an_output_below_a_file_is_one_clear_line(warm_set: Workload, tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(WlgenError, match="expected a writable place with room, found"):
        export(warm_set, "plain", tmp_path / "file/out")


def test_two_exports_to_one_place_do_not_mix(warm_set: Workload, tmp_path: Path):
    out = tmp_path / "out"
    with (
        NewFolder(out, EXPORT),
        pytest.raises(WlgenError, match="expected one export at a time, found another"),
    ):
        export(warm_set, "plain", out)


def test_what_an_interrupted_export_left_is_cleared(warm_set: Workload, tmp_path: Path):
    """SIGKILL between two renames leaves the old export in the temporary place: the next export ends it."""
    out, place = tmp_path / "out", tmp_path / ".out.exporting"
    export(warm_set, "plain", out)
    place.mkdir()
    out.rename(place / "old")
    (place / "new-1").mkdir()
    (place / "new-1/half.jsonl").write_text("half")
    (place / "old/results.json").write_text("kept")
    export(warm_set, "plain", out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    assert not (out / "half.jsonl").exists()
    assert (out / "results.json").read_text() == "kept"


def test_a_folder_with_somebody_elses_marker_is_refused_and_keeps_its_files(
    warm_set: Workload, tmp_path: Path
):
    """A marker of another format is no export of ours, whatever files it names."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "formal.jsonl").write_text("mine")
    (out / "wlgen-export.json").write_text('{"format": "theirs", "files": [{"path": "formal.jsonl"}]}')
    with pytest.raises(WlgenError, match=r"a wlgen-export\.json that wlgen did not write"):
        export(warm_set, "plain", out)
    assert (out / "formal.jsonl").read_text() == "mine"


def test_a_linked_output_stays_a_link(warm_set: Workload, tmp_path: Path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    export(warm_set, "plain", tmp_path / "out")
    export(warm_set, "plain", tmp_path / "out")
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "disk/RUN.md").exists()


def test_the_same_set_gives_the_same_bytes(warm_set: Workload, tmp_path: Path):
    export(warm_set, "openai-batch", tmp_path / "out")
    once = tree(tmp_path / "out")
    export(warm_set, "openai-batch", tmp_path / "out")
    assert tree(tmp_path / "out") == once


def test_the_model_goes_into_whole_bodies(warm_set: Workload, tmp_path: Path):
    export(warm_set, "openai-batch", tmp_path / "out", model="some/model")
    assert {line["body"]["model"] for line in lines(tmp_path / "out/formal.jsonl")} == {"some/model"}


def test_progress_tells_each_row(warm_set: Workload, tmp_path: Path):
    told: list[tuple[int, int]] = []
    exported = export(warm_set, "plain", tmp_path / "out", progress=lambda *seen: told.append(seen))
    assert told == [(n, exported.rows) for n in range(1, exported.rows + 1)]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from wlgen.cli import main; main()", "export", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ)


def test_the_command_prints_what_it_wrote(warm_set: Workload, tmp_path: Path):
    done = run(str(warm_set.folder), "--to", "vllm", "--output", str(tmp_path / "out"), "--json")
    assert done.returncode == 0
    told = json.loads(done.stdout)
    assert (told["client"], told["form"], told["folder"]) == ("vllm", "text", str(tmp_path / "out"))
    assert {f["path"] for f in told["files"]} == tree(tmp_path / "out").keys() - {"wlgen-export.json"}


def test_a_bad_call_is_one_line_and_exit_2(warm_set: Workload, tmp_path: Path):
    done = run(str(warm_set.folder), "--to", "nobody", "--output", str(tmp_path / "out"))
    assert done.returncode == 2
    assert done.stderr.startswith("wlgen: --to: expected a known exporter: aiperf, aisbench")
    assert done.stderr.count("\n") == 1


def test_a_full_disk_leaves_nothing(warm_set: Workload, tmp_path: Path):
    limited = f"ulimit -f 4; exec {sys.executable} -c 'from wlgen.cli import main; main()' export"
    command = f"{limited} {warm_set.folder} --to plain --output {tmp_path / 'out'}"
    done = subprocess.run(["bash", "-c", command], check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "File too large. Give a writable --output." in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_export_leaves_nothing(warm_set: Workload, tmp_path: Path):
    def interrupt(done: int, _total: int) -> None:
        if done > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(warm_set, "sglang", tmp_path / "out", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_row_of_another_file_is_refused(warm_set: Workload, copy_of: Copy, tmp_path: Path):
    """A row says which file it goes to: one that says "../.." must not choose where to write."""
    workload = copy_of(warm_set)
    path = workload.folder / "formal/rank-01.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"split":"formal"', b'"split":"../../x"', 1))
    with pytest.raises(
        WlgenError,
        match=r"rank-01.jsonl:1: expected a row of formal, round 0, rank 1, found ../../x, round 0, rank 1",
    ):
        export(workload, "vllm", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_path_that_is_no_utf_8_is_refused_before_anything_is_written(warm_set, tmp_path):
    """The run card names both folders: its text could not be written, and the export ended in a traceback."""
    odd = tmp_path / os.fsdecode(b"\xffset")
    with pytest.raises(WlgenError, match="expected a path in UTF-8") as refused:
        export(warm_set, "plain", odd)
    assert str(refused.value).isprintable()
    assert not odd.exists()
