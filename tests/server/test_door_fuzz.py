"""A fuzzer of the door: whatever a server answers ends in a Reply or an error whose words are clean."""

# Run: pytest -m slow tests/server/test_door_fuzz.py. Seeds are fixed; what failed once is an example.

from __future__ import annotations

import asyncio
import json
import zlib
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st
from kit.odd_server import answer, odd_server

from wlgen.engines import engine
from wlgen.errors import WlgenError
from wlgen.server.api import AskedPrompt, Server
from wlgen.server.counters import look
from wlgen.server.door import without_key
from wlgen.server.pair import check_roles
from wlgen.server.replies import Reply, RequestError, Stream, read_answer, whole_answer

pytestmark = pytest.mark.slow
KEY = "sk-0123456789abcdef"
COUNTS = ["prompt_tokens", "completion_tokens", "cached_tokens", "prompt_tokens_details", "input_tokens"]
KEYS = [*COUNTS, "choices", "usage", "error", "object", "delta", "text", "message", "content", "id", "data"]
KEYS += ["finish_reason", "prompt_token_ids", "tokens", "loads", "dp_rank", "total_prefill_uncached_tokens"]
KEYS += ["disaggregation_mode", "dp_size", "max_model_len", "page_size", "success", "router", "prefill"]
words = st.one_of(st.text(max_size=20), st.sampled_from([KEY, "\x1b[2J", "m", "prefill", "decode"]))
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(10**30), 10**30), st.floats(), words
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=20,
)
objects = st.dictionaries(st.sampled_from(KEYS), trees, max_size=6)
answers = st.one_of(
    objects.map(lambda tree: json.dumps(tree).encode()),
    trees.map(lambda tree: json.dumps(tree).encode()),
    st.binary(max_size=60),
    objects.map(lambda tree: json.dumps(tree).encode()[:-3]),
)


def shown(failure: Exception) -> None:
    """Demand that a message is one printable line without the key."""
    said = str(failure)
    assert said.isprintable(), repr(said)
    assert without_key(said, KEY) == said


@seed(11)
@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
@given(answers)
@example(b'{"choices": [{}], "usage": {"prompt_tokens": 1e400}}')
@example(b'{"choices": [{"delta": []}]}')
@example(b'{"choices": [[]]}')
def test_any_content_is_a_reply_or_a_request_error(content):
    for read in (whole_answer, lambda c: read_answer(json.loads(c), 1.0) if c[:1] == b"{" else None):
        try:
            found: Any = read(content)
        except (RequestError, ValueError):
            continue
        if isinstance(found, Reply):
            counts = (found.prompt_tokens, found.cached_tokens, found.output_tokens)
            assert all(count is None or 0 <= count <= 2**54 for count in counts)


@seed(12)
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(answers, max_size=5))
def test_any_stream_is_a_reply_or_a_request_error(contents):
    seen = Stream()
    try:
        for content in contents:
            for line in (b"data: " + content).split(b"\n"):
                seen.take(line, 1.0)
        reply = seen.reply(1.0)
    except RequestError:
        return
    assert isinstance(reply, Reply)


heads = st.sampled_from(
    [
        "200 OK",
        "200 OK",
        "200 OK",
        "204 No Content",
        "302 Found",
        "400 Bad",
        "404 Not Found",
        "500 \x1b[31m",
        "999 x",
    ]
)
headers = st.sampled_from(
    [{}, {}, {"Location": f"http://{KEY}/"}, {"Content_Encoding": "gzip"}, {"Content_Encoding": "br"}]
)
raw = st.one_of(
    st.builds(lambda content, head, more: answer(content, head, **more), answers, heads, headers),
    answers.map(lambda content: answer(zlib.compress(content), Content_Encoding="deflate")),
    answers.map(lambda content: answer(content)[:-2]),
    st.binary(max_size=40),
)


@seed(13)
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(raw, st.sampled_from(["vllm", "sglang"]))
def test_any_bytes_on_the_wire_end_in_clean_words(wire, name):
    paths = (
        "/v1/models",
        "/v1/completions",
        "/tokenize",
        "/metrics",
        "/v1/loads",
        "/server_info",
        "/version",
    )
    paths += ("/model_info", "/generate", "/flush_cache", "/reset_prefix_cache")
    with odd_server(dict.fromkeys(paths, wire)) as url:
        asyncio.run(everything(url, name))


async def everything(url: str, name: str) -> None:
    async with AsyncExitStack() as stack:
        server = Server(url, engine=engine(name), model="m", api_key=KEY, timeout=5)
        await stack.enter_async_context(server)
        calls = [
            server.models,
            server.max_model_len,
            server.detect,
            server.page_size,
            lambda: server.flush(0),
            lambda: server.tokenize(AskedPrompt(text="a")),
            lambda: server.ask(AskedPrompt(text="a"), max_tokens=1, dp_rank=0, stream=False),
            lambda: server.ask(AskedPrompt(text="a"), max_tokens=1, dp_rank=0),
            lambda: server.generate([1], dp_rank=0),
            lambda: look(server),
            lambda: check_roles(server, 2),
        ]
        for call in calls:
            try:
                await call()
            except RequestError as failure:
                shown(failure)
            except WlgenError as failure:
                shown(failure)
