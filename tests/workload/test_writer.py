"""Files hashed while they are written, and what a full or closed disk says."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from wlgen.errors import WlgenError
from wlgen.workload.writer import BUFFER, HashedFile


@pytest.mark.parametrize("sizes", [[], [0], [1, 2, 3], [BUFFER + 1], [70_000] * 200, [10, BUFFER * 2, 10]])
def test_what_is_hashed_is_what_stands_in_the_file(tmp_path: Path, sizes: list[int]):
    parts = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    with HashedFile(tmp_path / "folder" / "file") as file:
        for part in parts:
            file.write((part, b"\n"))
    content = (tmp_path / "folder" / "file").read_bytes()
    assert content == b"".join(part + b"\n" for part in parts)
    assert file.hexdigest == hashlib.sha256(content).hexdigest()


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
    with HashedFile(path) as file:
        for _ in range(4):
            file.write((b"x" * size,))


def test_the_first_failure_is_the_one_that_is_told():
    """A row that cannot be made is the cause; a file that cannot be closed is not."""
    with pytest.raises(ZeroDivisionError):
        _break_off(Path("/dev/full"))


def _break_off(path: Path) -> None:
    with HashedFile(path) as file:
        file.write((b"x",))
        raise ZeroDivisionError
