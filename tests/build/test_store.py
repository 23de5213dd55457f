"""Sets come to disk whole or not at all, and an old one is never lost to a new one that failed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import orjson
import pytest
from kit.sets import spec_of

from wlgen.build.build import build
from wlgen.build.compose import Composed
from wlgen.build.ready import Blueprint, blueprint
from wlgen.build.store import Staging, row_line, write_rows
from wlgen.errors import WlgenError
from wlgen.workload import exchange
from wlgen.workload import writer as disk
from wlgen.workload.opened import Workload, open_workload
from wlgen.workload.rows import parse_row
from wlgen.workload.writer import writing

pytestmark = pytest.mark.usefixtures("small_bank")

SPEC = spec_of(formal={"total": 4})
OTHER = spec_of(formal={"total": 5})


@pytest.fixture(scope="module")
def ready() -> Blueprint:
    return blueprint(SPEC)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("models")
    return {name: build(spec, place / name).workload.folder for name, spec in (("old", SPEC), ("new", OTHER))}


@pytest.fixture
def built(tmp_path: Path, models: dict[str, Path]) -> Workload:
    shutil.copytree(models["old"], tmp_path / "small")
    return open_workload(tmp_path / "small")


def content_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def rows_of(ready: Blueprint) -> Iterator[Composed]:
    composer = ready.composer()
    return (composer.compose(plan) for plan in ready.plan.rows("formal", 0))


def test_a_line_is_the_row_as_json_with_its_keys_in_order(ready):
    row = next(rows_of(ready))
    line = b"".join(row_line(row))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    read = parse_row(line, place="test")
    assert read.messages == row.messages
    assert (read.id, read.prompt_sha256, read.cached_len) == (
        row.plan.id,
        row.prompt_sha256,
        row.plan.cached_len,
    )
    assert orjson.dumps(orjson.loads(line)) + b"\n" == line


def test_nothing_is_left_but_the_set(built):
    (folder,) = built.folder.parent.iterdir()
    left = ["README.md", "check", "formal", "manifest.json", "seed"]
    assert sorted(path.name for path in folder.iterdir()) == left


def write_and_fail(output: Path, ready: Blueprint, failure: BaseException) -> None:
    with Staging(output, "small") as staging:
        write_rows(staging.new, [("formal/rank-00.jsonl", rows_of(ready))])
        raise failure


def test_a_failure_leaves_nothing_not_even_the_folders_it_made(tmp_path, ready):
    with pytest.raises(ValueError, match="midway"):
        write_and_fail(tmp_path / "a" / "b", ready, ValueError("midway"))
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_an_older_set_as_it_was(built, ready):
    before = content_of(built.folder)
    with pytest.raises(KeyboardInterrupt):
        write_and_fail(built.folder.parent, ready, KeyboardInterrupt())
    assert content_of(built.folder) == before
    assert list(built.folder.parent.iterdir()) == [built.folder]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("broken_rename", range(5))
def test_a_break_in_the_exchange_loses_no_set_and_no_journal(built, monkeypatch, broken_rename, at_once):
    """SIGINT before any of the renames, with and without a system that exchanges two folders at once."""
    (built.folder / "journal.jsonl").write_bytes(b"kept\n")
    before = content_of(built.folder)
    rename, done = Path.rename, []

    def rename_or_break(path: Path, target: Path) -> Path:
        done.append(path)
        if len(done) == broken_rename + 1:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_or_break)
    if not at_once:
        monkeypatch.setattr(exchange, "swap", lambda *_: False)
    with suppress(KeyboardInterrupt):  # with a system that can, there are three renames
        build(OTHER, built.folder.parent)
    after = content_of(built.folder)
    assert after.pop("journal.jsonl") == before.pop("journal.jsonl")
    assert after == before or open_workload(built.folder).manifest.spec == OTHER.content
    assert list(built.folder.parent.iterdir()) == [built.folder]


def test_two_folders_are_exchanged_at_once_or_not_at_all(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert not exchange.swap(tmp_path / "a", tmp_path / "none")
    if exchange.swap(tmp_path / "a", tmp_path / "b"):
        assert (tmp_path / "a" / "b").exists()
        assert (tmp_path / "b" / "a").exists()
    else:
        assert (tmp_path / "a" / "a").exists()


def staged(built: Workload, new: Path, *steps: str) -> None:
    """Leave what a killed build leaves: a new set beside the old one, and so many renames done."""
    place = built.folder.parent / ".small.building"
    shutil.copytree(new, place / "new")
    (built.folder / "journal.jsonl").write_bytes(b"kept\n")
    if "about to exchange" in steps:
        (place / "new").rename(place / "old")
    if "old away" in steps:
        built.folder.rename(place / "old")
    if "new in" in steps:
        (place / "new").rename(built.folder)


@pytest.mark.parametrize("steps", [(), ("about to exchange",), ("old away",), ("old away", "new in")])
def test_the_next_build_recovers_from_a_kill_at_any_point(built, models, steps):
    before = content_of(built.folder)
    staged(built, models["new"], *steps)
    with Staging(built.folder.parent, "small"):
        after = content_of(built.folder)
        assert after.pop("journal.jsonl") == b"kept\n"
        assert (after == before) == (steps != ("old away", "new in"))
    assert list(built.folder.parent.iterdir()) == [built.folder]
    assert build(SPEC, built.folder.parent).workload.manifest.spec == SPEC.content
    assert (built.folder / "journal.jsonl").read_bytes() == b"kept\n"


def test_a_journal_of_the_new_set_is_not_overwritten_by_the_old_ones(built, models):
    staged(built, models["new"], "old away", "new in")
    (built.folder / "journal.jsonl").write_bytes(b"newer\n")
    build(OTHER, built.folder.parent)
    assert (built.folder / "journal.jsonl").read_bytes() == b"newer\n"
    assert (built.folder / "journal.jsonl.kept").read_bytes() == b"kept\n"


def test_files_of_a_person_inside_a_split_stay_where_they_are(built):
    mine = {
        "formal/notes.txt": b"mine",
        "inputs/trace.csv": b"my trace",
        "seed/deep/er/x": b"",
        "check/e": b"e",
    }
    for path, content in mine.items():
        (built.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (built.folder / path).write_bytes(content)
    (built.folder / "formal" / "link").symlink_to("/nowhere")
    build(OTHER, built.folder.parent)
    assert open_workload(built.folder).manifest.spec == OTHER.content
    assert {path: (built.folder / path).read_bytes() for path in mine} == mine
    assert (built.folder / "formal" / "link").is_symlink()


def test_a_persons_file_where_the_set_has_one_is_refused_and_nothing_changes(built):
    spec = spec_of(formal={"total": 4}, dp_ranks=3)
    mine = built.folder / "formal" / "rank-02.jsonl"
    mine.write_text("mine")
    before = content_of(built.folder)
    with pytest.raises(WlgenError) as refused:
        build(spec, built.folder.parent)
    assert str(refused.value) == (
        f"{mine}: expected no file of yours where the build writes one, found a file of yours. "
        "Move it away, or give another --output."
    )
    assert content_of(built.folder) == before
    assert list(built.folder.parent.iterdir()) == [built.folder]


@pytest.mark.parametrize("there", [True, False])
def test_a_place_that_is_a_link_stays_a_link(tmp_path, models, there):
    """The set of a person whose disk is full stands on another one; the exchange happens there."""
    real, place = tmp_path / "disk" / "set", tmp_path / "output" / "small"
    place.parent.mkdir()
    real.parent.mkdir()
    if there:
        shutil.copytree(models["old"], real)
    place.symlink_to(real)
    built = build(OTHER, place.parent)
    assert place.is_symlink()
    assert built.workload.folder == place
    assert open_workload(real).manifest.spec == OTHER.content
    assert [list(p.parent.iterdir()) for p in (real, place)] == [[real], [place]]


@pytest.mark.parametrize(
    "content", ['{"name": "my app", "icons": []}', "not json", '{"format": "other/1"}', "[]"]
)
def test_a_folder_with_a_manifest_of_something_else_is_refused_and_left(tmp_path, content):
    """Web applications and browser extensions have a manifest.json too."""
    place = tmp_path / "small"
    place.mkdir()
    (place / "manifest.json").write_text(content)
    (place / "index.html").write_text("mine")
    with pytest.raises(
        WlgenError, match=r"found a manifest\.json that wlgen did not write, or that is damaged"
    ):
        build(SPEC, tmp_path)
    assert content_of(place) == {"manifest.json": content.encode(), "index.html": b"mine"}
    assert list(tmp_path.iterdir()) == [place]


def test_what_a_person_adds_to_a_set_survives_its_rebuild(built):
    (built.folder / "export").mkdir()
    (built.folder / "export" / "RUN.md").write_text("mine")
    build(OTHER, built.folder.parent)
    assert (built.folder / "export" / "RUN.md").read_text() == "mine"
    assert open_workload(built.folder).manifest.spec == OTHER.content


def test_one_build_at_a_time(built):
    with Staging(built.folder.parent, "small"):
        with pytest.raises(WlgenError, match="expected one build at a time, found another"):
            build(OTHER, built.folder.parent)
        build(spec_of(name="another"), built.folder.parent)
    build(OTHER, built.folder.parent)


def test_the_end_of_a_build_does_not_take_away_the_next_ones_place(tmp_path, ready, models):
    """A build that has just committed and one that begins then must not meet."""
    manifest = open_workload(models["old"]).manifest
    with Staging(tmp_path, "small") as first:
        first.commit(manifest)
        with pytest.raises(WlgenError, match="one build at a time"), Staging(tmp_path, "small"):
            pass
    with Staging(tmp_path, "small") as second:
        write_rows(second.new, [("formal/rank-00.jsonl", rows_of(ready))])


def test_a_place_that_holds_other_things_is_refused_and_left(tmp_path):
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "thesis.txt").write_text("mine")
    with pytest.raises(WlgenError, match="found other files and no manifest"):
        build(SPEC, tmp_path)
    assert [path.name for path in (tmp_path / "small").iterdir()] == ["thesis.txt"]
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


def test_an_empty_folder_in_the_place_is_taken(tmp_path):
    (tmp_path / "small").mkdir()
    assert build(SPEC, tmp_path).written


def test_a_file_in_the_place_is_refused(tmp_path):
    (tmp_path / "small").write_text("mine")
    with pytest.raises(WlgenError, match="expected a built set or no folder, found a file"):
        build(SPEC, tmp_path)
    assert (tmp_path / "small").read_text() == "mine"


def test_an_output_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "output").write_text("mine")
    with pytest.raises(WlgenError, match="expected a writable place with room"):
        build(SPEC, tmp_path / "output")


def test_a_name_too_long_for_the_disk_is_refused(tmp_path):
    with pytest.raises(WlgenError, match="File name too long"):
        build(SPEC, tmp_path / ("x" * 300))


def test_an_output_where_nothing_can_be_made_is_refused():
    with pytest.raises(WlgenError, match="Give a writable --output"):
        build(SPEC, Path("/proc/self"))


def write_to_a_full_disk(output: Path, rows: Iterator[Composed]) -> None:
    """Write a file whose place leads to /dev/full, which takes no byte."""
    with Staging(output, "small") as staging:
        target = staging.new / "formal"
        target.mkdir()
        (target / "rank-00.jsonl").symlink_to("/dev/full")
        write_rows(staging.new, [("formal/rank-00.jsonl", rows)])


def test_a_full_disk_is_refused_and_leaves_nothing(tmp_path, ready):
    with pytest.raises(WlgenError, match="No space left on device"):
        write_to_a_full_disk(tmp_path, rows_of(ready))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_stops_the_composing_of_rows(tmp_path, ready, monkeypatch):
    """The error reaches the build when the first buffer is full, not at the end of the file."""
    monkeypatch.setattr(disk, "BUFFER", 100)
    composed = []

    def rows() -> Iterator[Composed]:
        row = next(rows_of(ready))
        for number in range(10_000):
            composed.append(number)
            yield row

    with pytest.raises(WlgenError, match="No space left"):
        write_to_a_full_disk(tmp_path, rows())
    assert len(composed) < 1000


def test_files_are_kept_by_a_copy_where_the_disk_has_no_links(built, monkeypatch):
    def no_link(*_args: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    before = content_of(built.folder)
    (built.folder / "formal" / "rank-01.jsonl").unlink()
    monkeypatch.setattr(os, "link", no_link)
    assert build(SPEC, built.folder.parent).written == 1
    after = content_of(built.folder)
    assert {k: v for k, v in after.items() if k != "manifest.json"} == {
        k: v for k, v in before.items() if k != "manifest.json"
    }


def test_large_and_small_buffers_write_the_same_bytes(tmp_path, ready, monkeypatch):
    written = []
    for size in (1, 1000, 4 << 20):
        monkeypatch.setattr(disk, "BUFFER", size)
        with Staging(tmp_path, "small") as staging:
            (proof,) = write_rows(staging.new, [("formal/rank-00.jsonl", rows_of(ready))])
            written.append((proof, (staging.new / proof.path).read_bytes()))
    assert written[0] == written[1] == written[2]
    assert written[0][0].rows == 2


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "Free space, or give another --output."),
        (errno.EDQUOT, "Free space, or give another --output."),
        (errno.EACCES, "Give a writable --output."),
        (errno.EROFS, "Give a writable --output."),
    ],
)
def test_each_failure_of_a_disk_has_its_remedy(code, remedy):
    with pytest.raises(WlgenError) as failure, writing(Path("there")):
        raise OSError(code, os.strerror(code))
    (problem,) = failure.value.problems
    assert (problem.place, problem.found, problem.remedy) == ("there", os.strerror(code), remedy)
