"""Mooncake's export: hash_ids are equal exactly as far as prompts are."""

from __future__ import annotations

import json
import shutil
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import audits
from kit.carried import lines

from wlgen.build.build import build
from wlgen.build.recall import prompt_ids
from wlgen.export.export import export
from wlgen.exporters import Prompt
from wlgen.exporters.mooncake import Chain
from wlgen.pages import percent
from wlgen.spec import file as spec_file
from wlgen.workload.opened import Workload


@pytest.mark.parametrize("form", ["blocks", "pages"])
def test_rows_share_as_many_hash_ids_as_whole_blocks(warm_set: Workload, tmp_path: Path, form: str):
    export(warm_set, "mooncake", tmp_path / "out", form=form)
    size = 512 if form == "blocks" else warm_set.manifest.cache.page_size
    trace = [x for split in ("check", "formal") for x in lines(tmp_path / "out" / f"{split}.jsonl")]
    turn = sorted(
        ((row, ids) for row, ids in prompt_ids(warm_set) if row.split != "seed"),
        key=lambda pair: (pair[0].split != "check", pair[0].id.rsplit("-", 1)[1], pair[0].dp_rank),
    )
    assert len(trace) == len(turn)
    for line, (row, ids) in zip(trace, turn, strict=True):
        assert (line["input_length"], line["output_length"]) == (row.prompt_len, row.output_len)
        assert len(line["hash_ids"]) == -(-len(ids) // size)
        assert line.get("block_size") == (None if form == "blocks" else size)
    for (one, (_, a)), (two, (_, b)) in combinations(list(zip(trace, turn, strict=True)), 2):
        assert _same(one["hash_ids"], two["hash_ids"]) == _equal_blocks(a, b, size)


def _same(one: list[int], two: list[int]) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(one, two, strict=False)) if x != y), min(len(one), len(two))
    )


def _equal_blocks(a: np.ndarray, b: np.ndarray, size: int) -> int:
    end = min(len(a), len(b))
    different = np.flatnonzero(a[:end] != b[:end])
    return int(different[0] if len(different) else end) // size


def test_timestamps_go_on_over_the_splits_in_milliseconds(warm_set: Workload, tmp_path: Path):
    export(warm_set, "mooncake", tmp_path / "out")
    stamps = [
        line["timestamp"]
        for split in ("seed", "check", "formal")
        if (tmp_path / "out" / f"{split}.jsonl").exists()
        for line in lines(tmp_path / "out" / f"{split}.jsonl")
    ]
    assert stamps == [1000 * n for n in range(len(stamps))]


@given(
    size=st.integers(1, 40),
    shared=st.integers(2, 90),
    lengths=st.lists(st.integers(1, 60), min_size=2, max_size=6),
    groups=st.integers(1, 3),
)
def test_ids_are_chained_for_any_block_size(size: int, shared: int, lengths: list[int], groups: int):
    """Within a group the shared blocks repeat; a block that holds a unique token never does."""
    chain, seen = Chain(size, 2), []
    for number, own in enumerate(lengths):
        group = number % groups
        head = np.array([0, 1], dtype=np.uint32)
        prefix = np.arange(shared - 2, dtype=np.uint32) + 1000 * (group + 1)
        unique = np.full(own, 10_000 + number, dtype=np.uint32)
        ids = np.concatenate([head, prefix, unique])
        row = audits.row("formal", 0, number, shared_len=shared, prompt_len=len(ids), group=str(group))
        seen.append((ids, chain.hash_ids(Prompt.of(row, ids))))
    for (a, one), (b, two) in combinations(seen, 2):
        assert _same(one, two) == _equal_blocks(a, b, size)
        tail = set(one[_same(one, two) :])
        assert not tail & set(two[_same(one, two) :])


def test_memory_grows_with_what_is_shared_alone():
    chain = Chain(16, 2)
    for number in range(50):
        ids = np.concatenate([np.arange(160), np.full(1600, 10_000 + number)]).astype(np.uint32)
        chain.hash_ids(Prompt.of(audits.row("formal", 0, number, shared_len=160, prompt_len=1760), ids))
    assert len(chain._known) == 10


CHAT = {
    "name": "chat",
    "random_seed": 9,
    "encoding": {"name": "deepseek-v4"},
    "cache": {"rule": "sglang", "page_size": 64},
    "dp_ranks": 1,
    "requests": {
        "body_len": 1024,
        "output_len": 16,
        "cached": {"min_ratio": 0.3},
        "prefix": {"shared_by": "all", "message": "system"},
        "session": {"turns": 3, "user_len": 100, "assistant_len": 40},
    },
    "splits": {"formal": {"total": 9}},
}
BAILIAN = {
    "name": "bailian",
    "random_seed": 7,
    "encoding": {"name": "deepseek-v4"},
    "cache": {"engine": "vllm", "page_size": 16},
    "dp_ranks": 1,
    "requests": {"trace": {"path": "bailian.jsonl", "block_size": 16, "time_scale": 1000}},
    "splits": {"formal": {"total": 10}},
}
SAMPLES = Path(__file__).parents[1] / "samples" / "cases"


def exported(content: dict[str, object], form: str, place: Path) -> list[list[int]]:
    """Build a spec, export its formal rows, and return the hash_ids of each."""
    (place / "spec.yaml").write_text(json.dumps(content))
    shutil.copy(SAMPLES / "bailian.jsonl", place)
    workload = build(spec_file.load(place / "spec.yaml"), place / "output").workload
    export(workload, "mooncake", place / "out", form=form, splits=["formal"])
    return [line["hash_ids"] for line in lines(place / "out" / "formal.jsonl")]


def hits(rows: list[list[int]]) -> tuple[int, int]:
    """Return how many blocks an unlimited cache has held before, and how many there are."""
    held: set[int] = set()
    hit = 0
    for row in rows:
        hit += sum(block in held for block in row)
        held.update(row)
    return hit, sum(map(len, rows))


def test_turns_of_a_conversation_share_the_blocks_of_the_turns_before(tmp_path: Path):
    """Row 4 is the second turn of row 1's conversation: they share 1028 tokens, blocks 0 and 1."""
    rows = exported(CHAT, "blocks", tmp_path)
    assert hits(rows) == (12, 27)


def test_rows_of_a_trace_share_the_blocks_that_the_trace_shares(tmp_path: Path):
    """The trace of 10 requests has 79 blocks, of which 33 were seen before: so has the export, row by row."""
    rows = exported(BAILIAN, "pages", tmp_path)
    trace = [json.loads(line)["hash_ids"] for line in (SAMPLES / "bailian.jsonl").read_text().splitlines()]
    assert hits(rows) == (33, 79)
    assert [len(row) for row in rows] == [len(row) for row in trace]
    for (one, a), (two, b) in combinations(list(zip(rows, trace, strict=True)), 2):
        assert _same(one, two) == _same(a, b)


def test_the_shipped_conversation_of_6_turns_hits_78_03_percent_of_its_blocks(tmp_path: Path):
    """With the blocks of each row's own shared_len alone it is 67.09 %."""
    spec = Path(__file__).parents[2] / "specs/chat-6-turns.yaml"
    workload = build(spec_file.load(spec), tmp_path).workload
    export(workload, "mooncake", tmp_path / "out", splits=["formal"])
    rows = [line["hash_ids"] for line in lines(tmp_path / "out/formal.jsonl")]
    assert hits(rows) == (3196, 4096)
    assert percent(*hits(rows)) == "78.0273 %"
