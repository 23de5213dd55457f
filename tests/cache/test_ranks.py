"""Simulate: a set or a file of requests through one cache a rank, what it reports, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import yaml
from kit import sets
from kit.rules import made_rule
from typer.testing import CliRunner

from wlgen.cache.ranks import RankCaches, Request
from wlgen.cli import app
from wlgen.engines import new_cache
from wlgen.errors import WlgenError
from wlgen.simulate.hits import Hits
from wlgen.spec import file as spec_file
from wlgen.workload.opened import open_workload

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.yaml"))
RULE = made_rule(name="sglang", engine="sglang", page_size=16, hit_quantum=16)


def caches(capacity: int | None = None) -> RankCaches:
    return RankCaches(lambda: new_cache(RULE, capacity), capacity=capacity)


def request(name: str, first: int, length: int, rank: int = 0, **others: Any) -> Request:
    """Return a request whose first `first` tokens are 0, 1, 2... and whose others are its own."""
    own = np.full(length - first, 1000 + sum(name.encode()), dtype=np.uint32)
    return Request(name, rank, np.concatenate((np.arange(first, dtype=np.uint32), own)), **others)


def simulated(*arguments: object) -> tuple[int, dict]:
    done = CliRunner().invoke(app, ["simulate", *map(str, arguments), "--json"])
    if isinstance(done.exception, WlgenError):
        raise done.exception
    return done.exit_code, json.loads(done.output)


def lines(path: Path, *rows: object) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def test_each_rank_has_a_cache_of_its_own():
    sent = [request("a", 64, 100, rank) for rank in (0, 1, 0, 1)]
    assert [hit.cached_len for hit in caches().replay(sent)] == [0, 0, 96, 96]


def test_requests_are_taken_one_by_one():
    """The core streams: the first result is there before the second request is asked for."""
    asked = []

    def sent():
        for name in ("a", "b"):
            asked.append(name)
            yield request(name, 64, 100)

    results = caches().replay(sent())
    next(results)
    assert asked == ["a"]


def test_unknown_outputs_take_room_and_are_never_hit():
    simulation = caches()
    list(simulation.replay([request("a", 64, 100, output_len=61)] * 2))
    assert simulation.held() == {0: 160 + 64}


def test_known_outputs_can_be_hit():
    answer = np.arange(500, 532, dtype=np.uint32)
    first = request("a", 64, 64, output_len=32, output_ids=answer)
    following = Request("b", 0, np.concatenate((first.ids, answer, answer)))
    assert [hit.cached_len for hit in caches().replay([first, following])] == [0, 80]


def test_a_capacity_evicts_and_says_whom_and_by_whom():
    simulation = caches(272)
    sent = [request(name, 0, 128) for name in ("aa", "bb", "cd")]
    assert [hit.cached_len for hit in simulation.replay(sent)] == [0, 0, 0]
    assert [(e.by, e.of, e.tokens) for e in simulation.evictions] == [("cd", "aa", 128)]
    simulation.check()


def test_a_capacity_below_one_prompt_is_refused():
    with pytest.raises(WlgenError, match=r"--capacity: expected a capacity of at least 160 tokens.*of a"):
        list(caches(128).replay([request("a", 0, 129, output_len=20)]))


def test_figures_are_of_ratios_that_occur():
    """The 1 % point and the median are requests' own ratios; the aggregate weighs by tokens."""
    hits = Hits()
    for cached, prompt in [(0, 100), *[(50, 100)] * 98, (900, 1000)]:
        hits.add(cached, prompt)
    found = hits.figures()
    assert (found.least, found.p1, found.p50) == (0.0, 0.0, 0.5)
    assert found.aggregate == (98 * 50 + 900) / (99 * 100 + 1000)
    assert found.mean == pytest.approx((98 * 0.5 + 0.9) / 100)
    assert (found.requests, found.least_len) == (100, 0)


def test_a_built_set_keeps_its_promises(warm_set, tmp_path):
    """By the set's own rule, seeds first: every row finds what it promises, to the token."""
    out = tmp_path / "hits.jsonl"
    code, found = simulated(warm_set.folder, "--out", out)
    assert (code, found["holds"], found["own_rule"]) == (0, True, True)
    only = found["passes"][0]
    assert (only["outside"], only["unpromised"]) == (None, 0)
    assert list(only["splits"]) == ["seed", "check", "formal"]
    assert list(only["ranks"]) == ["0", "1"]
    written = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    assert [list(row) for row in written] == [["id", "dp_rank", "prompt_len", "cached_len"]] * len(written)
    assert [(row["id"], row["cached_len"]) for row in written] == [
        (row.id, row.cached_len) for row in warm_set.rows()
    ]


def test_a_zero_set_finds_nothing_cached_once_and_everything_twice(zero_set):
    """Why a formal set is sent once: the second pass measures its own cache."""
    code, found = simulated(zero_set.folder, "--passes", "2")
    first, second = found["passes"]
    assert code == 0
    assert first["splits"]["formal"]["aggregate"] == 0
    assert second["splits"]["formal"]["least"] > 0.9
    assert second["outside"]["count"] == 8  # two checks and six formal rows


def test_without_seeds_the_first_row_of_a_prefix_falls_short(warm_set):
    code, found = simulated(warm_set.folder, "--skip-seeds")
    outside = found["passes"][0]["outside"]
    assert (code, found["holds"]) == (1, False)
    assert (outside["id"], outside["cached_len"]) == ("check-r00-000000", 0)


def test_a_full_seed_shows_why_the_default_is_short(tmp_path):
    """With a window, the first row after a full-length seed falls back, and the text says how far."""
    window = {"engine": "vllm", "page_size": 16, "sliding_window": 32}
    folder = sets_built(tmp_path, cache_rule=window)
    assert simulated(folder)[0] == 0
    code, found = simulated(folder, "--full-seeds")
    assert (code, found["passes"][0]["outside"]["cached_len"]) == (1, 0)
    text = CliRunner().invoke(app, ["simulate", str(folder), "--full-seeds"]).output
    assert "outside the bound: 2 requests, first check-r00-000000 on rank 0: 0 cached, at least " in text
    assert "window 32" in text


def sets_built(folder: Path, **changes: object) -> Path:
    from wlgen.build.build import build  # noqa: PLC0415 (one test builds)

    return build(sets.spec_of(**changes), folder).workload.folder


def shaped(folder: Path, requests: object, **changes: object) -> Path:
    """Build a small set of these requests; a key that is None is left out of its spec."""
    from wlgen.build.build import build  # noqa: PLC0415 (as above)

    content = sets.content_of() | {"requests": requests} | changes
    spec = spec_file.parse(json.dumps({k: v for k, v in content.items() if v is not None}), f"{folder}/spec")
    return build(spec, folder).workload.folder


REQUESTS = {"body_len": 320, "output_len": 8, "cached": {"min_ratio": 0.5}}
SHAPES = {
    "classes": (
        [
            {**REQUESTS, "name": "cold", "count": 4, "cached": {"max_tokens": 0}},
            {**REQUESTS, "name": "warm", "count": 4},
        ],
        {"order": "shuffled", "splits": {"formal": {"total": 8}}},
    ),
    "aggregate": ({**REQUESTS, "cached": {"aggregate": 0.5, "tolerance": 0.02}}, {}),
    "cold fill": (
        {
            **REQUESTS,
            "cached": {"cold": True},
            "prefix": {"shared_by": "group", "groups": 2, "tokens": 160},
        },
        {"splits": {"check": {"per_rank": 0}, "formal": {"total": 8}}},
    ),
    "conversations": (
        {
            **REQUESTS,
            "prefix": {"shared_by": "all", "message": "system"},
            "session": {"turns": 3, "user_len": 40, "assistant_len": 24},
        },
        {"splits": {"formal": {"total": 12}}},
    ),
    "a head of pages": (
        {**REQUESTS, "cached": {"max_tokens": 16}},
        {"cache": {"engine": "sglang", "page_size": 4}},
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_finds_what_its_rows_promise(tmp_path, shape):
    requests, changes = SHAPES[shape]
    code, found = simulated(shaped(tmp_path, requests, **changes))
    assert (code, found["passes"][0]["unpromised"], found["passes"][0]["outside"]) == (0, 0, None)


def test_the_first_row_of_a_cold_rank_finds_less_than_a_head_that_fills_pages(tmp_path):
    requests, changes = SHAPES["a head of pages"]
    out, folder = tmp_path / "hits.jsonl", shaped(tmp_path, requests, **changes)
    simulated(folder, "--out", out)
    written = [orjson.loads(line)["cached_len"] for line in out.read_bytes().splitlines()]
    promised = {row.cached_len for row in open_workload(folder).rows()}
    assert promised == {0, max(written)} != {0}
    assert written.count(0) == 2  # one a rank


def test_each_class_is_held_to_its_own_bound(tmp_path):
    requests, changes = SHAPES["classes"]
    code, found = simulated(shaped(tmp_path, requests, **changes), "--skip-seeds")
    outside = found["passes"][0]["outside"]
    assert (code, outside["cached_len"], outside["least"] > 0, outside["count"]) == (1, 0, True, 2)


def test_rounds_are_sent_one_after_the_other_checks_first(tmp_path):
    out, folder = tmp_path / "hits.jsonl", shaped(tmp_path, REQUESTS, rounds=2, dp_ranks=1)
    code, found = simulated(folder, "--out", out)
    sent = [orjson.loads(line)["id"] for line in out.read_bytes().splitlines()]
    assert (code, found["passes"][0]["unpromised"]) == (0, 0)
    later = [name for name in sent if name.endswith("-k1")]
    assert sent == ["seed-r00-000000", "check-r00-000000", *sent[2:8], "check-r00-000000-k1", *later[1:]]
    assert len(sent) == 1 + 2 * 7


def test_a_trace_finds_what_its_own_blocks_say_and_a_repeated_prompt_too(tmp_path):
    """Blocks of 16: the second row shares two, the third repeats the first, the fourth shares none."""
    blocks = [[1, 2, 3], [1, 2, 4], [1, 2, 3], [9]]
    lengths = [48, 40, 48, 16]
    trace = lines(
        tmp_path / "trace.jsonl",
        *(
            {"timestamp": n, "input_length": length, "output_length": 4, "hash_ids": ids}
            for n, (ids, length) in enumerate(zip(blocks, lengths, strict=True))
        ),
    )
    requests = {"trace": {"path": str(trace), "block_size": 16}}
    raw = {"encoding": sets.raw(), "dp_ranks": 1, "splits": None}
    out, folder = tmp_path / "hits.jsonl", shaped(tmp_path, requests, **raw)
    code, found = simulated(folder, "--out", out)
    assert (code, found["passes"][0]["unpromised"]) == (0, 0)
    assert [orjson.loads(line)["cached_len"] for line in out.read_bytes().splitlines()] == [0, 32, 32, 0]


@pytest.mark.slow
@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_each_shipped_spec_at_a_small_size_finds_what_its_rows_promise(tmp_path, path):
    content = yaml.safe_load(path.read_text()) | {"dp_ranks": 2}
    content["splits"]["formal"] = {"total": 48}
    for each in content["requests"] if isinstance(content["requests"], list) else []:
        each["count"] = 24
    code, found = simulated(shaped(tmp_path, **content))
    assert (code, found["passes"][0]["unpromised"]) == (0, 0)


@pytest.mark.parametrize("order", ["interleaved", "shuffled"])
def test_the_order_within_a_split_changes_no_promise(warm_set, tmp_path, order):
    out = tmp_path / "hits.jsonl"
    code, _ = simulated(warm_set.folder, "--order", order, "--order-seed", "3", "--out", out)
    written = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    promised = {row.id: row.cached_len for row in warm_set.rows()}
    assert code == 0
    assert {row["id"]: row["cached_len"] for row in written} == promised
    assert [row["id"] for row in written] != list(promised)
    splits = [row["id"].split("-")[0] for row in written]
    assert splits == sorted(splits, key=["seed", "check", "formal"].index)


def test_interleaved_takes_one_row_of_each_rank_in_turn(warm_set, tmp_path):
    out = tmp_path / "hits.jsonl"
    simulated(warm_set.folder, "--order", "interleaved", "--out", out)
    formal = [r for r in map(orjson.loads, out.read_bytes().splitlines()) if r["id"].startswith("formal")]
    assert [row["dp_rank"] for row in formal] == [0, 1] * 5


def test_a_shuffle_depends_on_its_seed_alone(warm_set, tmp_path):
    written = []
    for seed in (1, 1, 2):
        out = tmp_path / "hits.jsonl"
        simulated(warm_set.folder, "--order", "shuffled", "--order-seed", seed, "--out", out)
        written.append(out.read_bytes())
    assert written[0] == written[1] != written[2]


def test_unpinned_rows_miss_prefixes_that_other_ranks_hold(tmp_path):
    """With a prefix for each rank, the first row that lands elsewhere finds nothing."""
    folder = sets_built(tmp_path, prefix={"shared_by": "rank"}, dp_ranks=2)
    assert simulated(folder)[0] == 0
    code, found = simulated(folder, "--unpinned", "1")
    only = found["passes"][0]
    assert code == 1
    assert (only["splits"]["check"]["least"], only["outside"]["count"]) == (0, 2)


def test_another_rule_may_be_replayed(warm_set):
    _, found = simulated(warm_set.folder, "--rule", "sglang", "--page-size", "64")
    assert (found["rule"]["page_size"], found["own_rule"]) == (64, False)
    _, found = simulated(warm_set.folder, "--engine", "vllm", "--page-size", "16", "--speculative")
    assert (found["rule"]["engine"], found["rule"]["speculative"]) == ("vllm", True)


def test_the_working_set_and_evictions_are_told(warm_set):
    code, found = simulated(warm_set.folder)
    assert found["working_set"]["0"]["tokens"] == 16 * found["working_set"]["0"]["pages"] > 0
    held = found["working_set"]["0"]["tokens"]
    code, found = simulated(warm_set.folder, "--capacity", 400)
    assert code == 1
    assert held > found["working_set"]["0"]["tokens"]
    assert found["evicted"]["tokens"] > 0
    assert set(found["evicted"]["first"]) == {"dp_rank", "by", "of", "tokens"}
    text = CliRunner().invoke(app, ["simulate", str(warm_set.folder), "--capacity", "400"]).output
    assert "pushed out" in text
    assert "NOT MET" in text


def test_a_jsonl_file_of_ids_text_and_messages(tmp_path):
    """Text is encoded with the encoding asked for: a prompt as it stands, messages as the server renders."""
    words = "the quick brown fox jumps over the lazy dog " * 8
    messages = [{"role": "user", "content": words}]
    path = lines(
        tmp_path / "requests.jsonl",
        {"id": "ids", "dp_rank": 0, "input_ids": list(range(100)), "output_len": 40},
        {"id": "again", "dp_rank": 0, "prompt": list(range(100))},
        {"id": "text", "dp_rank": 0, "prompt": words},
        {"id": "chat", "dp_rank": 0, "messages": messages},
        {"id": "chat again", "dp_rank": 0, "messages": messages},
        {"id": "elsewhere", "dp_rank": 3, "messages": messages},
    )
    encoding = str(sets.family("chatml"))
    out = tmp_path / "hits.jsonl"
    common = ("--rule", "sglang", "--page-size", "16", "--encoding", encoding)
    assert simulated(path, *common, "--out", out)[0] == 0
    found = {row["id"]: row for row in map(orjson.loads, out.read_bytes().splitlines())}
    chat = found["chat"]["prompt_len"]
    assert found["ids"]["prompt_len"] == 100
    assert [found[name]["cached_len"] for name in ("ids", "again", "text", "chat", "elsewhere")] == [
        0,
        96,
        0,
        0,
        0,
    ]
    assert found["chat again"]["cached_len"] == (chat - 1) // 16 * 16
    assert chat > found["text"]["prompt_len"]


@pytest.mark.parametrize("order", ["interleaved", "shuffled", "file"])
def test_a_jsonl_file_in_any_order(tmp_path, order):
    rows = [{"id": f"{n}", "dp_rank": n // 3, "input_ids": [1] * 40} for n in range(6)]
    out = tmp_path / "hits.jsonl"
    common = ("--engine", "sglang", "--page-size", "16", "--order", order, "--out", out)
    simulated(lines(tmp_path / "requests.jsonl", *rows), *common)
    ids = [row["id"] for row in map(orjson.loads, out.read_bytes().splitlines())]
    assert sorted(ids) == list("012345")
    assert order != "interleaved" or ids == list("031425")
    assert order != "file" or ids == list("012345")


def test_unpinned_requests_of_a_file_go_to_ranks_in_turn(tmp_path):
    path = lines(tmp_path / "requests.jsonl", *[{"id": str(n), "input_ids": [1] * 40} for n in range(4)])
    out = tmp_path / "hits.jsonl"
    simulated(path, "--rule", "vllm", "--unpinned", 1, "--dp-ranks", 3, "--out", out)
    assert [r["dp_rank"] for r in map(orjson.loads, out.read_bytes().splitlines())] == [1, 2, 0, 1]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "a"}, "expected input_ids, messages or prompt, found the keys id"),
        ({}, "found no key"),
        ([1], "expected a JSON object, found list"),
        ({"input_ids": []}, "input_ids: expected token ids from 0 to 2147483647, at least one"),
        ({"input_ids": [1.5]}, "found [1.5]"),
        ({"input_ids": [[1], [2, 3]]}, "lists of lists"),
        ({"input_ids": [-1]}, "found -1"),
        ({"input_ids": [2**31]}, "found 2147483648"),
        ({"input_ids": [1], "dp_rank": 4}, "dp_rank: expected a rank from 0 to 3, found 4"),
        ({"input_ids": [1], "dp_rank": "0"}, "found '0'"),
        ({"input_ids": [1], "dp_rank": -1}, "found -1"),
        ({"input_ids": [1], "output_len": 0}, "output_len: expected at least 1 token, found 0"),
        ({"messages": [{"role": "user"}]}, "expected messages with a role and a content of text"),
    ],
)
def test_a_line_that_is_no_request_is_refused_with_its_place(tmp_path, row, said):
    path = lines(tmp_path / "requests.jsonl", {"input_ids": [1, 2], "dp_rank": 0}, row)
    with pytest.raises(WlgenError) as failure:
        simulated(path, "--rule", "sglang", "--dp-ranks", 4)
    assert f"{path}:2" in str(failure.value)
    assert said in str(failure.value)


def test_every_bad_line_is_told_at_once(tmp_path):
    path = tmp_path / "requests.jsonl"
    path.write_text('{"input_ids": [1]}\nnonsense\n{"id": 1}\n{"input_ids": [1], "dp_rank": -2}\n')
    with pytest.raises(WlgenError) as failure:
        simulated(path, "--rule", "sglang")
    assert [str(problem).split(" ")[0].rstrip(":")[-2:] for problem in failure.value.problems] == [
        ":2",
        ":3",
        ":4",
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--rule: expected --rule (one of sglang, "),
        (("--rule", "sglagn"), "Did you mean 'sglang'?"),
        (("--rule", "vllm", "--page-size", "0"), "page_size: expected at least 1, found 0"),
        (("--rule", "sglang-dsv4-npu", "--page-size", "64"), "128: SGLang forces it"),
        (("--rule", "sglang-dsv4-npu", "--hit-quantum", "64"), "unknown key 'hit_quantum'"),
        (("--engine", "trtllm", "--page-size", "16"), "engine: expected 'sglang' or 'vllm'"),
        (("--engine", "vllm"), "page_size"),
        (("--engine", "vllm", "--page-size", "16", "--hit-quantum", "24"), "a multiple of page_size 16"),
        (("--page-size", "16"), "--page-size: expected --rule or --engine beside the numbers"),
        (("--rule", "vllm", "--engine", "vllm"), "--rule or --engine, not both"),
        (("--rule", "vllm", "--unpinned", "0"), "--dp-ranks beside --unpinned"),
        (("--rule", "vllm", "--unpinned", "2", "--dp-ranks", "2"), "a rank from 0 to 1, found 2"),
        (("--rule", "vllm", "--capacity", "16"), "a capacity of at least 48 tokens"),
        (("--rule", "vllm", "--chunk", "8"), "--chunk: expected at least one page of 16 tokens"),
        (("--rule", "vllm", "--out", "/nowhere/at/all"), "--out /nowhere/at/all: expected a file"),
    ],
)
def test_options_that_make_no_replay_are_refused(tmp_path, options, said):
    path = lines(tmp_path / "requests.jsonl", {"input_ids": [1] * 40})
    with pytest.raises(WlgenError) as failure:
        simulated(path, *options)
    assert said in str(failure.value)


def test_an_empty_file_and_no_file_are_refused(tmp_path):
    with pytest.raises(WlgenError, match="at least one request, found none"):
        simulated(lines(tmp_path / "empty.jsonl"), "--rule", "sglang")
    with pytest.raises(WlgenError, match="a built set or a JSONL file, found No such file"):
        simulated(tmp_path / "absent.jsonl", "--rule", "sglang")
    with pytest.raises(WlgenError, match="a built set"):
        simulated(tmp_path, "--rule", "sglang")


def test_a_failed_replay_leaves_no_file(tmp_path):
    path = lines(tmp_path / "requests.jsonl", {"input_ids": [1]}, {})
    with pytest.raises(WlgenError):
        simulated(path, "--rule", "sglang", "--out", tmp_path / "hits.jsonl")
    assert [p.name for p in tmp_path.iterdir()] == ["requests.jsonl"]


def test_lines_without_a_rank_go_to_the_ranks_in_turn_and_the_report_says_so(tmp_path):
    """All on rank 0 they would find a prefix that seven other ranks do not hold: 3 of 4 hits, in silence."""
    path = lines(tmp_path / "requests.jsonl", *[{"input_ids": [*range(40), n]} for n in range(16)])
    code, found = simulated(path, "--rule", "vllm", "--dp-ranks", 8)
    assert code == 0
    assert found["reading"] == [
        "prompts: token ids",
        "ranks: no line names one, so they go to 8 ranks in turn, from rank 0",
    ]
    assert found["passes"][0]["splits"][""]["cached_tokens"] == 8 * 32
    assert len(found["passes"][0]["ranks"]) == 8
    _, one = simulated(path, "--rule", "vllm")
    assert "all go to one cache" in one["reading"][1]
    assert one["passes"][0]["splits"][""]["cached_tokens"] == 15 * 32


def test_lines_of_which_only_some_name_a_rank_are_refused(tmp_path):
    path = lines(tmp_path / "requests.jsonl", {"input_ids": [1], "dp_rank": 1}, {"input_ids": [1]})
    with pytest.raises(WlgenError, match=r":2: expected a dp_rank in each line or in none, found no rank"):
        simulated(path, "--rule", "sglang")


def test_one_mistake_of_many_lines_is_told_once(tmp_path):
    """Forty lines without a prompt, and one of another kind: two problems, not twenty and silence."""
    path = lines(tmp_path / "requests.jsonl", *[{"id": str(n)} for n in range(40)], {"input_ids": []})
    with pytest.raises(WlgenError) as failure:
        simulated(path, "--rule", "sglang")
    told = [str(problem) for problem in failure.value.problems]
    assert len(told) == 3
    assert told[1] == "and 39 more lines like these"
    assert ":41 input_ids" in told[2]


@pytest.mark.parametrize("text", [None, "chat", "raw"])
def test_how_a_text_was_read_is_said(tmp_path, text):
    words = "the quick brown fox jumps over the lazy dog " * 8
    path = lines(
        tmp_path / "requests.jsonl", {"prompt": words}, {"messages": [{"role": "user", "content": words}]}
    )
    options = () if text is None else ("--text", text)
    _, found = simulated(path, "--engine", "sglang", "--page-size", 16, *options)
    said = found["reading"][1] if text == "chat" else found["reading"][-2]
    assert ("raw text, no chat template" in said) == (text != "chat")
    assert (found["passes"][0]["splits"][""]["cached_tokens"] > 0) == (text == "chat")


def test_requests_in_flight_do_not_find_what_their_neighbours_compute(tmp_path):
    path = lines(
        tmp_path / "requests.jsonl", *[{"dp_rank": 0, "input_ids": [*range(40), n]} for n in range(6)]
    )
    hits = {}
    for together in (1, 2, 6):
        _, found = simulated(path, "--rule", "vllm", "--in-flight", together)
        hits[together] = found["passes"][0]["splits"][""]["cached_tokens"] // 32
    assert hits == {1: 5, 2: 4, 6: 0}


def test_a_set_in_flight_starts_from_its_seeds(tmp_path):
    """Seeds and checks end before the first formal row, so a warm set keeps its promise."""
    folder = sets_built(tmp_path, prefix={"shared_by": "rank"}, dp_ranks=2)
    code, found = simulated(folder, "--in-flight", 64)
    assert code == 0
    assert found["passes"][0]["unpromised"] == 0


@pytest.mark.parametrize(("engine", "retention", "code"), [("vllm", 0, 0), ("vllm", 64, 0), ("sglang", 0, 0)])
def test_a_retention_goes_with_an_engine_by_its_numbers(tmp_path, engine, retention, code):
    path = lines(tmp_path / "requests.jsonl", {"input_ids": [1]})
    numbers = ("--engine", engine, "--page-size", 16, "--hit-quantum", 32, "--retention", retention)
    assert simulated(path, *numbers)[0] == code


def test_a_retention_is_refused_where_the_engine_has_none(tmp_path):
    path = lines(tmp_path / "requests.jsonl", {"input_ids": [1]})
    with pytest.raises(WlgenError, match="expected no retention, or 0, found 64"):
        simulated(path, "--engine", "sglang", "--page-size", 16, "--retention", 64)
    with pytest.raises(WlgenError, match=r"multiple of hit_quantum 48, found 64\. The next one is 96"):
        simulated(path, "--engine", "vllm", "--page-size", 16, "--hit-quantum", 48, "--retention", 64)
