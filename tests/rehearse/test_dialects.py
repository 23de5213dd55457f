"""What a real SGLang 0.5.23 answered on a CPU, and where a rehearsal refuses what that one serves."""

from __future__ import annotations

import json
import threading
import time

import httpx
import orjson
import pytest
from kit.rehearsals import rehearsal

from wlgen import engines
from wlgen.rehearse.dialects import dialect
from wlgen.rehearse.settings import TimeModel
from wlgen.server.scrape import counts_of

LONG = "word " * 200


@pytest.fixture(scope="module")
def plain():
    """Serve SGLang as a default server is started: without --enable-metrics."""
    with rehearsal(enable_metrics=False, loads=True) as running:
        yield running


def chat(text: str, **fields: object) -> dict:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 2} | fields


@pytest.mark.parametrize("engine", [engine.name for engine in engines.every_engine()])
def test_every_engine_is_rehearsed_in_a_dialect_that_bears_its_facts(engine):
    """What prepare asks of a server stands at the same place in the rehearsal."""
    facts, spoken = engines.engine(engine), dialect(engine)
    assert facts.flush_page(1.0).partition("?")[0] == spoken.flush_page
    with rehearsal(engine=engine, loads=True) as running:
        pages = [*facts.own_pages, "/v1/models", *([facts.load_page] if facts.load_page else [])]
        assert {httpx.get(running.url + page).status_code for page in pages} == {200}
        found = [facts.read_page_size(httpx.get(running.url + p).content) for p in facts.page_size_pages]
        assert 64 in found
        running.chat("count me")
        page = httpx.get(running.url + "/metrics").text
        assert all(name in page for group in facts.idle_proofs for name in group)
        assert counts_of(page, url=running.url).total["requests"] == 1


def test_metrics_are_there_only_with_the_flag(plain):
    assert httpx.get(plain.url + "/metrics").status_code == 404
    with rehearsal(enable_metrics=True) as running:
        for _ in range(2):
            running.chat(LONG, routed_dp_rank=1)
        page = httpx.get(running.url + "/metrics").text
    assert 'sglang:num_requests_total{model_name="rehearsal"} 2.0' in page
    assert 'sglang:cached_tokens_total{model_name="rehearsal",cache_source="device"} 192.0' in page
    assert (
        'prefill_effective_tokens_total{model_name="rehearsal",dp_rank="1",mode="device_hit"} 192.0' in page
    )


def test_another_engines_pages_are_not_there(plain):
    assert plain.post("/reset_prefix_cache", {}).status_code == 404
    with rehearsal(engine="vllm") as running:
        assert running.post("/flush_cache", {}).status_code == 404
        assert httpx.get(running.url + "/v1/loads").status_code == 404


def test_loads_tell_what_each_rank_computed(plain):
    def computed() -> list[int]:
        return engines.engine("sglang").read_computed(httpx.get(plain.url + "/v1/loads").content)

    before = computed()
    prompt_len = plain.chat("loads " * 200, routed_dp_rank=2)["usage"]["prompt_tokens"]
    plain.chat("loads " * 200, routed_dp_rank=2)
    rest = prompt_len - (prompt_len - 1) // 64 * 64
    assert [b - a for a, b in zip(before, computed(), strict=True)] == [0, 0, prompt_len + rest]


def test_a_flush_with_a_timeout_waits_for_every_rank():
    with rehearsal(ranks=2, times=TimeModel(prefill_rate=100, decode_rate=1e9)) as running:
        body = {"prompt": [5] * 50, "max_tokens": 1, "routed_dp_rank": 1}
        asking = threading.Thread(target=running.post, args=("/v1/completions", body))
        asking.start()
        while not running.life.ranks[1].busy:
            time.sleep(0.01)
        assert running.post("/flush_cache?timeout=0.1", {}).status_code == 400
        assert running.post("/flush_cache?timeout=20", {}).status_code == 200
        assert not running.life.ranks[1].busy
        asking.join()


def test_a_miss_has_no_details(plain):
    first = plain.chat("miss " + LONG, return_cached_tokens_details=True, routed_dp_rank=0)
    assert "sglext" not in first


def test_ids_stand_in_the_choice_under_their_names(plain):
    choice = plain.chat("ids", return_token_ids=True)["choices"][0]
    assert "token_ids" not in choice
    assert len(choice["response_token_ids"]) == 1
    assert choice["prompt_token_ids"]
    streamed = plain.post("/v1/chat/completions", chat("ids", return_token_ids=True, stream=True))
    assert streamed.status_code == 400


def test_generate_refuses_in_its_own_shape(plain):
    body = {"input_ids": [9] * 20, "sampling_params": {"max_new_tokens": 1}, "routed_dp_rank": 9}
    refused = plain.post("/generate", body)
    assert refused.status_code == 400
    assert set(refused.json()["error"]) == {"message"}
    streamed = plain.post("/generate", body | {"stream": True})
    assert streamed.status_code == 200
    assert "error" in orjson.loads(streamed.text.split("\n")[0][6:])


def test_the_context_bounds_prompt_and_output():
    with rehearsal(max_model_len=40) as running:
        assert running.post("/v1/chat/completions", chat("short", max_tokens=9)).status_code == 200
        assert running.post("/v1/chat/completions", chat("short", max_tokens=39)).status_code == 400


@pytest.mark.parametrize("rank", [1, 1.0, True])
def test_a_rank_may_be_any_number_that_is_one(plain, rank):
    before = plain.life.ranks[1].requests
    plain.chat("pin", routed_dp_rank=rank)
    assert plain.life.ranks[1].requests == before + 1


def test_parts_of_a_content_are_joined_by_a_space(plain):
    parts = [{"type": "text", "text": part} for part in ("one", "two three")]
    joined = plain.chat("one two three", return_token_ids=True)
    assert (
        plain.chat(parts, return_token_ids=True)["choices"][0]["prompt_token_ids"]
        == joined["choices"][0]["prompt_token_ids"]
    )


def test_meta_info_tells_the_rank_and_the_tier(plain):
    body = {"input_ids": [9] * 150, "sampling_params": {"max_new_tokens": 1}, "routed_dp_rank": 2}
    first, again = (plain.post("/generate", body).json()["meta_info"] for _ in range(2))
    assert (first["dp_rank"], first["cached_tokens_details"]) == (2, None)
    assert again["cached_tokens_details"] == {"device": 128, "host": 0}
    said = plain.chat("meta", routed_dp_rank=1, return_meta_info=True)
    assert said["choices"][0]["meta_info"]["dp_rank"] == 1
    assert said["usage"]["reasoning_tokens"] == 0
    assert first["weight_version"] == "default"


def test_an_answer_says_which_weights_gave_it_and_at_which_stop_text_it_ended(plain):
    """SGLang 0.5.23 keeps both keys whether or not it has anything to say: no stop text, default weights."""
    said = plain.chat("whole")
    assert said["metadata"] == {"weight_version": "default"}
    assert said["choices"][0]["matched_stop"] is None
    prompt = {"prompt": [9] * 20, "max_tokens": 1}
    whole = plain.post("/v1/completions", prompt).json()
    assert (whole["metadata"], whole["choices"][0]["matched_stop"]) == (said["metadata"], None)
    streamed = plain.post("/v1/completions", prompt | {"stream": True}).text
    events = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    assert all("matched_stop" in choice for event in events for choice in event["choices"])
    assert not any("metadata" in event for event in events)


@pytest.mark.parametrize("fields", [{"n": 2}, {"max_tokens": 0}, {"max_tokens": None}])
def test_what_buys_nobody_anything_is_refused_with_a_word_of_the_real_server(plain, fields):
    refused = plain.post("/v1/chat/completions", chat("x", **fields))
    assert refused.status_code == 400
    assert "a real server" in refused.json()["message"]


def test_a_list_of_prompts_is_refused_with_a_word_of_the_real_server(plain):
    for prompts in (["one", "two"], [[1, 2], [3, 4]]):
        refused = plain.post("/v1/completions", {"prompt": prompts, "max_tokens": 1})
        assert refused.status_code == 400
        assert "a real server serves a list" in refused.json()["message"]
