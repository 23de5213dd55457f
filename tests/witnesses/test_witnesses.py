"""What a server says of itself is parsed line by line, and nothing is guessed that it did not say."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

import numpy as np
import pytest

from wlgen import registry, witnesses
from wlgen.errors import Problem
from wlgen.witnesses import (
    PrefillBatch,
    Prepared,
    Scrape,
    ServedRequest,
    ServerCounts,
    sglang_log,
    sglang_requests,
)
from wlgen.witnesses import counters as scrape_file
from wlgen.witnesses._scrape_file import values

SERVER = ServerCounts(
    url="http://h:1",
    role="prefill",
    engine="sglang",
    started=12.5,
    total={"requests": 3, "prompt_tokens": 900, "cached_tokens": 512},
    ranks={0: {"hit_device": 512}},
)
SCRAPE = Scrape(
    time="2026-11-30T00:00:00+00:00",
    quiet=True,
    servers=(SERVER,),
    prepared=Prepared(set_sha256="a" * 64, flushed=(SERVER,), requests=1, prompt_tokens=300, cached_tokens=0),
)


def request_line(asked, **meta: Any) -> bytes:
    return json.dumps({"request_parameters": json.dumps(asked)} | meta).encode() + b"\n"


def read(module, content: bytes):
    return list(module.read("file", io.BytesIO(content)))


def test_every_kind_has_an_option_and_claims_its_own_files_only():
    samples = {
        "counters": b'{\n  "wlgen": "0", "command": "counters",',
        "sglang-requests": request_line({"rid": "a"}),
        "sglang-log": b"[2026-11-30 10:00:00 DP0 TP0] Prefill batch, #new-seq: 1, #new-token: 4, "
        b"#cached-token: 0",
    }
    assert set(samples) == set(registry.names(witnesses))
    for name in samples:
        module = registry.load(witnesses, name, place="test")
        assert module.OPTION in {"counters", "requests", "log"}
        claimed = [other for other, opening in samples.items() if module.claims(opening)]
        assert claimed == [name]


def test_a_scrape_file_gives_back_what_was_written():
    content = json.dumps({"command": "counters"} | values(SCRAPE)).encode()
    assert read(scrape_file, content) == [SCRAPE]


@pytest.mark.parametrize(
    "change",
    [
        {"servers": [{"url": "x"}]},
        {"servers": [{**values(SCRAPE)["servers"][0], "total": {"request": 1}}]},
        {"servers": [{**values(SCRAPE)["servers"][0], "total": {"requests": 1.5}}]},
        {"servers": [{**values(SCRAPE)["servers"][0], "role": "router"}]},
        {"prepared": {"requests": 1}},
    ],
)
def test_a_scrape_file_of_another_shape_is_a_problem(change):
    (problem,) = read(scrape_file, json.dumps(values(SCRAPE) | change).encode())
    assert isinstance(problem, Problem)


def test_a_request_is_known_by_its_row_id_else_by_what_was_sent():
    ids = [5, 70000, 3]
    of_ids = hashlib.sha256(np.array(ids, dtype="<u4").tobytes()).hexdigest()
    meta = {
        "prompt_tokens": 3,
        "cached_tokens": 2,
        "completion_tokens": 8,
        "spec_verify_ct": 4,
        "cached_tokens_details": {"device": 2, "host": 0},
        "dp_rank": 1,
        "finish_reason": {"type": "length", "length": 8},
    }
    by_id = {"text": 'a \\"rid\\": "formal-r09-000000" in the prompt', "rid": "formal-r00-000001"}
    found = read(
        sglang_requests,
        request_line(by_id, **meta)
        + b"\n"
        + request_line({"rid": "f3c", "input_ids": ids}, **meta)
        + request_line({"rid": "f3d", "text": "hello"})
        + request_line({"rid": "f3e"}, finish_reason={"type": "abort", "message": "gone"}),
    )
    assert found[0] == ServedRequest(
        place="file:1",
        id="formal-r00-000001",
        dp_rank=1,
        prompt_tokens=3,
        cached_tokens=2,
        output_tokens=8,
        tiers={"device": 2, "host": 0},
        verify_steps=4,
        finish_reason="length",
    )
    assert (found[1].id, found[1].prompt_sha256) == ("f3c", of_ids)
    assert found[2].text_sha256 == hashlib.sha256(b"hello").hexdigest()
    assert (found[2].cached_tokens, found[2].dp_rank) == (None, None)
    assert (found[3].success, found[3].error) == (False, "gone")


def test_a_cut_line_of_a_request_file_is_a_problem_and_the_rest_is_read():
    found = read(sglang_requests, request_line({"rid": "a"})[:-9] + b"\n" + request_line({"rid": "b"}))
    assert isinstance(found[0], Problem)
    assert found[0].place == "file:1"
    assert found[1].id == "b"


def test_a_log_gives_each_batch_with_its_rank():
    log = b"""[2026-11-30 11:56:20] server_args=ServerArgs(model_path='x')
[2026-11-30 11:56:24 DP3 TP3] Prefill batch, #new-seq: 2, #new-token: 8192, #cached-token: 14848, usage: 0
[2026-11-30 11:56:25] Prefill batch. #new-seq: 1, #new-token: 4, #cached-token: 0, token usage: 0.05
[2026-11-30 11:56:26 DP0] Decode batch, #running-req: 1
[2026-11-30 11:56:27 DP0] Prefill batch, #new-seq: 1, #new-tok
"""
    first, second, cut = read(sglang_log, log)
    assert first == PrefillBatch(place="file:2", dp_rank=3, computed=8192, cached=14848)
    assert (second.dp_rank, second.computed, second.cached) == (None, 4, 0)
    assert isinstance(cut, Problem)
