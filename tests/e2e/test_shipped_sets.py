"""The two sets that wlgen exists for, built whole and encoded whole."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from kit.oracle import deepseek_text

from wlgen.encodings.deepseek_v4 import packaged_tokenizer

SPECS = Path(__file__).parent.parent.parent / "specs"
WLGEN = [sys.executable, "-c", "from wlgen.cli import main; main()"]
TABLE = {
    # prompt_len, shared_len, cached_len of a check or formal row; seeds
    "zero-16k": (16388, 2, 0, 0),
    "warm-128k": (131076, 118784, 118784, 16),
}


def rows_of(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.glob("*/rank-*.jsonl")):
        with file.open("rb") as lines:
            yield from map(orjson.loads, lines)


def encoded(rows: Iterator[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield each row with its ids, some rows at a time so that all cores encode."""
    while batch := list(islice(rows, 16)):
        texts = [deepseek_text(row["messages"]) for row in batch]
        found = packaged_tokenizer()[0].encode_batch_fast(texts, add_special_tokens=False)
        yield from ((row, np.array(e.ids, dtype="<u4")) for row, e in zip(batch, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(TABLE))
def test_every_row_of_a_shipped_set_is_what_the_design_says(name, tmp_path):
    """Each row is encoded whole by the server's own means: 20 s for zero-16k, some minutes for warm-128k."""
    command = [*WLGEN, "build", str(SPECS / f"{name}.yaml"), "--output", str(tmp_path), "--quiet"]
    subprocess.run(command, check=True, timeout=600)
    prompt_len, shared_len, cached_len, seeds = TABLE[name]
    prefix: bytes = b""
    behind: set[int] = set()
    counts: dict[tuple[str, int], int] = {}
    for row, ids in encoded(rows_of(tmp_path / name)):
        split = row["split"]
        counts[split, row["dp_rank"]] = counts.get((split, row["dp_rank"]), 0) + 1
        assert row["prompt_sha256"] == hashlib.sha256(ids.tobytes()).hexdigest()
        assert (row["prompt_len"], row["shared_len"]) == (len(ids), shared_len)
        assert len(ids) == (shared_len + 3 if split == "seed" else prompt_len)
        assert row["cached_len"] == (0 if split == "seed" else cached_len)
        assert row["output_len"] == (1024 if split == "formal" else 1)
        prefix = prefix or ids[:shared_len].tobytes()
        assert ids[:shared_len].tobytes() == prefix
        behind.add(int(ids[shared_len]))
    expected = {("formal", rank): 40 for rank in range(16)} | {("check", rank): 1 for rank in range(16)}
    assert counts == expected | {("seed", rank): 1 for rank in range(seeds)}
    assert len(behind) == sum(counts.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", list(TABLE))
def test_a_shipped_set_passes_its_own_full_verification(name, tmp_path):
    for arguments in (
        ["build", str(SPECS / f"{name}.yaml"), "--output", str(tmp_path)],
        ["verify", str(tmp_path / name), "--full"],
    ):
        done = subprocess.run([*WLGEN, *arguments], capture_output=True, text=True, timeout=1800, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(", 0 findings\n")
