"""Traces: rows of the trace's lengths that share its blocks where the trace does, and nowhere else."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from kit.oracle import shared
from kit.sets import chat, raw
from kit.shaped import clashes, ids_of, promises, replayed, retold, rewrite, rows_of
from kit.verified import verify

from wlgen.build.build import build
from wlgen.build.ready import load_encoding
from wlgen.errors import WlgenError
from wlgen.plan.rows import Plan
from wlgen.plan.solve import solve
from wlgen.spec import file as spec_file
from wlgen.workload.opened import Workload

pytestmark = pytest.mark.usefixtures("small_bank")

SAMPLE = Path(__file__).parents[1] / "samples" / "mooncake" / "conversation_trace_head.jsonl"
SMALL = [
    (0, 130, [0, 1, 2]),
    (10, 200, [0, 1, 3, 4]),
    (10, 64, [5]),
    (25, 128, [0, 1]),
    (40, 200, [0, 1, 3, 4]),
    (55, 150, [0, 1, 3]),
    (90, 200, [0, 7, 3, 4]),
    (95, 193, [0, 1, 3, 9]),
]


def lines_of(rows: list[tuple[int, int, list[int]]]) -> list[dict[str, Any]]:
    keys = ("timestamp", "input_length", "hash_ids")
    return [dict(zip(keys, row, strict=True)) | {"output_length": 4} for row in rows]


def content_of(place: Path, lines: list[Any], *, encoding: dict[str, Any], **trace: Any) -> dict[str, Any]:
    place.mkdir(exist_ok=True, parents=True)
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (place / "trace.jsonl").write_text(text)
    top = {key: trace.pop(key) for key in ("rounds", "dp_ranks", "splits", "cache") if key in trace}
    content = {
        "name": "traced",
        "encoding": encoding,
        "cache": {"engine": "sglang", "page_size": 64},
        "requests": {"trace": {"path": "trace.jsonl", "block_size": 64} | trace, "task": {"name": "words"}},
    }
    return content | top


def traced(place: Path, lines: list[Any], **asked: Any) -> Workload:
    content = content_of(place, lines, **({"encoding": raw()} | asked))
    return build(spec_file.from_content(content, str(place / "spec.yaml")), place).workload


def plan_of(place: Path, lines: list[Any], **asked: Any) -> Plan:
    content = content_of(place, lines, **({"encoding": raw()} | asked))
    spec = spec_file.from_content(content, str(place / "spec.yaml"))
    return solve(spec, load_encoding(spec), lambda *_: 1)


def hits(lines: list[dict[str, Any]], size: int) -> list[int]:
    """Return the tokens that each row of a trace hits, from its hash ids alone, in whole blocks."""
    held: set[tuple[int, ...]] = set()
    found = []
    for line in lines:
        ids, length = line["hash_ids"], line["input_length"]
        whole = [n for n in range(1, len(ids) + 1) if n * size <= length - 1 and tuple(ids[:n]) in held]
        found.append(max(whole, default=0) * size)
        held |= {tuple(ids[:n]) for n in range(1, length // size + 1)}
    return found


@pytest.mark.parametrize("encoding", [raw(), chat()], ids=["raw", "chat"])
def test_two_rows_share_a_block_exactly_where_the_trace_says_so(encoding, tmp_path):
    lines = lines_of(SMALL)
    workload = traced(tmp_path, lines, encoding=encoding)
    assert verify(workload, full=True).findings == []
    rows = rows_of(workload)
    assert [row["prompt_len"] for row in rows] == [line["input_length"] for line in lines]
    assert [row["timestamp_ms"] for row in rows] == [line["timestamp"] for line in lines]
    prompts = [ids_of(workload, row) for row in rows]
    assert [len(ids) for ids in prompts] == [line["input_length"] for line in lines]
    head, tail = (len(workload.manifest.encoding[f"{end}_ids"]) for end in ("head", "tail"))
    for (one, ids), (two, others) in combinations(zip(lines, prompts, strict=True), 2):
        chain = shared(one["hash_ids"], two["hash_ids"])
        least = min(one["input_length"], two["input_length"])
        if one["hash_ids"] == two["hash_ids"] and one["input_length"] == two["input_length"]:
            assert shared(ids, others) == least
        else:  # a prompt's tail stands where its last block has words
            assert shared(ids, others) == max(head, min(chain * 64, least - tail))


def test_hit_tokens_are_those_of_the_hash_ids(tmp_path):
    lines = lines_of(SMALL)
    workload = traced(tmp_path, lines)
    assert [row["cached_len"] for row in rows_of(workload)] == hits(lines, 64)
    assert [found for _, found in replayed(workload)] == hits(lines, 64)
    assert hits(lines, 64) == [0, 128, 0, 64, 192, 128, 64, 192]


def test_the_head_of_a_real_trace_hits_what_its_hash_ids_say(tmp_path):
    """Under page 512, a block of the trace a page: every row, against a few lines that know only the ids."""
    lines = [json.loads(line) for line in SAMPLE.read_bytes().splitlines()]
    plan = plan_of(tmp_path, lines, block_size=512, cache={"engine": "sglang", "page_size": 512})
    rows = list(plan.rows("formal", 0))
    assert [row.prompt_len for row in rows] == [line["input_length"] for line in lines]
    assert [row.output_len for row in rows] == [line["output_length"] for line in lines]
    assert [row.cached_len for row in rows] == hits(lines, 512)
    assert sum(hits(lines, 512)) > 0
    assert plan.promises.aggregate == sum(hits(lines, 512)) / sum(line["input_length"] for line in lines)


def test_ever_so_many_blocks_are_told_apart(tmp_path):
    """More streams than a range of 2**18 made-up ids for each would leave room for."""
    lines = lines_of([(0, 65, [n, n]) for n in range(9_000)])
    rows = plan_of(tmp_path, lines, cache={"engine": "sglang", "page_size": 64}).rows("formal", 0)
    assert {row.cached_len for row in rows} == {0}


def test_the_real_rows_are_built_and_proved(tmp_path):
    lines = [json.loads(line) for line in SAMPLE.read_bytes().splitlines()]
    workload = traced(tmp_path, lines, block_size=512, limit=6, max_len=3000, dp_ranks=2)
    assert verify(workload, full=False).findings == []
    kept = [line["input_length"] for line in lines if line["input_length"] <= 3000][:6]
    assert sorted(row["prompt_len"] for row in rows_of(workload)) == sorted(kept)
    assert {row["split"] for row in rows_of(workload)} == {"formal"}


def test_limit_max_len_and_time_scale(tmp_path):
    rows = list(plan_of(tmp_path, lines_of(SMALL), limit=3, max_len=150, time_scale=0.5).rows("formal", 0))
    assert [row.prompt_len for row in rows] == [130, 64, 128]
    assert [row.timestamp_ms for row in rows] == [0, 5, 12]
    splits = {"formal": {"total": 2}}
    assert plan_of(tmp_path, lines_of(SMALL), splits=splits).count("formal", 0) == 2


def test_min_len_leaves_short_lines_out_and_counts_them(tmp_path):
    """A line of 3 tokens, shorter than the framing, refused a whole trace of good ones."""
    short = {"timestamp": 99, "input_length": 3, "output_length": 4, "hash_ids": [9]}
    lines, chat = [*lines_of(SMALL), short], {"name": "deepseek-v4"}
    with pytest.raises(WlgenError, match=r"Add `min_len: 5` to requests\.trace"):
        plan_of(tmp_path, lines, encoding=chat)
    plan = plan_of(tmp_path, lines, encoding=chat, min_len=5)
    assert len(list(plan.rows("formal", 0))) == len(lines) - 1
    assert plan.source.left_out == 1


def test_times_of_a_fraction_ask_for_their_unit(tmp_path):
    """61.114 s of Bailian's trace were read as 61 ms, unseen."""
    lines = [
        {"timestamp": at, "input_length": 60, "output_length": 4, "hash_ids": [0]} for at in (61.114, 62.5)
    ]
    with pytest.raises(WlgenError, match=r"found 61\.114 at trace\.jsonl:1\. Add `time_unit: s`"):
        plan_of(tmp_path, lines)

    def times(**trace: Any) -> list[Any]:
        return [row.timestamp_ms for row in plan_of(tmp_path, lines, **trace).rows("formal", 0)]

    assert times(time_unit="s") == times(time_scale=1000) == [61114, 62500]
    assert times(time_unit="ms") == [61, 62]
    assert times(time_unit="s", time_scale=0.5) == [30557, 31250]


def test_a_later_round_of_a_trace_shares_nothing_with_the_first(tmp_path):
    workload = traced(tmp_path, lines_of(SMALL), rounds=2)
    assert verify(workload, full=True).findings == []
    rows = rows_of(workload)
    for row in (row for row in rows if row["round"] == 0):
        for other in (other for other in rows if other["round"] == 1):
            assert shared(ids_of(workload, row), ids_of(workload, other)) == 0
    assert [found for _, found in replayed(workload)] == [row["cached_len"] for row in rows]
    assert [clashes(plan_of(tmp_path, lines_of(SMALL), rounds=rounds)) for rounds in (1, 2)] == [[], []]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            {"timestamp": 99, "input_length": 200, "output_length": 4, "hash_ids": [0, 1]},
            "expected 4 hash_ids",
        ),
        (
            {"timestamp": 99, "input_length": 64, "output_length": 4, "hash_ids": [0, 1]},
            "expected 1 hash_ids",
        ),
        (
            {"timestamp": 9, "input_length": 64, "output_length": 4, "hash_ids": [0]},
            "expected a timestamp of at least that of the line above it, found 9 below 95",
        ),
        (
            {"timestamp": 99, "output_length": 4, "hash_ids": [0]},
            "input_length: expected timestamp, input_length",
        ),
        ({"timestamp": 99, "input_length": 0, "output_length": 4, "hash_ids": []}, "input_length: expected"),
        ({"timestamp": 99, "input_length": 9, "output_length": 4, "hash_ids": ["a"]}, "hash_ids.0: expected"),
        ('{"timestamp": 99, "input_len', "expected a JSON object a line"),
        ("[1]", "expected timestamp, input_length"),
        ("", "expected a JSON object a line"),
    ],
)
def test_a_line_that_is_none_of_a_trace_is_refused_by_its_number(line, message, tmp_path):
    with pytest.raises(WlgenError) as failure:
        plan_of(tmp_path, [*lines_of(SMALL), line])
    (problem,) = failure.value.problems
    assert "trace.jsonl:9" in str(problem)
    assert message in str(problem)


def test_every_kind_of_bad_line_is_told_at_once_with_its_count(tmp_path):
    with pytest.raises(WlgenError) as failure:
        plan_of(tmp_path, ["x", *lines_of(SMALL), "y", "[1]"])
    no_json, more, no_line = map(str, failure.value.problems)
    assert "trace.jsonl:1: expected a JSON object a line" in no_json
    assert more == "and 1 more line like these"
    assert "trace.jsonl:11" in no_line


def test_a_trace_of_which_no_row_is_short_enough_is_refused(tmp_path):
    with pytest.raises(WlgenError, match="expected rows, found none"):
        plan_of(tmp_path, lines_of(SMALL), max_len=10)


def test_a_block_shared_that_should_not_be_is_found(tmp_path):
    workload = traced(tmp_path, lines_of(SMALL))
    rows = rows_of(workload)
    stranger = rows[2]
    text = (
        rows[0]["messages"][0]["content"][:200].rsplit(" ", 1)[0] + stranger["messages"][0]["content"][200:]
    )
    rows[2] = retold(workload, stranger, [{"role": "user", "content": text}])
    found = promises(verify(rewrite(workload, "formal/rank-00.jsonl", rows), full=True).findings)
    assert {id_ for id_, _ in found if id_.startswith("formal")}


def test_a_block_that_should_be_shared_and_is_not_is_found(tmp_path):
    workload = traced(tmp_path, lines_of(SMALL))
    rows = rows_of(workload)
    rows[1] = retold(workload, rows[1], rows[2]["messages"]) | {"prompt_len": 200}
    found = promises(verify(rewrite(workload, "formal/rank-00.jsonl", rows), full=True).findings)
    assert (rows[1]["id"], "shared_len") in found
