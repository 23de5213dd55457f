"""Readers against result files that the real clients wrote."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import pickle
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from kit.odd_records import FILES, SAMPLES

from wlgen import readers, registry
from wlgen.errors import Problem
from wlgen.readers import Reader, Result, Source

COUNTS = {"aisbench": 5, "sglang": 4, "vllm": 6, "aiperf": 6, "guidellm": 6, "inference-perf": 6}


def reader(client: str) -> Reader:
    return cast("Reader", registry.load(readers, client, place="test"))


def read(client: str, content: bytes) -> list[Result | Problem]:
    return list(reader(client).read(Source(name="file", content=io.BytesIO(content))))


def results(client: str, content: bytes) -> list[Result]:
    found = read(client, content)
    assert all(isinstance(item, Result) for item in found), found
    return cast("list[Result]", found)


def of_file(client: str, path: Path) -> list[Result]:
    def beside(relative: str) -> Path | None:
        return path.parent / relative if (path.parent / relative).exists() else None

    with path.open("rb") as content:
        found = list(reader(client).read(Source(name=path.name, content=content, beside=beside)))
    assert all(isinstance(item, Result) for item in found), found
    return cast("list[Result]", found)


def sample(client: str) -> bytes:
    return (SAMPLES / FILES[client]).read_bytes()


@pytest.mark.parametrize("client", [*FILES, "evalscope"])
def test_each_sample_is_claimed_by_its_own_reader_alone(client):
    path = FILES.get(client, "evalscope/benchmark_data.db")
    opening = (SAMPLES / path).read_bytes()[:4096]
    assert [name for name in registry.names(readers) if reader(name).claims(opening)] == [client]


@pytest.mark.parametrize("client", FILES)
def test_every_request_of_a_sample_is_read_with_its_counts_and_times(client):
    found = of_file(client, SAMPLES / FILES[client])
    assert len(found) == COUNTS[client]
    for result in found:
        assert result.success
        assert result.attempts == 1
        assert result.prompt_tokens
        assert result.output_tokens
        assert result.ttft is not None
        assert result.latency is not None
        assert 0 < result.ttft <= result.latency
        assert result.id or result.index is not None or result.text_sha256


@pytest.mark.parametrize("client", FILES)
def test_a_cut_file_gives_what_stands_before_the_cut_and_one_problem(client):
    content = sample(client)
    found = read(client, content[: len(content) * 7 // 10])
    assert isinstance(found[-1], Problem)
    assert "cut" in found[-1].found
    rest = found[:-1]
    assert all(isinstance(item, Result) for item in rest)
    if client not in ("sglang", "vllm"):  # those two write whole arrays, and no array is whole
        assert 1 <= len(rest) < COUNTS[client]


@pytest.mark.parametrize("client", [*FILES, "plain"])
@pytest.mark.parametrize("other", FILES)
def test_a_file_of_another_client_is_a_problem_and_no_traceback(client, other):
    if client == other:
        return
    found = read(client, sample(other))
    assert found
    assert not any(
        isinstance(item, Result) and item.id in (None, "") and item.index is None for item in found
    )
    if client != "plain":
        assert all(isinstance(item, Problem) for item in found)


@pytest.mark.parametrize("client", [*FILES, "plain"])
@pytest.mark.parametrize("junk", [b"\x00\xff\n", b"[]", b"{}", b"7\n", b'"text"\n', b"{]", b'{"a": [1,}\n'])
def test_junk_never_raises(client, junk):
    assert all(isinstance(item, Problem) for item in read(client, junk))


def test_a_file_is_read_as_it_streams():
    """The first result comes before the last byte is asked for."""
    record = orjson.loads(sample("aisbench").split(b"\n")[0])
    lines = io.BytesIO(orjson.dumps(record) + b"\n" + b"x" * (1 << 22))
    found = reader("aisbench").read(Source(name="file", content=lines))
    assert isinstance(next(iter(found)), Result)
    assert lines.tell() < 1 << 20


def test_aisbench_stock_keeps_no_cached_tokens_and_says_none():
    found = of_file("aisbench", SAMPLES / "aisbench/stock/rows5_details.jsonl")
    assert [result.cached_tokens for result in found] == [None] * 5
    assert [result.prompt_tokens for result in found] == [612, 616, 620, 624, 628]


def test_aisbench_plugin_results_join_by_index_and_by_the_hash_of_what_was_sent():
    sent = [orjson.loads(line) for line in (SAMPLES / "aisbench/rows5.jsonl").read_bytes().splitlines()]
    hashes = [hashlib.sha256(row["question"].encode()).hexdigest() for row in sent]
    found = of_file("aisbench", SAMPLES / "aisbench/plugin/rows5_details.jsonl")
    assert [result.index for result in found] == [0, 1, 2, 4, 3]  # order of completion
    assert [result.text_sha256 for result in found] == [hashes[result.index] for result in found]
    assert [result.cached_tokens for result in found] == [512, 0, 512, 512, 512]
    assert {result.finish_reason for result in found} == {"length"}


def test_aisbench_failure_has_its_start_alone_and_the_failed_file_repeats_nothing():
    found = of_file("aisbench", SAMPLES / "aisbench/fail/rows5_details.jsonl")
    failed = [result for result in found if not result.success]
    assert [(r.index, r.error, r.attempts, r.end) for r in failed] == [(2, "mock overload", 1, None)]
    assert failed[0].start is not None
    assert of_file("aisbench", SAMPLES / "aisbench/fail/rows5_failed.jsonl") == []


def test_aisbench_retry_shows_although_the_record_says_success():
    found = of_file("aisbench", SAMPLES / "aisbench/drop/rows5_details.jsonl")
    assert [(r.index, r.success, r.attempts) for r in found] == [
        (0, True, 1),
        (1, True, 1),
        (3, True, 1),
        (2, True, 2),
        (4, True, 2),
    ]


def test_aisbench_without_its_database_has_no_times(tmp_path):
    path = tmp_path / "rows5_details.jsonl"
    shutil.copy(SAMPLES / FILES["aisbench"], path)
    found = of_file("aisbench", path)
    assert [(r.start, r.end) for r in found] == [(None, None)] * 5


def test_aisbench_database_of_an_interrupted_run_is_found_under_tmp(tmp_path):
    folder = SAMPLES / "aisbench/plugin"
    shutil.copy(folder / "rows5_details.jsonl", tmp_path)
    (tmp_path / "tmp").mkdir()
    shutil.copy(folder / "db_data/fe1b214a.db", tmp_path / "tmp/tmp_fe1b214a.db")
    assert all(r.start for r in of_file("aisbench", tmp_path / "rows5_details.jsonl"))


def test_aisbench_broken_database_is_a_problem_beside_the_results(tmp_path):
    broken = tmp_path / "fe1b214a.db"
    broken.write_bytes(b"no database at all" * 100)
    source = Source(name="f", content=io.BytesIO(sample("aisbench")), beside=lambda _: broken)
    found = list(reader("aisbench").read(source))
    assert [isinstance(item, Result) for item in found] == [True] * 5 + [False]


def test_aisbench_takes_the_row_id_and_not_the_asked_rank_of_our_model_class():
    record = orjson.loads(sample("aisbench").split(b"\n")[0])
    record["extra_perf_data"] |= {"wl_id": "formal-r01-000003", "dp_rank": 1}
    (result,) = results("aisbench", orjson.dumps(record))
    assert (result.id, result.dp_rank) == ("formal-r01-000003", None)


def test_sglang_zero_is_a_miss_only_where_the_server_reported_for_others():
    """On the OpenAI routes 0 is the client's default and a miss has no details; /generate always reports."""
    run = json.loads(sample("sglang"))  # holds an Infinity
    run |= {"cached_tokens": [256, 0, 0, 256], "cached_tokens_details": [{"device": 256}, None, None, None]}
    assert [result.cached_tokens for result in results("sglang", orjson.dumps(run))] == [256, 0, 0, 256]
    run |= {"cached_tokens": [0] * 4, "cached_tokens_details": [None] * 4}
    assert [result.cached_tokens for result in results("sglang", orjson.dumps(run))] == [None] * 4
    found = results("sglang", orjson.dumps(run | {"backend": "sglang"}))
    assert [result.cached_tokens for result in found] == [0] * 4


def test_sglang_failed_request_keeps_its_place():
    run = json.loads(sample("sglang"))  # holds an Infinity
    run["errors"][1] = "Traceback\n  ...\nTimeoutError: late"
    found = results("sglang", orjson.dumps(run))
    assert [(r.index, r.success, r.error) for r in found[:2]] == [
        (0, True, ""),
        (1, False, "TimeoutError: late"),
    ]


def test_sglang_durations_have_no_start():
    (first, *_) = results("sglang", sample("sglang"))
    assert first.start is None
    assert first.latency == pytest.approx(0.002471832 + 1.63639997e-05)


def test_nan_and_infinity_which_python_clients_write_are_read_and_are_no_times():
    run = json.loads(sample("sglang")) | {"ttfts": [float("nan"), 0.1, 0.1, 0.1]}
    found = results("sglang", json.dumps(run).encode())
    assert [r.first_token for r in found] == [None, 0.1, 0.1, 0.1]


def test_sglang_runs_appended_to_one_file_are_read_apart():
    found = results("sglang", sample("sglang") * 2)
    assert [r.index for r in found] == [0, 1, 2, 3] * 2
    assert {r.place.split("[")[0] for r in found} == {"file:1", "file:2"}


@pytest.mark.parametrize(("client", "kind"), [("sglang", b"tag"), ("vllm", b"endpoint_type")])
def test_a_run_without_details_is_one_problem(client, kind):
    (problem,) = read(client, b'{"%b": null, "duration": 1.0, "completed": 4}\n' % kind)
    assert isinstance(problem, Problem)
    assert "detail" in problem.expected


def test_vllm_reports_lengths_and_times_and_nothing_of_the_cache():
    found = results("vllm", sample("vllm"))
    assert {(r.prompt_tokens, r.output_tokens, r.cached_tokens) for r in found} == {(320, 7, None)}
    assert found[0].start == pytest.approx(2163.64885971)
    assert found[0].latency == pytest.approx(0.21608381)


def test_aiperf_joins_by_session_and_absent_cache_tag_is_not_observed():
    record = orjson.loads(sample("aiperf").split(b"\n")[0])
    (result,) = results("aiperf", orjson.dumps(record))
    assert (result.id, result.cached_tokens, result.prompt_tokens) == ("s0", 4096, 4100)
    assert result.latency == pytest.approx(0.021294643, rel=1e-4)
    del record["metrics"]["usage_prompt_cache_read_tokens"]
    (result,) = results("aiperf", orjson.dumps(record))
    assert result.cached_tokens is None


def test_aiperf_error_and_cancellation_are_failures():
    record = orjson.loads(sample("aiperf").split(b"\n")[0])
    (failed,) = results("aiperf", orjson.dumps(record | {"error": {"code": 500, "message": "overloaded"}}))
    record["metadata"]["was_cancelled"] = True
    (cancelled,) = results("aiperf", orjson.dumps(record))
    assert [(r.success, r.error) for r in (failed, cancelled)] == [
        (False, "overloaded"),
        (False, "cancelled"),
    ]


def test_guidellm_joins_by_the_text_of_content_parts_and_keeps_failures():
    report = orjson.loads(sample("guidellm"))
    requests = report["benchmarks"][0]["requests"]
    text = orjson.loads(requests["successful"][0]["request_args"])["body"]["messages"][0]["content"][0][
        "text"
    ]
    requests["errored"] = [requests["successful"].pop()]
    requests["errored"][0]["info"]["error"] = "HTTP 500"
    requests["incomplete"] = [requests["successful"].pop()]
    found = results("guidellm", orjson.dumps(report))
    assert found[0].text_sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert (found[0].cached_tokens, found[1].cached_tokens) == (0, 3840)
    failures = [r.error for r in found if not r.success]
    assert sorted(failures) == ["HTTP 500", "incomplete"]


def test_inference_perf_takes_the_servers_usage_and_the_text_of_the_request():
    records = orjson.loads(sample("inference-perf"))
    records[1]["request"] = '{"messages": [{"role": "user", "content": "hello"}]}'
    records[2]["error"] = {"error_type": "Timeout", "error_msg": "late"}
    found = results("inference-perf", orjson.dumps(records))
    assert [r.cached_tokens for r in found[:2]] == [0, 3840]
    assert found[1].text_sha256 == hashlib.sha256(b"hello").hexdigest()
    assert (found[2].success, found[2].error, found[2].index) == (False, "late", 2)


def test_evalscope_drops_the_usage_of_a_stream_and_keeps_two_counts():
    found = of_file("evalscope", SAMPLES / "evalscope/benchmark_data.db")
    assert [(r.prompt_tokens, r.output_tokens, r.cached_tokens) for r in found] == [(260, 4, None)] * 2
    assert len({r.text_sha256 for r in found}) == 2
    assert found[0].latency == pytest.approx(0.0919821699)
    assert found[0].ttft == pytest.approx(0.0273114659)


def evalscope(folder: Path, events: object, success: int = 1) -> Result | Problem:
    """Return what is read of a copy of the sample whose first row has these events."""
    path = folder / "benchmark_data.db"
    shutil.copy(SAMPLES / "evalscope/benchmark_data.db", path)
    with closing(sqlite3.connect(path)) as store:
        encoded = base64.b64encode(pickle.dumps(events)).decode()
        store.execute(
            "UPDATE result SET success = ?, response_messages = ? WHERE rowid = 1", (success, encoded)
        )
        store.commit()
    source = Source(
        name=str(path), content=io.BytesIO(), beside=lambda name: path if name == path.name else None
    )
    return next(iter(reader("evalscope").read(source)))


def test_evalscope_keeps_the_usage_of_a_whole_response(tmp_path):
    usage = {"prompt_tokens": 260, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 144}}
    result = evalscope(tmp_path, [{"choices": [], "usage": usage}])
    assert (result.prompt_tokens, result.cached_tokens, result.success) == (260, 144, True)


def timed(folder: Path, sums: list[int], *, off: float = 0.0) -> list[Result]:
    """Read the sample with a timeline of these running sums beside it."""
    path = folder / "benchmark_data.db"
    shutil.copy(SAMPLES / "evalscope/benchmark_data.db", path)
    with closing(sqlite3.connect(path)) as store:
        ends = [end for (end,) in store.execute("SELECT completed_time FROM result ORDER BY rowid")]
        store.execute("UPDATE result SET success = 1")
        store.commit()
    points = [
        {"t": round(end - ends[0] + off, 6), "cum_cached_prompt": each}
        for end, each in zip(ends, sums, strict=False)
    ]
    content = {"wall_start": ends[0], "points": points}
    (folder / "workload_timeline.json").write_bytes(orjson.dumps(content))
    with path.open("rb") as opened:
        source = Source(name=str(path), content=opened, beside=lambda name: _existing(folder / name))
        return list(reader("evalscope").read(source))


def _existing(path: Path) -> Path | None:
    return path if path.exists() else None


def test_evalscopes_timeline_gives_each_row_of_a_stream_its_cached_tokens(tmp_path):
    count = len(of_file("evalscope", SAMPLES / "evalscope/benchmark_data.db"))
    sums = [128 * (number + 1) for number in range(count)]
    assert [result.cached_tokens for result in timed(tmp_path, sums)] == [128] * count
    assert [result.cached_tokens for result in timed(tmp_path, [0] * count)] == [
        None
    ] * count  # or not reported
    assert [result.cached_tokens for result in timed(tmp_path, sums[1:])] == [None] * count  # another run's
    assert [result.cached_tokens for result in timed(tmp_path, sums, off=0.5)] == [None] * count


def test_evalscope_failure_is_a_failure(tmp_path):
    result = evalscope(tmp_path, ["HTTP 503"], success=0)
    assert (result.success, result.error, result.end) == (False, "HTTP 503", None)


def test_a_text_that_is_no_utf_8_costs_evalscopes_other_rows_nothing(tmp_path):
    path = tmp_path / "benchmark_data.db"
    shutil.copy(SAMPLES / "evalscope/benchmark_data.db", path)
    with closing(sqlite3.connect(path)) as store:
        store.execute("UPDATE result SET request = CAST(x'ff' AS TEXT) WHERE rowid = 1")
        store.commit()
    source = Source(
        name=str(path), content=io.BytesIO(), beside=lambda name: path if name == path.name else None
    )
    problem, result = reader("evalscope").read(source)
    assert isinstance(problem, Problem)
    assert isinstance(result, Result)
    assert result.prompt_tokens == 260


class Hostile:
    """A pickle that would run a command when loaded without care."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("true",)


def test_evalscope_events_are_loaded_as_plain_values_or_not_at_all(tmp_path):
    result = evalscope(tmp_path, [Hostile()])
    assert isinstance(result, Result)
    assert [(garbled.key, garbled.found) for garbled in result.garbled] == [
        ("response_messages", "events that hold a posix.system")
    ]


def test_openai_batch_is_told_from_plain_lines():
    batch = b'{"id": "vllm-1", "custom_id": "row", "response": {"status_code": 200, "body": {}}}\n'
    assert [name for name in registry.names(readers) if reader(name).claims(batch)] == ["openai-batch"]
    line = b'{"id": "row", "usage": {}}\n'
    assert [name for name in registry.names(readers) if reader(name).claims(line)] == ["plain"]
    assert [r.id for r in results("openai-batch", batch)] == ["row"]
