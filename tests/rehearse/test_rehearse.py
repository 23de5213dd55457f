"""The rehearsal answers as the engines do, says that it is a simulation, and fails on demand."""

from __future__ import annotations

import threading
import time

import httpx
import numpy as np
import orjson
import pytest
from kit.rehearsals import encoding, rehearsal, small_set

from wlgen.build.recall import prompt_ids
from wlgen.encodings import Message
from wlgen.errors import WlgenError
from wlgen.rehearse.faults import Strikes, parse_faults
from wlgen.rehearse.known import KnownRows, text_key
from wlgen.rehearse.serve import listen
from wlgen.rehearse.settings import SIMULATION, TimeModel

SLOW_PREFILL = TimeModel(prefill_rate=100, decode_rate=1e9)


@pytest.fixture(scope="module")
def warm():
    return small_set(name="sglang")


@pytest.fixture(scope="module")
def plain():
    """Serve SGLang, 3 ranks, without a set, for tests that look at one answer."""
    with rehearsal() as running:
        yield running


@pytest.fixture(scope="module")
def vllm():
    with rehearsal(engine="vllm") as running:
        yield running


def events(answer: httpx.Response) -> list[dict]:
    lines = [line[6:] for line in answer.text.split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [orjson.loads(line) for line in lines[:-1]]


def stream(running, text: str, **fields: object) -> list[dict]:
    body = {"messages": [{"role": "user", "content": text}], "stream": True} | fields
    return events(running.post("/v1/chat/completions", body))


def cached(answer: dict) -> int:
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_each_row_of_a_set_finds_its_cached_len(warm):
    """Seeds, checks and formal rows, pinned and in order, get exactly what the plan promises."""
    with rehearsal(warm) as running:
        for row in warm.rows():
            content = row.messages[-1].content
            usage = running.chat(content, routed_dp_rank=row.dp_rank)["usage"]
            assert usage["prompt_tokens"] == row.prompt_len
            assert usage["prompt_tokens_details"]["cached_tokens"] == row.cached_len


def test_known_rows_are_found_by_their_text_alone(warm):
    with KnownRows() as known:
        for row, ids in prompt_ids(warm):
            known.add(row, ids)
        for row, ids in prompt_ids(warm):
            assert np.array_equal(known.find(row.messages), ids)
        changed = row.messages[-1].content + "!"
        assert known.find((Message("user", changed),)) is None


def test_no_two_conversations_look_alike():
    """The same characters cut into messages in another way are another conversation."""
    one = (Message("user", "ab"), Message("user", "c"))
    other = (Message("user", "a"), Message("user", "bc"))
    assert text_key(one) != text_key(other)


def test_a_stream_has_one_event_a_token_and_usage_only_when_asked(plain):
    said = stream(plain, "hello there", max_tokens=30, stream_options={"include_usage": True})
    pieces = [e["choices"][0]["delta"].get("content") for e in said if e["choices"]]
    assert len([p for p in pieces if p]) == 30
    assert said[-1]["usage"]["completion_tokens"] == 30
    assert said[-2]["choices"][0]["finish_reason"] == "length"
    assert all("usage" not in e for e in stream(plain, "hello there", max_tokens=2))


def test_sglangs_own_client_is_told_where_cached_tokens_were(plain):
    asked = {"return_cached_tokens_details": True, "routed_dp_rank": 0}
    text = "detail " * 200
    plain.chat(text, **asked)
    assert plain.chat(text, **asked)["sglext"] == {"cached_tokens_details": {"device": 192, "host": 0}}
    told = [e["sglext"] for e in stream(plain, text, max_tokens=1, **asked) if "sglext" in e]
    assert told == [{"cached_tokens_details": {"device": 192, "host": 0}}]
    assert "sglext" not in plain.chat(text)


def test_the_answers_text_encodes_to_exactly_max_tokens(plain):
    for tokens in (1, 7, 40):
        text = plain.chat("hello there", max_tokens=tokens)["choices"][0]["message"]["content"]
        assert len(encoding().encode(text)) == tokens


def test_completions_take_text_and_ids_and_share_one_cache_with_chat(plain):
    ids = [7] * 200
    first = plain.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "routed_dp_rank": 1}).json()
    again = plain.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "routed_dp_rank": 1}).json()
    assert (cached(first), cached(again)) == (0, 192)
    text = plain.post("/v1/completions", {"prompt": "one two three", "max_tokens": 2}).json()
    assert text["usage"]["prompt_tokens"] == len(encoding().encode("one two three"))
    assert text["object"] == "text_completion"


def test_generate_takes_input_ids_and_always_reports_cached_tokens(plain):
    body = {"input_ids": [9] * 150, "sampling_params": {"max_new_tokens": 3}, "routed_dp_rank": 2}
    plain.post("/generate", body)
    answer = plain.post("/generate", body).json()
    assert answer["meta_info"]["cached_tokens"] == 128
    assert len(answer["output_ids"]) == 3
    said = events(plain.post("/generate", body | {"stream": True}))
    assert said[-1]["text"] == answer["text"]


@pytest.mark.parametrize("shape", [{}, {"stream": True}])
def test_return_token_ids_returns_the_prompts_ids(vllm, shape):
    ids = encoding().prompt_ids((Message("user", "hello there"),))
    kwargs = {"chat_template_kwargs": {"thinking": False}}
    body = {"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 2} | kwargs | shape
    answer = vllm.post("/v1/chat/completions", body | {"return_token_ids": True})
    first = events(answer)[0] if shape else answer.json()
    assert first["prompt_token_ids"] == ids


def test_sglang_pins_by_body_and_its_header_beats_the_body(plain):
    def served(rank: int) -> int:
        return plain.life.ranks[rank].requests

    before = [served(rank) for rank in range(3)]
    plain.chat("pin", routed_dp_rank=2)
    plain.chat("pin", data_parallel_rank=2)
    body = {"messages": [{"role": "user", "content": "pin"}], "max_tokens": 1, "routed_dp_rank": 2}
    plain.post("/v1/chat/completions", body, **{"X-Data-Parallel-Rank": "1"})
    assert [served(rank) - before[rank] for rank in range(3)] == [0, 1, 2]
    assert plain.post("/v1/chat/completions", body | {"routed_dp_rank": 3}).status_code == 400
    header = {"X-Data-Parallel-Rank": "first"}
    assert plain.post("/v1/chat/completions", body, **header).status_code == 400


def test_vllm_pins_by_header_alone_and_ignores_one_that_is_no_integer(vllm):
    body = {"messages": [{"role": "user", "content": "pin"}], "max_tokens": 1}
    before = vllm.life.ranks[2].requests
    for _ in range(4):
        vllm.post("/v1/chat/completions", body, **{"X-data-parallel-rank": "2"})
    assert vllm.life.ranks[2].requests == before + 4
    assert vllm.post("/v1/chat/completions", body, **{"X-data-parallel-rank": "3"}).status_code == 400
    assert vllm.post("/v1/chat/completions", body, **{"X-data-parallel-rank": "x"}).status_code == 200
    assert vllm.post("/v1/chat/completions", body | {"routed_dp_rank": 99}).status_code == 200


def test_unpinned_requests_go_round_the_ranks():
    with rehearsal() as running:
        for _ in range(6):
            running.chat("unpinned")
        assert [rank.requests for rank in running.life.ranks] == [2, 2, 2]


def test_vllm_sends_unpinned_requests_to_the_least_loaded_rank():
    with rehearsal(engine="vllm", times=SLOW_PREFILL) as running:
        body = {"prompt": [5] * 60, "max_tokens": 1}
        threads = [threading.Thread(target=running.post, args=("/v1/completions", body)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [rank.requests for rank in running.life.ranks] == [1, 1, 1]


def test_a_flush_empties_every_rank(plain):
    for rank in range(3):
        plain.chat("word " * 200, routed_dp_rank=rank)
    assert plain.post("/flush_cache", {}).status_code == 200
    assert [cached(plain.chat("word " * 200, routed_dp_rank=rank)) for rank in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_busy_server_does_not_flush_and_says_so(engine):
    with rehearsal(engine=engine, ranks=1, times=SLOW_PREFILL) as running:
        asking = threading.Thread(target=running.post, args=("/v1/completions", {"prompt": [5] * 50}))
        asking.start()
        while not running.life.ranks[0].busy:
            time.sleep(0.01)
        if engine == "sglang":
            assert running.post("/flush_cache", {}).status_code == 400
            assert running.post("/flush_cache?timeout=20", {}).status_code == 200
        else:
            assert running.post("/reset_prefix_cache", {}).json()["success"] is False
        asking.join()
        if engine == "sglang":
            assert running.post("/flush_cache", {}).status_code == 200
        else:
            assert running.post("/reset_prefix_cache", {}).json()["success"] is True


def test_tokenize_gives_the_ids_of_texts_and_conversations(plain):
    messages = [{"role": "user", "content": "hello there"}]
    found = plain.post("/tokenize", {"messages": messages}).json()
    assert found["tokens"] == encoding().prompt_ids((Message("user", "hello there"),))
    assert plain.post("/tokenize", {"prompt": "hello there"}).json()["count"] == 2


def test_metrics_carry_the_engines_names_and_count_from_the_start(plain, vllm):
    for running, name in ((plain, "sglang:num_requests_total"), (vllm, "vllm:request_success_total")):
        running.chat("count me")
        page = httpx.get(running.url + "/metrics").text
        counted = sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name))
        assert counted == sum(rank.requests for rank in running.life.ranks)


def test_every_answer_says_that_it_is_a_simulation(plain):
    for path in ("/", "/health", "/metrics", "/v1/models", "/nowhere"):
        assert httpx.get(plain.url + path).headers["x-wlgen-simulation"] == SIMULATION
    assert "simulation" in httpx.get(plain.url + "/").text
    assert "simulation" in httpx.get(plain.url + "/metrics").text
    refused = plain.post("/v1/chat/completions", {})
    assert refused.headers["x-wlgen-simulation"] == SIMULATION
    assert refused.json()["simulation"] is True
    assert plain.chat("hello")["system_fingerprint"] == SIMULATION
    assert all(e["system_fingerprint"] == SIMULATION for e in stream(plain, "hello", max_tokens=3))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {"messages": "hello"},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": "x"}], "max_tokens": 0},
        {"messages": [{"role": "user", "content": "x"}], "max_tokens": "9"},
        {"messages": [{"role": "user", "content": "x"}], "n": 2},
        {"messages": [{"role": "user", "content": "x"}], "routed_dp_rank": "1"},
        {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1 << 20},
    ],
)
def test_a_request_it_does_not_understand_is_refused_with_the_reason(plain, body):
    answer = plain.post("/v1/chat/completions", body)
    assert answer.status_code == 400
    assert answer.json()["message"]


def test_text_parts_are_the_same_prompt_as_their_text(plain):
    parts = plain.chat([{"type": "text", "text": "one two three"}])
    assert parts["usage"]["prompt_tokens"] == plain.chat("one two three")["usage"]["prompt_tokens"]
    image = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}
    assert plain.post("/v1/chat/completions", image).status_code == 400


def test_vllm_frames_in_thinking_mode_unless_the_request_says_otherwise(vllm, plain):
    off = {"chat_template_kwargs": {"thinking": False}}
    prompt = len(encoding().prompt_ids((Message("user", "hello there"),)))
    assert vllm.chat("hello there", **off)["usage"]["prompt_tokens"] == prompt
    assert vllm.chat("hello there")["usage"]["prompt_tokens"] == prompt + 79
    assert plain.chat("hello there")["usage"]["prompt_tokens"] == prompt


def test_vllm_refuses_an_unknown_model(vllm):
    body = {"model": "other", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    assert vllm.post("/v1/chat/completions", body).status_code == 404


def test_a_key_is_asked_for_where_one_is_set():
    with rehearsal(api_key="s3cret") as running:
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        assert running.post("/v1/chat/completions", body).status_code == 401
        good = {"Authorization": "Bearer s3cret"}
        assert running.post("/v1/chat/completions", body, **good).status_code == 200
        assert "s3cret" not in httpx.get(running.url + "/").text


def test_fault_lose_cache_empties_one_rank_alone():
    with rehearsal(faults=("lose-cache=1",)) as running:
        found = [
            [cached(running.chat("word " * 100, routed_dp_rank=rank)) for rank in range(3)] for _ in range(2)
        ]
        assert found == [[0, 0, 0], [64, 0, 64]]


def test_fault_ignore_pins_leaves_the_rank_to_the_balancer():
    with rehearsal(faults=("ignore-pins",)) as running:
        for _ in range(3):
            running.chat("pinned", routed_dp_rank=99)
        assert [rank.requests for rank in running.life.ranks] == [1, 1, 1]


def test_faults_of_usage_leave_out_what_they_say():
    with rehearsal(faults=("no-usage=1",)) as running:
        assert "usage" not in running.chat("hello")
    with rehearsal(faults=("no-cached=1",)) as running:
        assert "prompt_tokens_details" not in running.chat("hello")["usage"]


def test_fault_error_strikes_at_its_rate():
    with rehearsal(faults=("error=0.5",)) as running:
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        found = [running.post("/v1/chat/completions", body).status_code for _ in range(4)]
        assert found == [200, 500, 200, 500]


@pytest.mark.parametrize("streams", [True, False])
def test_fault_cut_breaks_the_connection_before_the_end(streams):
    with rehearsal(faults=("cut=1",)) as running:
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 20, "stream": streams}
        answer = None
        try:
            answer = running.post("/v1/chat/completions", body)
        except httpx.RemoteProtocolError:
            assert streams
        assert streams == (answer is None)
        assert answer is None or answer.status_code == 500


def test_strikes_are_evenly_spaced():
    strikes = Strikes(0.25)
    assert [strikes.next() for _ in range(8)] == [False, False, False, True] * 2
    never, always = Strikes(0.0), Strikes(1.0)
    assert [never.next(), always.next()] == [False, True]


def test_every_fault_that_is_not_understood_is_named_at_once():
    with pytest.raises(WlgenError) as failure:
        parse_faults(["lose-cash=1", "cut=2", "restart", "error=0.1"])
    assert len(failure.value.problems) == 3
    assert "Did you mean 'lose-cache'?" in str(failure.value)


def test_a_port_that_is_taken_is_bad_input():
    with listen("127.0.0.1", 0) as taken, pytest.raises(WlgenError, match="a free address"):
        listen("127.0.0.1", taken.getsockname()[1])


def test_prefill_takes_time_for_what_is_not_cached():
    """300 tokens at 1000 tokens/s take 0.3 s at least."""
    with rehearsal(times=TimeModel(prefill_rate=1000, decode_rate=1e9)) as running:
        started = time.monotonic()
        running.post("/v1/completions", {"prompt": [3] * 300, "max_tokens": 1})
        assert time.monotonic() - started >= 0.3
