"""The same spec gives the same bytes, and nothing is built again that has a valid proof."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from kit.oracle import broken_promises
from kit.sets import chat, content_of, spec_of, wordy
from kit.verified import verify

from wlgen.build.build import Built, build
from wlgen.build.ready import blueprint
from wlgen.errors import WlgenError
from wlgen.spec import file as spec_file
from wlgen.spec.model import Spec
from wlgen.workload.opened import open_workload

pytestmark = pytest.mark.usefixtures("small_bank")

GROUPS = {"prefix": {"shared_by": "group", "groups": 2}}
TINY = {"encoding": {"name": "raw", "path": str(wordy(400))}, "task": "words"}  # built in a blink
SPEC = spec_of(dp_ranks=3, formal={"total": 10}, **GROUPS, **TINY)


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.glob("*/*.jsonl"))}


def written_at(folder: Path) -> dict[str, tuple[int, int]]:
    """Return each file's inode and time: what is written anew has others."""
    found = {p.relative_to(folder).as_posix(): p.stat() for p in sorted(folder.rglob("*.json*"))}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in found.items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(SPEC, tmp_path_factory.mktemp("whole"))


@pytest.fixture
def copied(whole: Built, tmp_path: Path) -> Path:
    """Return the folder of a copy of the whole set, in the place where a build into tmp_path looks."""
    return Path(shutil.copytree(whole.workload.folder, tmp_path / "small"))


def test_a_set_keeps_every_promise(whole):
    assert whole.written == 9
    assert broken_promises(whole.workload.folder) == []
    assert verify(whole.workload, full=True).findings == []


def test_the_manifest_says_what_was_built_and_how_it_was_proved(whole):
    content = orjson.loads((whole.workload.folder / "manifest.json").read_bytes())
    assert list(content) == [
        "format",
        "name",
        "spec",
        "spec_sha256",
        "encoding",
        "cache",
        "promises",
        "splits",
        "ranks",
        "files",
        "proof",
        "card",
    ]
    assert content["format"] == "wlgen/1"
    assert content["spec"] == SPEC.content
    assert content["spec_sha256"] == spec_file.fingerprint(SPEC.content)
    assert content["splits"]["formal"] == {"rows": 10, "per_rank": [4, 3, 3]}
    assert content["splits"]["seed"] == content["splits"]["check"] == {"rows": 6, "per_rank": [2, 2, 2]}
    assert content["ranks"] == [0, 1, 2]
    assert [file["path"] for file in content["files"]] == [
        f"{split}/rank-0{rank}.jsonl" for split in ("seed", "check", "formal") for rank in range(3)
    ]
    assert content["proof"]["method"] == "atoms"
    assert str(whole.workload.folder) not in orjson.dumps(content).decode()


def test_a_second_build_gives_the_same_bytes(whole, tmp_path):
    again = build(SPEC, tmp_path).workload
    assert files_of(again.folder) == files_of(whole.workload.folder)
    manifests = [(w.folder / "manifest.json").read_bytes() for w in (again, whole.workload)]
    assert manifests[0] == manifests[1]


def test_each_rank_built_alone_has_the_bytes_of_the_whole_build(whole, tmp_path):
    expected = files_of(whole.workload.folder)
    for rank in range(3):
        part = build(SPEC, tmp_path / str(rank), ranks=[rank]).workload
        assert part.manifest.ranks == [rank]
        assert files_of(part.folder) == {k: v for k, v in expected.items() if f"rank-0{rank}" in k}
        assert verify(part, full=False).findings == []


def test_ranks_add_up_to_the_whole_set(whole, tmp_path):
    for rank, written in ((1, 3), (0, 3), (1, 0), (2, 3)):
        built = build(SPEC, tmp_path, ranks=[rank])
        assert built.written == written
    assert files_of(built.workload.folder) == files_of(whole.workload.folder)
    found, expected = built.workload.manifest, whole.workload.manifest
    assert found.files == expected.files
    assert (found.ranks, found.promises, found.splits) == (expected.ranks, expected.promises, expected.splits)
    assert build(SPEC, tmp_path).written == 0


def test_a_whole_build_adds_the_ranks_that_are_missing(whole, tmp_path):
    build(SPEC, tmp_path, ranks=[2])
    assert build(SPEC, tmp_path).written == 6
    assert files_of(tmp_path / "small") == files_of(whole.workload.folder)


def test_a_rank_of_a_whole_set_takes_nothing_away(whole, copied, tmp_path):
    assert build(SPEC, tmp_path, ranks=[0]).written == 0
    assert files_of(copied) == files_of(whole.workload.folder)


@pytest.mark.parametrize(
    ("changes", "small", "large"),
    [
        (GROUPS, {"total": 4}, {"total": 10}),
        (GROUPS, {"total": 5}, {"total": 6}),
        ({"prefix": {"shared_by": "rank"}}, {"per_rank": 1}, {"per_rank": 3}),
        ({"cached": {"max_tokens": 0}}, {"total": 4}, {"total": 9}),
        ({"task": "copy", "encoding": chat()}, {"total": 4}, {"total": 9}),
    ],
)
def test_growing_formal_keeps_the_bytes_of_every_row_that_was_there(tmp_path, changes, small, large):
    before = build(spec_of(dp_ranks=3, formal=small, **TINY | changes), tmp_path / "small").workload
    after = build(spec_of(dp_ranks=3, formal=large, **TINY | changes), tmp_path / "large").workload
    for name, content in files_of(before.folder).items():
        assert files_of(after.folder)[name].startswith(content)
        # Seeds and checks are added only where a rank meets a group that it had no row of.
        assert name.startswith("formal") or changes is GROUPS or files_of(after.folder)[name] == content


def test_an_unchanged_spec_is_recognised_and_nothing_is_written(copied, tmp_path):
    before = written_at(copied)
    assert build(SPEC, tmp_path).written == 0
    assert written_at(copied) == before


@pytest.mark.parametrize("damage", [b"", b"x", None])
def test_one_damaged_file_is_built_again_alone(whole, copied, tmp_path, damage):
    folder = copied
    file, before = folder / "formal/rank-01.jsonl", written_at(folder)
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage)
    assert build(SPEC, tmp_path).written == 1
    assert files_of(folder) == files_of(whole.workload.folder)
    changed = {name for name, at in written_at(folder).items() if before[name] != at}
    assert changed == {"formal/rank-01.jsonl", "manifest.json"}
    assert verify(open_workload(folder), full=True).findings == []


def manifest_of(folder: Path) -> bytes:
    return (folder / "manifest.json").read_bytes()


def test_a_set_has_one_manifest_however_it_was_put_together(whole, copied, tmp_path):
    expected = manifest_of(whole.workload.folder)
    content = orjson.loads(manifest_of(copied))
    content["proof"]["seams"] = "many"
    (copied / "manifest.json").write_bytes(orjson.dumps(content))
    (copied / "formal/rank-01.jsonl").unlink()
    build(SPEC, tmp_path)
    assert manifest_of(copied) == expected
    parts = [build(SPEC, tmp_path / str(rank), ranks=[rank]).workload.folder for rank in range(2)]
    assert manifest_of(build(SPEC, tmp_path / "all", take=parts).workload.folder) == expected


def test_a_file_of_the_spec_that_was_changed_in_the_set_is_put_right(tmp_path):
    (tmp_path / "lengths.csv").write_text("n\n64\n70\n")
    content = content_of(dp_ranks=1, formal={"total": 4}, **TINY)
    content["requests"]["body_len"] = {"column": {"path": "lengths.csv", "column": "n"}}
    spec = spec_file.from_content(content, str(tmp_path / "spec.yaml"))
    built = build(spec, tmp_path / "out")
    (kept,) = (built.workload.folder / "inputs").iterdir()
    for spoil in (lambda: kept.write_text("n\n1\n"), kept.unlink):
        spoil()
        again = build(spec, tmp_path / "out")
        assert (again.written, kept.read_text()) == (0, "n\n64\n70\n")
    assert verify(again.workload, full=False).findings == []


def test_a_damaged_file_of_another_rank_is_built_again_too(whole, copied, tmp_path):
    """Else a set would be called proved that is not."""
    (copied / "check/rank-02.jsonl").write_bytes(b"")
    assert build(SPEC, tmp_path, ranks=[0]).written == 1
    assert files_of(copied) == files_of(whole.workload.folder)


def edits(content: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    return {
        "promises": lambda: content["promises"].update(configured=0.9),
        "a count": lambda: content["splits"]["formal"].update(rows=640),
        "page size": lambda: content["cache"].update(page_size=128),
        "ranks": lambda: content.update(ranks=[0]),
        "framing": lambda: content["encoding"].update(head_ids=[1]),
        "fingerprint": lambda: content.update(spec_sha256="0"),
        "spec": lambda: content["spec"].update(random_seed=8),
        "name": lambda: content.update(name="other"),
        "an unknown file": lambda: content["files"].append({"path": "../x", "sha256": "0", "rows": 1}),
        "a file twice": lambda: content["files"].append(content["files"][0]),
        "a file's hash": lambda: content["files"][0].update(sha256=5),
        "proof": lambda: content.update(proof=[1]),
        "a key": lambda: content.pop("promises"),
        "another key": lambda: content.update(extra=1),
    }


@pytest.mark.parametrize("edit", list(edits({})))
def test_an_edited_manifest_is_never_called_proved(whole, copied, tmp_path, edit):
    content = orjson.loads((copied / "manifest.json").read_bytes())
    edits(content)[edit]()
    (copied / "manifest.json").write_bytes(orjson.dumps(content))
    assert build(SPEC, tmp_path).written > 0
    assert (copied / "manifest.json").read_bytes() == (whole.workload.folder / "manifest.json").read_bytes()


@pytest.mark.parametrize("content", [b"", b"not json", b"[]", b"{}", b'{"format": "wlgen/1"}', b"\xff"])
def test_a_folder_whose_manifest_does_not_list_its_files_is_refused_and_left(copied, tmp_path, content):
    """Its files may be anybody's: nothing says that a build wrote them."""
    (copied / "manifest.json").write_bytes(content)
    before = files_of(copied)
    with pytest.raises(WlgenError, match="Move it away, or give another --output"):
        build(SPEC, tmp_path)
    assert files_of(copied) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"random_seed": 8},
        {"output_len": 9},
        {"cached": {"min_ratio": 0.6}},
        {"encoding": chat("plain")},
        {"cache_rule": {"engine": "sglang", "page_size": 32}},
        {"formal": {"total": 4}},
    ],
)
@pytest.mark.usefixtures("copied")
def test_a_changed_spec_replaces_the_set(tmp_path, changes):
    spec = spec_of(**{"dp_ranks": 3, "formal": {"total": 10}} | GROUPS | TINY | changes)
    built = build(spec, tmp_path)
    assert built.written == 9
    assert built.workload.manifest.spec == spec.content
    assert verify(built.workload, full=False).findings == []


def test_another_tokenizer_in_the_same_folder_replaces_the_set(tmp_path):
    """The manifest keeps the tokenizer's hash, not only where it stood."""
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    spec = spec_of(encoding={"name": "raw", "path": str(folder)}, task="words")
    for family, written in (("plain", 6), ("plain", 0), ("bert", 6)):
        for file in Path(chat(family)["path"]).iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        assert build(spec, tmp_path / "output").written == written


def test_a_refused_rebuild_leaves_the_old_set(copied, tmp_path):
    before = written_at(copied)
    with pytest.raises(WlgenError):
        build(spec_of(cached={"min_ratio": 0.999}, **TINY), tmp_path)
    assert written_at(copied) == before


def test_a_bad_spec_makes_no_folder(tmp_path):
    for changes in ({"cached": {"min_ratio": 0.999}}, {"output_len": 5000}):
        with pytest.raises(WlgenError):
            build(spec_of(**changes), tmp_path / "deep" / "output")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rank", [-1, 3, 99])
def test_a_rank_that_the_set_has_not_is_refused(tmp_path, rank):
    with pytest.raises(WlgenError, match=r"--rank: expected a rank from 0 to 2 \(dp_ranks: 3\), found"):
        build(SPEC, tmp_path, ranks=[0, rank])
    assert list(tmp_path.iterdir()) == []


def test_a_rank_named_twice_is_built_once(tmp_path):
    assert build(SPEC, tmp_path, ranks=[1, 1]).written == 3


def test_progress_counts_the_rows_to_compose(tmp_path):
    seen: list[tuple[int, int]] = []
    build(SPEC, tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(n, 22) for n in range(1, 23)]


def test_a_rank_without_formal_rows_has_no_file_of_them(tmp_path):
    spec = spec_of(dp_ranks=4, formal={"total": 2}, **TINY)
    workload = build(spec, tmp_path).workload
    assert not (workload.folder / "formal/rank-03.jsonl").exists()
    assert (workload.folder / "seed/rank-03.jsonl").exists()
    assert verify(workload, full=False).findings == []
    assert build(spec, tmp_path).written == 0


def test_a_blueprint_writes_nothing_and_says_whether_a_spec_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert next(blueprint(SPEC).plan.rows("formal", 0)).cached_len == 160
    assert list(tmp_path.iterdir()) == []


def hashes(spec: Spec, place: Path) -> list[str]:
    folder = build(spec, place).workload.folder
    return [hashlib.sha256(content).hexdigest() for content in files_of(folder).values()]


def test_another_random_seed_gives_other_rows_everywhere(tmp_path):
    one = hashes(spec_of(random_seed=1), tmp_path / "1")
    other = hashes(spec_of(random_seed=2), tmp_path / "2")
    assert not set(one) & set(other)


def test_ranks_built_on_several_machines_are_taken_into_one_set(whole, tmp_path):
    parts = [build(SPEC, tmp_path / str(rank), ranks=[rank]).workload.folder for rank in range(3)]
    built = build(SPEC, tmp_path / "all", take=parts)
    assert (built.written, built.taken) == (0, 9)
    assert files_of(built.workload.folder) == files_of(whole.workload.folder)
    found, expected = built.workload.manifest, whole.workload.manifest
    assert (found.files, found.ranks) == (expected.files, expected.ranks)
    assert verify(built.workload, full=True).findings == []
    assert build(SPEC, tmp_path / "all", take=parts).written == 0
    shutil.rmtree(parts[0])
    assert files_of(built.workload.folder) == files_of(whole.workload.folder)


def test_what_is_missing_or_spoilt_in_a_taken_set_is_built(whole, tmp_path):
    part = build(SPEC, tmp_path / "part", ranks=[0, 2]).workload.folder
    spoilt = part / "formal" / "rank-02.jsonl"
    spoilt.write_bytes(spoilt.read_bytes()[:-2] + b" \n")
    built = build(SPEC, tmp_path / "all", take=[part])
    assert (built.written, built.taken) == (4, 5)
    assert files_of(built.workload.folder) == files_of(whole.workload.folder)


def test_a_taken_file_is_a_copy(tmp_path):
    part = build(SPEC, tmp_path / "part").workload.folder
    taken = build(SPEC, tmp_path / "all", take=[part]).workload.folder
    for path in part.rglob("*.jsonl"):
        path.write_text("changed in place")
    assert verify(open_workload(taken), full=False).findings == []


def test_a_set_of_another_spec_is_not_taken(tmp_path):
    other = build(spec_of(dp_ranks=3, random_seed=8), tmp_path / "other").workload.folder
    with pytest.raises(WlgenError, match=r"--take .*: expected a set of the same spec as spec, .*small"):
        build(SPEC, tmp_path / "all", take=[other])
    with pytest.raises(WlgenError, match="nothing"):
        build(SPEC, tmp_path / "all", take=[tmp_path / "nothing"])
    assert not (tmp_path / "all").exists()
