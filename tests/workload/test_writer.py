"""Files hashed while they are written, and what a full or closed disk says."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from wlgen.errors import WlgenError
from wlgen.workload.writer import BUFFER, Writer


@pytest.mark.parametrize("sizes", [[], [0], [1, 2, 3], [BUFFER + 1], [70_000] * 200, [10, BUFFER * 2, 10]])
def test_what_is_hashed_is_what_stands_in_the_file(tmp_path: Path, sizes: list[int]):
    parts = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    with Writer() as writer:
        file = writer.begin(tmp_path / "file")
        for part in parts:
            writer.write((part, b"\n"))
    content = (tmp_path / "file").read_bytes()
    assert content == b"".join(part + b"\n" for part in parts)
    assert file.hexdigest == hashlib.sha256(content).hexdigest()


def test_files_one_after_another_have_their_own_bytes_and_hashes(tmp_path: Path):
    with Writer() as writer:
        files = []
        for number in range(40):
            files.append(writer.begin(tmp_path / str(number)))
            writer.write([b"%d\n" % number] * number)
    for number, file in enumerate(files):
        content = (tmp_path / str(number)).read_bytes()
        assert content == b"%d\n" % number * number
        assert file.hexdigest == hashlib.sha256(content).hexdigest()


def _fill_each(*paths: Path) -> None:
    with Writer() as writer:
        for path in paths:
            writer.begin(path)
            writer.write((b"x",))


def test_the_file_that_failed_is_named_though_others_follow(tmp_path: Path):
    with pytest.raises(WlgenError, match="/dev/full: expected"):
        _fill_each(tmp_path / "a", Path("/dev/full"), tmp_path / "b", tmp_path / "c")


@pytest.mark.parametrize("size", [10, BUFFER * 3])
def test_a_full_disk_is_one_line_with_its_remedy(size: int):
    """Few bytes fail only when the file is closed, many already at a write."""
    full = Path("/dev/full")
    with pytest.raises(
        WlgenError, match=r"/dev/full: expected .* No space left on device. Free space"
    ) as refused:
        _fill(full, size)
    assert len(refused.value.problems) == 1


def _fill(path: Path, size: int) -> None:
    with Writer() as writer:
        writer.begin(path)
        for _ in range(4):
            writer.write((b"x" * size,))


def test_the_first_failure_is_the_one_that_is_told():
    """A row that cannot be made is the cause; a file that cannot be closed is not."""
    with pytest.raises(ZeroDivisionError):
        _break_off(Path("/dev/full"))


def _break_off(path: Path) -> None:
    with Writer() as writer:
        writer.begin(path)
        writer.write((b"x",))
        raise ZeroDivisionError
