"""No answer of a server is a bug of ours: what does not fit ends with its place, code 2, and in time."""

from __future__ import annotations

import asyncio
import base64
import gzip
import itertools
import json
import time
import zlib
from urllib.parse import quote

import pytest
from kit.odd_server import answer, odd_server
from kit.rehearsals import small_set
from typer.testing import CliRunner

from wlgen.cli import app
from wlgen.engines import engine
from wlgen.errors import WlgenError
from wlgen.server.api import AskedPrompt, Server, base_url
from wlgen.server.counters import look
from wlgen.server.door import LARGEST, Door, without_key
from wlgen.server.journal import JOURNAL
from wlgen.server.replies import RequestError

MODELS = answer({"object": "list", "data": [{"id": "m"}]})
GOOD = {
    "id": "1",
    "choices": [{"index": 0, "finish_reason": "length", "message": {"content": "a"}}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}},
}
HTML = b"<html><body>502 Bad Gateway</body></html>"
NESTED = b"[" * 100_000 + b"]" * 100_000
BOMB = gzip.compress(b" " * (LARGEST + 1))


def usage(**changes: object) -> dict:
    return GOOD | {"usage": GOOD["usage"] | changes}


CHAT = {
    "not JSON": answer(b"no json"),
    "empty": answer(b""),
    "HTML": answer(HTML, Content_Type="text/html"),
    "a list": answer([]),
    "a string": answer("usage"),
    "null": answer(None),
    "NaN": answer(b'{"choices":[{}],"usage":{"prompt_tokens":NaN}}'),
    "UTF-16": answer('{"choices": []}'.encode("utf-16")),
    "Latin-1": answer('{"choices": [{"message": {"content": "é"}}]}'.encode("latin-1")),
    "nested": answer(NESTED),
    "an error object": answer({"error": {"message": "no memory"}}),
    "an error string": answer({"error": "no memory"}),
    "an error's object": answer({"object": "error", "message": "no memory"}),
    "no choices": answer({"usage": GOOD["usage"]}),
    "choices null": answer(GOOD | {"choices": None}),
    "choices empty": answer(GOOD | {"choices": []}),
    "choices a string": answer(GOOD | {"choices": "x"}),
    "choices of null": answer(GOOD | {"choices": [None]}),
    "choices of lists": answer(GOOD | {"choices": [[[]]]}),
    "choices an object": answer(GOOD | {"choices": {"0": {}}}),
    "usage a string": answer(GOOD | {"usage": "12"}),
    "usage a list": answer(GOOD | {"usage": [9]}),
    "counts strings": answer(usage(prompt_tokens="9")),
    "counts negative": answer(usage(prompt_tokens=-9)),
    "counts true": answer(usage(prompt_tokens=True)),
    "counts fractions": answer(usage(prompt_tokens=9.5)),
    "counts lists": answer(usage(completion_tokens=[1])),
    "counts huge": answer(usage(prompt_tokens=10**30)),
    "counts infinite": answer(b'{"choices":[{}],"usage":{"prompt_tokens":1e400}}'),
    "cached negative": answer(usage(prompt_tokens_details={"cached_tokens": -1})),
    "cached a string": answer(usage(prompt_tokens_details={"cached_tokens": "0"})),
    "details a list": answer(usage(prompt_tokens_details=[0])),
    "ids strings": answer(GOOD | {"prompt_token_ids": ["a"]}),
    "ids nested": answer(GOOD | {"prompt_token_ids": [[1]]}),
    "ids huge": answer(GOOD | {"prompt_token_ids": [2**40]}),
    "ids an object": answer(GOOD | {"prompt_token_ids": {"0": 1}}),
    "no usage": answer({"choices": GOOD["choices"]}),
    "redirect": answer(b"", "302 Found", Location="http://elsewhere/"),
    "redirect nowhere": answer(b"", "301 Moved Permanently"),
    "204": b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
    "201": answer(GOOD, "201 Created"),
    "299": answer(GOOD, "299 Odd"),
    "418": answer(HTML, "418 I'm a teapot"),
    "500": answer({"error": {"message": {"deep": [1]}}}, "500 Internal Server Error"),
    "502 HTML": answer(HTML, "502 Bad Gateway"),
    "no answer": b"",
    "half a status": b"HTTP/1.1 2",
    "no HTTP": b"SSH-2.0-OpenSSH\r\n",
    "odd header": b"HTTP/1.1 200 OK\r\n\x00bad\r\n\r\n",
    "cut body": answer(GOOD)[:-20],
    "cut chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{}",
    "wrong length": b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}",
    "gzip bomb": answer(BOMB, Content_Encoding="gzip"),
    "cut gzip": answer(gzip.compress(HTML)[:-9], Content_Encoding="gzip"),
    "no gzip": answer(HTML, Content_Encoding="gzip"),
    "brotli": answer(HTML, Content_Encoding="br"),
}
OTHER = {
    "models HTML": {"/v1/models": answer(HTML)},
    "models null": {"/v1/models": answer({"data": None})},
    "models strings": {"/v1/models": answer({"data": ["m"]})},
    "models numbers": {"/v1/models": answer({"data": [{"id": 7}]})},
    "models escape": {"/v1/models": answer({"data": [{"id": "m\x1b[31m"}]})},
    "models nested": {"/v1/models": answer({"data": [{"id": {"a": []}}]})},
    "models none": {"/v1/models": answer({"data": []})},
    "models 404": {"/v1/models": answer(HTML, "404 Not Found")},
    "version HTML": {"/version": answer(HTML)},
    "version a list": {"/version": answer([1])},
    "info a list": {"/model_info": answer([1]), "/version": answer(HTML, "404 Not Found")},
    "tokens strings": {"/tokenize": answer({"tokens": ["a"]})},
    "tokens an object": {"/tokenize": answer({"tokens": {"a": 1}})},
    "tokens huge": {"/tokenize": answer({"tokens": [2**40, -1]})},
    "tokens null": {"/tokenize": answer({"tokens": None})},
    "tokenize HTML": {"/tokenize": answer(HTML)},
}


@pytest.fixture(scope="module")
def workload():
    return small_set(name="odd", engine="vllm")


def prepare(workload, script: dict) -> tuple[int, str]:
    (workload.folder / JOURNAL).unlink(missing_ok=True)
    whole = {"/version": answer({"version": "1"}), "/v1/models": MODELS, "/v1/chat/completions": answer(GOOD)}
    with odd_server(whole | script) as url:
        arguments = ["prepare", str(workload.folder), "--url", url, "--timeout", "5", "--quiet"]
        done = CliRunner().invoke(app, arguments)
    failure = done.exception
    assert isinstance(failure, WlgenError | SystemExit), repr(failure)
    return (2, str(failure)) if isinstance(failure, WlgenError) else (done.exit_code, done.output)


@pytest.mark.parametrize("name", CHAT)
def test_an_odd_answer_to_a_prompt_is_bad_input_with_its_place(workload, name):
    code, said = prepare(workload, {"/v1/chat/completions": CHAT[name]})
    assert code == 2, said
    assert said.startswith("http://127.0.0.1:")
    assert said.isprintable()


@pytest.mark.parametrize("name", OTHER)
def test_an_odd_page_is_bad_input(workload, name):
    code, said = prepare(workload, OTHER[name])
    assert code == 2, said
    assert said.isprintable()


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("counts strings", "/v1/chat/completions usage.prompt_tokens: '9'"),
        ("cached negative", "usage.prompt_tokens_details.cached_tokens: -1"),
        ("choices of null", "choices: [None]"),
        ("ids strings", "prompt_token_ids: ['a']"),
        ("HTML", "no JSON, 41 bytes that begin '<html>"),
        ("an error object", "no memory"),
        ("redirect", "HTTP 302 Found: redirect to http://elsewhere/"),
        ("gzip bomb", "more than 32 MiB"),
    ],
)
def test_the_message_says_where_and_what(workload, name, place):
    assert place in prepare(workload, {"/v1/chat/completions": CHAT[name]})[1]


def events(*lines: str) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + "".join(lines).encode()


def asked(url: str, *, stream: bool, timeout: float = 5.0, key: str | None = None):
    async def ask():
        async with Server(url, engine=engine("vllm"), model="m", api_key=key, timeout=timeout) as server:
            return await server.ask(AskedPrompt(text="a"), max_tokens=1, dp_rank=0, stream=stream)

    return asyncio.run(ask())


USAGE = 'data: {"choices": [], "usage": {"prompt_tokens": 9}}\n\n'
STREAMS = {
    "no JSON": ("garbled", "data: {half\n\n"),
    "a list": ("garbled", "data: [1]\n\n"),
    "a choice of null": ("garbled", 'data: {"choices": [null]}\n\n'),
    "a delta of words": ("garbled", 'data: {"choices": [{"delta": "a"}]}\n\n'),
    "usage of words": ("garbled", 'data: {"usage": "9"}\n\n'),
    "a count of words": ("garbled", 'data: {"usage": {"prompt_tokens": "9"}}\n\ndata: [DONE]\n\n'),
    "an error event": ("http", 'data: {"error": {"message": "out of memory"}}\n\ndata: [DONE]\n\n'),
    "cut": ("cut", USAGE),
    "empty": ("cut", ""),
    "no events": ("cut", "<html></html>"),
}


@pytest.mark.parametrize("name", STREAMS)
def test_an_odd_stream_is_named(name):
    trouble, lines = STREAMS[name]
    with odd_server({"/v1/completions": events(lines)}) as url, pytest.raises(RequestError) as failure:
        asked(url, stream=True)
    assert failure.value.trouble == trouble


def test_a_stream_with_pings_odd_line_ends_and_a_line_separator_in_a_text_is_read():
    lines = (
        ": ping\r\n\r\n",
        'data:{"choices": [{"delta": {"content": "a\u2028b"}}]}\r\n\r\n',
        USAGE,
        "data: [DONE]",
    )
    with odd_server({"/v1/completions": events(*lines)}) as url:
        reply = asked(url, stream=True)
    assert (reply.prompt_tokens, reply.cached_tokens) == (9, None)
    assert reply.first_token is not None


def drip(head: bytes, part: bytes):
    def parts():
        yield head
        for _ in itertools.count():
            time.sleep(0.05)
            yield part

    return parts


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"


@pytest.mark.parametrize(
    ("stream", "script"),
    [
        (False, drip(HEAD, b" ")),
        (True, drip(events(), b": ping\n\n")),
        (False, drip(b"HTTP/1.1 200 OK\r\n", b"a: b\r\n")),
    ],
    ids=["bytes", "pings", "headers"],
)
def test_the_timeout_bounds_the_whole_answer(stream, script):
    """Each byte or ping arrives in time, and the answer never does."""
    started = time.monotonic()
    with odd_server({"/v1/completions": script}) as url, pytest.raises(RequestError) as failure:
        asked(url, stream=stream, timeout=0.5)
    assert failure.value.trouble == "timeout"
    assert time.monotonic() - started < 3


def test_an_answer_without_end_is_bounded_before_decompression():
    big = drip(b"HTTP/1.1 200 OK\r\n\r\n", b" " * (1 << 25))
    with odd_server({"/v1/completions": big}) as url, pytest.raises(RequestError, match="more than 32 MiB"):
        asked(url, stream=False, timeout=60)


@pytest.mark.parametrize("code", [gzip.compress, zlib.compress])
def test_an_answer_compressed_though_not_asked_for_is_read(code):
    name = "gzip" if code is gzip.compress else "deflate"
    packed = answer(code(json.dumps(GOOD).encode()), Content_Encoding=name)
    with odd_server({"/v1/completions": packed}) as url:
        assert asked(url, stream=False).prompt_tokens == 9


@pytest.mark.parametrize(
    "page",
    [
        b"",
        HTML,
        b"vllm:request_success_total many\n",
        b"vllm:request_success_total NaN\n",
        b"a{ +Inf\n\xff\xfe 1",
    ],
)
def test_an_odd_page_of_counters_proves_nothing(page):
    with odd_server({"/metrics": answer(page)}) as url:
        assert looked(url, "vllm") is None


@pytest.mark.parametrize(
    "page",
    [
        [],
        {"loads": "x"},
        {"loads": [{"dp_rank": 0}]},
        {"loads": [{"dp_rank": 0, "total_prefill_uncached_tokens": "1"}]},
    ],
)
def test_an_odd_page_of_loads_proves_nothing(page):
    with odd_server({"/v1/loads": answer(page)}) as url:
        assert looked(url, "sglang") is None


def test_counts_prove_idleness_only_with_aborts_beside_requests():
    requests = b'sglang:num_requests_total{a="b"} 3.0\nsglang:num_requests_total{a="c"} 4.0\n'
    with odd_server({"/metrics": answer(requests)}) as url:
        assert looked(url, "sglang") is None
    announced = requests + b"# TYPE sglang:num_aborted_requests_total counter\n"
    with odd_server({"/metrics": answer(announced)}) as url:
        expected = {"num_requests_total": 7, "num_aborted_requests_total": 0}
        assert looked(url, "sglang") == {f"{url} sglang:{name}": n for name, n in expected.items()}
    loads = {"loads": [{"dp_rank": r, "total_prefill_uncached_tokens": 10 + r} for r in range(2)]}
    with odd_server({"/v1/loads": answer(loads)}) as url:
        assert looked(url, "sglang") == {"rank 0: computed tokens": 10, "rank 1: computed tokens": 11}


def looked(url: str, name: str):
    async def ask():
        async with Server(url, engine=engine(name)) as server:
            return await look(server)

    return asyncio.run(ask())


# Foreign words.

KEY = "s3/cr+et&'k\"ey\\="


@pytest.mark.parametrize(
    "spelled",
    [
        KEY,
        f"'{KEY}'",
        repr(KEY),
        quote(KEY),
        quote(KEY, safe="").lower(),
        "".join(f"%{ord(c):02x}" for c in KEY),
        "".join(f"\\u{ord(c):04x}" for c in KEY),
        "".join(f"&#{ord(c)};" for c in KEY),
        KEY.replace("&", "&amp;").replace('"', "&quot;").replace("'", "&#x27;"),
        base64.b64encode(KEY.encode()).decode(),
        base64.b64encode(f"Bearer {KEY}".encode()).decode(),
        base64.urlsafe_b64encode(f"u:{KEY}".encode()).decode(),
        KEY.encode().hex(),
        KEY[:5] + "\n  " + KEY[5:],
        "x" * 290 + KEY,
    ],
)
@pytest.mark.parametrize("status", ["500 Oops", "200 OK"])
def test_the_key_is_cut_out_however_it_is_spelled(spelled, status):
    said = answer({"error": {"message": f"got {spelled} here"}}, status)
    with odd_server({"/v1/completions": said}) as url, pytest.raises(RequestError) as failure:
        asked(url, stream=False, key=KEY)
    shown = failure.value.message
    assert without_key(shown, KEY) == shown
    assert spelled not in shown
    assert KEY[:5] not in shown


@pytest.mark.parametrize("body", [{"choices": KEY}, {"choices": [{}], "usage": {"prompt_tokens": KEY}}])
def test_the_key_is_cut_out_of_what_does_not_fit(body):
    with odd_server({"/v1/completions": answer(body)}) as url, pytest.raises(RequestError) as failure:
        asked(url, stream=False, key=KEY)
    assert "[API key]" in failure.value.message


def test_no_escape_sequence_reaches_a_message():
    said = answer({"error": "\x1b[2J\x1b]0;title\x07 \u202e gone \x9b31m"}, "500 \x1b[31mOops")
    with odd_server({"/v1/completions": said}) as url, pytest.raises(RequestError) as failure:
        asked(url, stream=False)
    assert failure.value.message.isprintable()
    assert "\\x1b[2J" in failure.value.message


@pytest.mark.parametrize("key", ["two\nlines", " spaced", "schlüssel", "nul\0"])
def test_a_key_that_no_header_may_hold_is_refused_unshown(key):
    with pytest.raises(WlgenError, match="WLGEN_API_KEY") as failure:
        Door("http://h", api_key=key, timeout=1)
    assert key not in str(failure.value)


@pytest.mark.parametrize("url", ["http://h:99999", "http://h:x", "http://[::1", "http://h\x1b", "http://h:0"])
def test_an_address_that_cannot_be_is_refused(url):
    with pytest.raises(WlgenError, match="--url") as failure:
        base_url(url)
    assert str(failure.value).isprintable()
