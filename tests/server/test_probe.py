"""A probe finds out what a server does, with throw-away prompts, and says what it could not tell."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from kit.rehearsals import rehearsal, small_set
from kit.rules import made_rule
from typer.testing import CliRunner

from wlgen.cache.rule import CacheRule
from wlgen.cli import app
from wlgen.errors import WlgenError
from wlgen.server.probe import probe_server


def rule(engine: str, page_size: int, quantum: int = 0, **more: object) -> CacheRule:
    return made_rule(
        name=engine, engine=engine, page_size=page_size, hit_quantum=quantum or page_size, **more
    )


RULES = [
    rule("sglang", 1),
    rule("sglang", 64),
    rule("sglang", 128, speculative=True),
    rule("sglang", 128, 2048, sliding_window=128),
    rule("vllm", 16),
    rule("vllm", 128, speculative=True),
    rule("vllm", 64, sliding_window=128),
    rule("vllm", 16, 256, sliding_window=128),
    rule("vllm", 64, 256, speculative=True),
]


def probed(running, *, engine=None, longest=20_000):
    return asyncio.run(probe_server(running.url, engine=engine, model=None, patience=30.0, longest=longest))


@pytest.mark.parametrize("served", RULES, ids=str)
def test_the_rule_it_names_predicts_what_the_server_does(served):
    with rehearsal(rule=served) as running:
        found = probed(running)
    named = found.rules[0]
    lengths = [(n, s) for n in (100, 513, 4098, 16389) for s in (64, 130, 512, 4097, 16000, 16389) if s <= n]
    assert [named.cached_len(s, n) for n, s in lengths] == [served.cached_len(s, n) for n, s in lengths]
    assert (named.page_size, found.page_size) == (served.page_size, served.page_size)
    assert (found.dp_ranks, found.separate) == (3, True)
    assert not found.unknown


@pytest.mark.parametrize(("window", "late"), [(0, False), (128, True)])
def test_it_tells_whether_the_first_sibling_falls_short(window, late):
    with rehearsal(rule=rule("vllm", 64, sliding_window=window)) as running:
        assert probed(running).kept_late is late


def test_it_sends_no_row_flushes_nothing_and_asks_for_one_token():
    workload = small_set(name="sglang")
    texts = {row.messages[-1].content for row in workload.rows()}
    with rehearsal(workload) as running:
        probed(running)
    assert not texts & {text for text in running.texts() if isinstance(text, str)}
    assert not [path for path, _, _ in running.requests if "flush" in path or "reset" in path]
    assert {body["max_tokens"] for _, _, body in running.requests if "prompt" in body} == {1}


def test_framing_and_thinking_are_counted():
    with rehearsal(rule=rule("vllm", 64)) as running:
        facts = "\n".join(probed(running).facts)
    assert "83 tokens stand around a user message" in facts
    assert "79 tokens" in facts
    assert '"chat_template_kwargs": {"thinking": false}' in facts
    with rehearsal(rule=rule("sglang", 64)) as running:
        facts = "\n".join(probed(running).facts)
    assert "framing: 4 tokens" in facts
    assert "thinking" not in facts


def test_sglang_without_a_cache_report_is_probed_on_its_own_route():
    with rehearsal(rule=rule("sglang", 64), faults=("no-cached",)) as running:
        found = probed(running)
    assert found.rules[0].hit_quantum == 64
    assert any("--enable-cache-report" in fact for fact in found.facts)


def test_a_server_that_reports_nothing_is_refused_with_the_flag():
    with (
        rehearsal(rule=rule("vllm", 64), faults=("no-cached",)) as running,
        pytest.raises(WlgenError, match="--enable-prompt-tokens-details"),
    ):
        probed(running)


def test_a_server_that_leaves_out_zeros_is_understood():
    with rehearsal(rule=rule("sglang", 64), faults=("omit-zero",)) as running:
        found = probed(running)
    assert found.rules[0].hit_quantum == 64
    assert any("left out if they are 0" in fact for fact in found.facts)


def test_what_cannot_be_told_is_said():
    with rehearsal(rule=rule("sglang", 64), faults=("ignore-pins",), ranks=1) as running:
        found = probed(running)
    assert found.dp_ranks is None
    assert any("pins prove nothing" in line for line in found.unknown)
    with rehearsal(rule=rule("vllm", 128, 16384)) as running:
        found = probed(running, longest=4000)
    assert found.rules == []
    assert any("finds nothing" in line for line in found.unknown)


def test_a_single_rank_is_a_rank():
    with rehearsal(rule=rule("vllm", 64), ranks=1) as running:
        assert probed(running).dp_ranks == 1


def test_prompts_stay_within_the_servers_length():
    with rehearsal(rule=rule("vllm", 128, 16384), max_model_len=3000) as running:
        assert any("finds nothing" in line for line in probed(running).unknown)


def test_a_server_that_fails_or_is_not_there_is_bad_input():
    with rehearsal(faults=("error=0.3",)) as running, pytest.raises(WlgenError, match="HTTP 500"):
        probed(running)
    with pytest.raises(WlgenError, match="Start the server"):
        asyncio.run(probe_server("http://127.0.0.1:9", engine=None, model=None, patience=5.0, longest=4000))


def test_the_command_prints_a_block_that_a_spec_takes_and_the_evidence():
    with rehearsal(rule=rule("vllm", 64, sliding_window=128)) as running:
        text = CliRunner().invoke(app, ["probe", "--url", running.url])
        found = orjson.loads(CliRunner().invoke(app, ["probe", "--url", running.url, "--json"]).output)
    assert text.exit_code == 0
    block = {
        "engine": "vllm",
        "page_size": 64,
        "hit_quantum": 64,
        "speculative": False,
        "sliding_window": 128,
    }
    written = "engine: vllm, page_size: 64, hit_quantum: 64, speculative: false, sliding_window: 128"
    assert f"cache: {{{written}}}" in text.output
    assert "evidence" in text.output
    assert "keep `seed: {shape: short}`" in text.output
    assert found["cache"] == block
    assert {"prompt_tokens", "shared_tokens", "cached_tokens"} == set(found["observations"][0])


def test_a_window_wider_than_six_quanta_is_seen():
    """Prompts of 105 tokens lie inside a window of 1024, so the server looked dense."""
    with rehearsal(rule=rule("vllm", 16, sliding_window=1024)) as running:
        found = probed(running)
        short = probed(running, longest=700)
    assert found.kept_late
    assert any("shape: short" in fact for fact in found.facts)
    assert short.kept_late is False
    assert any("a window of more than 350 tokens: raise --longest" in line for line in short.unknown)


@pytest.mark.parametrize(
    ("page_size", "quantum", "speculative", "window", "named"),
    [
        (16, 16, False, 128, 128),
        (16, 16, False, 1024, 1024),
        (16, 16, True, 1024, 1024),
        (128, 128, False, 4096, 4096),
        (16, 256, False, 1024, 1024),
        (64, 64, False, 64, 64),
        (16, 256, False, 128, 0),  # hits come in steps of 256, so a window of 128 is as good as none
    ],
)
def test_the_window_of_a_model_is_named_with_its_size(page_size, quantum, speculative, window, named):
    served = rule("vllm", page_size, quantum, speculative=speculative, sliding_window=window)
    with rehearsal(rule=served) as running:
        found = probed(running)
    assert found.rules[0].sliding_window == named
    assert any(fact.startswith("window: ") for fact in found.facts)
    assert not found.unknown


def test_a_window_that_no_model_is_known_to_have_is_said_and_not_named():
    with rehearsal(rule=rule("vllm", 16, sliding_window=1000)) as running:
        found = probed(running)
    assert found.rules[0].sliding_window == 0
    assert any("window: there is one, but none of 32, 64" in line for line in found.unknown)


def test_rules_that_fit_are_told_apart_by_a_prompt_or_named():
    """4096 repeated tokens fit any quantum that divides what was found; the next prompt tells."""
    with rehearsal(rule=rule("sglang", 128, speculative=True)) as running:
        found = probed(running)
    assert {(each.hit_quantum, each.speculative) for each in found.rules} == {(128, True)}


def test_where_nothing_is_found_the_command_says_so_with_its_exit_code():
    with rehearsal(rule=rule("vllm", 128, 16384)) as running:
        done = CliRunner().invoke(app, ["probe", "--url", running.url, "--longest", "4000"])
    assert done.exit_code == 1
    assert "unknown" in done.output
