"""The first commands that a person meets: new, explain, schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wlgen import cli
from wlgen.errors import WlgenError
from wlgen.spec.file import load


def run(*arguments: str) -> str:
    done = CliRunner().invoke(cli.app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_new_writes_a_spec_whose_prompt_has_the_asked_length():
    run("new", "mine", "--hit", "0.8", "--prompt-len", "8192", "--engine", "vllm", "--page-size", "16")
    spec = load(Path("mine.yaml"))
    assert spec.requests[0].body_len == 8192 - 4  # the chat framing of DeepSeek V4
    assert (spec.cache.engine, spec.cache.page_size) == ("vllm", 16)
    assert float(spec.requests[0].cached.min_ratio) == 0.8
    with pytest.raises(WlgenError, match="expected no such file yet"):
        run("new", "mine")


def test_new_from_a_shipped_spec_keeps_what_it_does_not_ask():
    run("new", "mine", "--from", "warm-128k", "--hit", "0")
    spec = load(Path("mine.yaml"))
    assert (spec.cache.name, spec.dp_ranks, spec.requests[0].cached.max_tokens) == ("sglang-dsv4-npu", 16, 0)


@pytest.mark.parametrize("options", [["Mine"], ["mine", "--engine", "sglng"], ["mine", "--from", "nothing"]])
def test_new_writes_nothing_where_it_refuses(options):
    with pytest.raises(WlgenError):
        run("new", *options)
    assert list(Path().iterdir()) == []


def test_explain_fits_80_columns_and_tells_one_key_or_all():
    whole = run("explain").splitlines()
    assert max(map(len, whole)) <= 80
    one = run("explain", "requests.cached.tolerance")
    assert "default 0.005" in one
    assert one.splitlines() == whole[(start := whole.index("requests.cached.tolerance")) : start + 4]
    assert json.loads(run("explain", "tolerance", "--json"))["keys"][0]["example"] == "0.01"


def test_schema_is_json():
    assert json.loads(run("schema"))["$schema"].startswith("https://json-schema.org/")


TRACE = """
name: traced
encoding: {name: raw}
cache: {engine: vllm, page_size: 16}
requests: {trace: {path: t.jsonl, block_size: 16, UNIT}, task: {name: words}}
"""


def test_plan_says_over_how_long_a_trace_runs_and_what_it_leaves_out():
    """61.114 s read as 61 ms showed nowhere."""
    lines = [
        {"timestamp": at, "input_length": n, "output_length": 8, "hash_ids": [n]}
        for at, n in ((61.114, 16), (62.5, 15), (63.25, 14), (64.0, 3))
    ]
    Path("t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    Path("s.yaml").write_text(TRACE.replace("UNIT", "time_unit: s, min_len: 5"))
    expected = "times   3 rows within 2.136 s, 1.404 rows a second; 1 more left out by min_len or max_len"
    assert expected in run("plan", "s.yaml").splitlines()
    Path("s.yaml").write_text(TRACE.replace("UNIT", "time_unit: ms, min_len: 5"))
    assert "times   3 rows within 0.002 s, 1500 rows a second" in run("plan", "s.yaml")
