"""Files that a spec names are kept inside the set, which is then proved where the files are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kit.shaped import bytes_of, rows_of, shape, spec_of
from kit.verified import verify

from wlgen.build.build import build
from wlgen.errors import WlgenError
from wlgen.spec import file as spec_file

pytestmark = pytest.mark.usefixtures("small_bank")

BODY = {"column": {"path": "lens.csv", "column": "in"}}


def spec(place: Path, body: dict[str, Any] = BODY, **changes: Any) -> Any:
    return spec_file.from_content(shape(body_len=body, **changes), str(place / "spec.yaml"))


@pytest.fixture
def lens(tmp_path: Path) -> Path:
    (tmp_path / "lens.csv").write_text("in,ms\n300,100\n250,100\n400,160\n")
    return tmp_path


def test_rows_take_the_numbers_in_order_and_again(lens):
    workload = build(spec(lens, dp_ranks=1, arrivals=None), lens).workload
    assert [row["body_len"] for row in rows_of(workload, "formal")] == [300, 250, 400] * 2


def test_a_set_is_proved_without_the_file_that_it_was_built_of(lens):
    arrivals = {"column": {"path": "lens.csv", "column": "ms"}}
    workload = build(spec(lens, formal={"total": 2}, arrivals=arrivals), lens).workload
    (lens / "lens.csv").unlink()
    assert verify(workload, full=True).findings == []
    kept = list(workload.folder.glob("inputs/*"))
    assert [path.name.partition("-")[2] for path in kept] == ["lens.csv"]
    assert [row["timestamp_ms"] for row in rows_of(workload, "formal")] == [0, 0]


def test_a_changed_copy_in_the_set_is_found(lens):
    workload = build(spec(lens), lens).workload
    next(workload.folder.glob("inputs/*")).write_text("in\n300\n250\n401\n")
    with pytest.raises(WlgenError, match="of sha256"):
        verify(workload, full=True)


def test_an_unchanged_file_is_kept_and_a_changed_one_rebuilds(lens):
    first = build(spec(lens), lens)
    assert first.written
    assert build(spec(lens), lens).written == 0
    before = bytes_of(first.workload)
    (lens / "lens.csv").write_text("in,ms\n310,100\n250,100\n400,160\n")
    again = build(spec(lens), lens)
    assert again.written
    assert bytes_of(again.workload) != before
    assert len(list(again.workload.folder.glob("inputs/*"))) == 1


def test_a_file_is_kept_inside_of_the_set_wherever_it_stands(lens):
    """A spec that names the hash of a file above its folder would else write there."""
    sha256 = spec(lens).content["requests"]["body_len"]["column"]["sha256"]
    (lens / "below").mkdir()
    named = {"column": {"path": "../lens.csv", "column": "in", "sha256": sha256}}
    content = spec(lens / "below", named)
    assert list(content.inputs) == [f"inputs/{sha256[:8]}-lens.csv"]
    assert content.content == spec(lens).content


def test_content_is_a_fixed_point(lens):
    workload = build(spec(lens), lens).workload
    manifest = workload.manifest.spec
    assert spec_file.from_content(manifest, str(workload.folder / "manifest.json")).content == manifest


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none.csv", "No such file"),
        (".", "expected a file"),
        ("/dev/zero", "expected a file"),
        ("a\0b", "null byte"),
    ],
)
def test_a_file_that_is_not_there_is_refused(lens, path, message):
    with pytest.raises(WlgenError) as failure:
        spec(lens, {"column": {"path": path, "column": "in"}})
    (problem,) = failure.value.problems
    assert message in str(problem)
    assert "requests.body_len.column" in str(problem)


def test_a_path_of_a_person_is_expanded_and_an_unset_variable_is_named(lens, monkeypatch):
    monkeypatch.setenv("LENGTHS", str(lens))
    monkeypatch.setenv("HOME", str(lens))
    (lens / "below").mkdir()
    contents = [
        spec(lens / "below", {"column": {"path": path, "column": "in"}}).content
        for path in ("$LENGTHS/lens.csv", "${LENGTHS}/lens.csv", "~/lens.csv", "../lens.csv")
    ]
    assert contents == [contents[0]] * 4
    with pytest.raises(WlgenError, match=r"\$NOWHERE/lens\.csv.*Set the variable, or write the path out"):
        spec(lens, {"column": {"path": "$NOWHERE/lens.csv", "column": "in"}})


def test_a_file_of_another_hash_is_refused(lens):
    with pytest.raises(WlgenError, match=r"expected lens\.csv of sha256 0000"):
        spec(lens, {"column": {"path": "lens.csv", "column": "in", "sha256": "0" * 64}})


def test_a_spec_without_files_keeps_none():
    assert spec_of().inputs == {}
