"""The contract of every exporter: what rows share in the set, their lines share, in text, ids or blocks."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit.carried import READERS, Carried, carried, lines
from kit.sets import content_of

from wlgen import exporters, registry
from wlgen.build.build import build
from wlgen.build.recall import Ids, prompt_ids
from wlgen.errors import WlgenError
from wlgen.export.export import export
from wlgen.spec import file as spec_file
from wlgen.workload.opened import Workload
from wlgen.workload.rows import Row

TRACE = Path(__file__).parents[1] / "samples/cases/bailian.jsonl"
FORMS = [
    (client, form.name)
    for client in registry.names(exporters)
    for form in registry.load(exporters, client, place="").FORMS
]
SHAPES: dict[str, dict[str, Any]] = {
    "groups": {"prefix": {"shared_by": "group", "groups": 2}},
    "conversation": {
        "requests": {"body_len": 320, "output_len": 8, "cached": {"min_ratio": 0.3}, "task": {"name": "copy"},
                     "prefix": {"shared_by": "all", "message": "system"},
                     "session": {"turns": 3, "user_len": 40, "assistant_len": 30}},
    },
    "trace": {"requests": {"trace": {"path": "bailian.jsonl", "block_size": 16, "time_scale": 1000}},
              "dp_ranks": 1, "splits": {"formal": {"total": 10}}},
}  # fmt: skip

REFUSED: dict[tuple[str, str, str], str] = {
    ("trace", "vllm", "ids"): "one length a run",
    ("conversation", "aisbench", "text"): "AISBench sends one text a request",
    ("conversation", "vllm", "text"): "vllm bench serve sends one text a request",
}


@pytest.fixture(scope="module", params=SHAPES)
def shared_set(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workload:
    """Build a set of two ranks whose rows share in groups, from turn to turn, or as a trace says."""
    place = tmp_path_factory.mktemp("shared")
    shutil.copy(TRACE, place)
    content = content_of(formal={"total": 12}) | {"name": f"by-{request.param}"}
    shape = SHAPES[request.param]
    if "prefix" in shape:
        shape = {"requests": content["requests"] | shape}
    (place / "spec.yaml").write_text(json.dumps(content | shape))
    return build(spec_file.load(place / "spec.yaml"), place / "output").workload


@pytest.mark.parametrize(("client", "form"), FORMS)
def test_lines_share_what_rows_share(shared_set: Workload, tmp_path: Path, client: str, form: str):
    """A format without text must say it with blocks; with text or ids, each row must be whole in its line."""
    if words := REFUSED.get((shared_set.manifest.name.removeprefix("by-"), client, form)):
        with pytest.raises(WlgenError, match=words):
            export(shared_set, client, tmp_path / "out", form=form)
        return
    export(shared_set, client, tmp_path / "out", form=form)
    if client not in READERS:
        _check_blocks(shared_set, tmp_path / "out", form)
        return
    rows = list(shared_set.rows())
    known = {_texts([m._asdict() for m in row.messages]): row for row in rows}
    known |= {row.prompt_sha256: row for row in rows}
    found = [known[key].id for request in carried(client, tmp_path / "out") for key in _keys(request)]
    assert set(found) == {row.id for row in rows}
    assert len(found) % len(rows) == 0


def _keys(request: Carried) -> Iterator[str]:
    """Yield what identifies the row that a line would send: the hash of its ids, or all of its texts."""
    if isinstance(request.prompt, list):
        yield hashlib.sha256(np.array(request.prompt, dtype="<u4").tobytes()).hexdigest()
    elif request.prompt is not None:
        yield _texts([{"role": "user", "content": request.prompt}])
    if request.messages is not None and request.prompt is None:
        yield _texts(request.messages)


def _texts(messages: list[dict[str, str]]) -> str:
    return json.dumps([[message["role"], message["content"]] for message in messages])


def _check_blocks(workload: Workload, folder: Path, form: str) -> None:
    """Demand of every two lines that they share as many ids as their rows share whole blocks."""
    size = 512 if form == "blocks" else workload.manifest.cache.page_size
    for split in ("check", "formal"):
        if not (folder / f"{split}.jsonl").exists():
            continue
        trace = [line["hash_ids"] for line in lines(folder / f"{split}.jsonl")]
        turn = _in_turn([found for found in prompt_ids(workload) if found[0].split == split])
        assert [len(line) for line in trace] == [-(-len(ids) // size) for _, ids in turn]
        for (one, (_, a)), (two, (_, b)) in combinations(list(zip(trace, turn, strict=True)), 2):
            whole = _same(a, b) // size
            assert _same(one, two) == whole


def _in_turn(found: list[tuple[Row, Ids]]) -> list[tuple[Row, Ids]]:
    """Return rows in the order of an export: at their times, the ranks in turn where they have none."""
    place: dict[int, int] = {}
    ordered = []
    for row, ids in found:
        turn = place[row.dp_rank] = place.get(row.dp_rank, -1) + 1
        ordered.append(((row.timestamp_ms or 0, turn, row.dp_rank), (row, ids)))
    return [pair for _, pair in sorted(ordered, key=lambda each: each[0])]


def _same(one: Any, two: Any) -> int:
    end = min(len(one), len(two))
    different = np.flatnonzero(np.asarray(one[:end]) != np.asarray(two[:end]))
    return int(different[0]) if len(different) else end


def test_a_trace_that_is_made_a_set_and_exported_twice_hits_the_same_row_by_row(tmp_path: Path):
    """Trace -> set -> trace -> set -> trace: every row finds as many blocks as it found in the first."""
    shutil.copy(TRACE, tmp_path / "0.jsonl")
    for step in (0, 1):
        asked = {"trace": {"path": f"{step}.jsonl", "block_size": 16, "time_scale": 1 if step else 1000}}
        content = content_of(name=f"step-{step}") | {"requests": asked, "dp_ranks": 1}
        content |= {"cache": {"engine": "vllm", "page_size": 16}, "splits": {"formal": {"total": 10}}}
        (tmp_path / "spec.yaml").write_text(json.dumps(content))
        workload = build(spec_file.load(tmp_path / "spec.yaml"), tmp_path / "output").workload
        export(workload, "mooncake", tmp_path / f"out-{step}", form="pages", splits=["formal"])
        shutil.copy(tmp_path / f"out-{step}/formal.jsonl", tmp_path / f"{step + 1}.jsonl")
    first, second, third = (_found(tmp_path / f"{step}.jsonl") for step in range(3))
    assert first == second == third
    assert (sum(hit for hit, _ in first), sum(blocks for _, blocks in first)) == (33, 79)


def _found(path: Path) -> list[tuple[int, int]]:
    """Return for each line of a trace how many of its blocks were there before, and how many it has."""
    held: set[int] = set()
    rows = []
    for line in lines(path):
        rows.append((sum(block in held for block in line["hash_ids"]), len(line["hash_ids"])))
        held.update(line["hash_ids"])
    return rows
