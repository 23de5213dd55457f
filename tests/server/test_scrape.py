"""A scrape says what each server counts, and which flag is missing where it counts nothing."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kit.rehearsals import rehearsal, small_set

from wlgen import cli
from wlgen.errors import WlgenError
from wlgen.server.scrape import Address, counts_of, prepared, scrape, write_scrape
from wlgen.witnesses import counters

SGLANG = """\
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m",engine_type="prefill"} 2600.0
sglang:generation_tokens_total{model_name="m",engine_type="prefill"} 64.0
sglang:num_requests_total{model_name="m",engine_type="prefill"} 3.0
sglang:cached_tokens_total{model_name="m",cache_source="device"} 896.0
sglang:cached_tokens_total{model_name="m",cache_source="host"} 128.0
sglang:num_aborted_requests_total{model_name="a \\"b\\", c"} 1.0
sglang:prefill_effective_tokens_total{dp_rank="0",mode="input"} 1500.0
sglang:prefill_effective_tokens_total{dp_rank="1",mode="input"} 76.0
sglang:prefill_effective_tokens_total{dp_rank="1",mode="device_hit"} 896.0
sglang:prefill_effective_tokens_total{dp_rank="1",mode="host_hit"} 128.0
sglang:num_running_reqs{dp_rank="0"} 0.0
sglang:token_usage NaN
sglang:startup_time_seconds{phase="load_weight"} 0.04140395700233057
sglang:startup_time_seconds{phase="tokenizer_e2e"} 52.28871300400351
"""
VLLM = """\
vllm:prompt_tokens_total{engine="0",model_name="m"} 1000.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 500.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 640.0
vllm:prefix_cache_hits_total{engine="1",model_name="m"} 0.0
vllm:request_success_total{engine="0",finished_reason="length"} 2.0
vllm:request_success_total{engine="1",finished_reason="abort"} 1.0
vllm:num_preemptions_total{engine="0"} 0.0
vllm:num_preemptions_total{engine="1"} 0.0
vllm:spec_decode_num_drafts_total{engine="0"} 40.0
vllm:spec_decode_num_draft_tokens_total{engine="0"} 120.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 90.0
"""


@contextmanager
def pages(served):
    """Serve these pages (path to text); the value may be a function of how often it was asked."""
    asked = dict.fromkeys(served, 0)

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path not in served:
                self.send_error(404)
                return
            text = served[self.path]
            asked[self.path] += 1
            body = (text(asked[self.path]) if callable(text) else text).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_sglang_counts_requests_of_the_whole_server_and_work_by_rank_and_tier():
    found = counts_of(SGLANG, url="u", role="prefill")
    assert found.engine == "sglang"
    assert found.started == 52.28871300400351  # 0.5.23 has no process_start_time_seconds
    assert found.total["requests"] == 3
    assert (found.total["cached_tokens"], found.total["cached_device"], found.total["cached_host"]) == (
        1024,
        896,
        128,
    )
    assert (found.total["aborted"], found.total["retracted"]) == (1, 0)
    assert found.ranks[0]["computed"] == 1500
    assert found.ranks[1] == {"computed": 76, "hit_device": 896, "hit_host": 128}
    assert "token_usage" not in found.total


def test_vllm_counts_by_rank_and_counts_proposed_drafts():
    found = counts_of(VLLM, url="u")
    assert (found.engine, found.total["requests"], found.total["aborted"]) == ("vllm", 3, 1)
    assert (found.total["prompt_tokens"], found.total["cached_tokens"]) == (1500, 640)
    assert found.ranks[1]["cached_tokens"] == 0
    assert (found.total["drafts"], found.total["proposed_tokens"], found.total["accepted_tokens"]) == (
        40,
        120,
        90,
    )
    assert found.started is None
    assert counts_of(f"{VLLM}process_start_time_seconds 1764547200.5\n", url="u").started == 1764547200.5


def test_sglang_without_metrics_names_the_flag_and_a_router_asks_for_the_servers(tmp_path):
    info = json.dumps({"disaggregation_mode": "decode"})
    with pages({"/server_info": info}) as silent, pages({"/v1/models": "{}"}) as router:
        found = asyncio.run(scrape([Address(silent), Address(router)], patience=5))
    assert [server.role for server in found.servers] == ["decode", "plain"]
    assert "--enable-metrics" in found.servers[0].missing[0]
    assert "a router has none" in found.servers[1].missing[0]
    write_scrape(found, tmp_path / "c.json")
    assert json.loads((tmp_path / "c.json").read_bytes())["ok"] is False


def test_a_scrape_waits_until_two_readings_agree_and_nothing_runs():
    def moving(times):
        running, count = int(times < 4), min(times, 5)
        return f"sglang:num_requests_total {count}\nsglang:num_running_reqs {running}\n"

    with pages({"/metrics": moving}) as url:
        found = asyncio.run(scrape([Address(url)], patience=5))
        assert found.quiet
        assert found.servers[0].total["requests"] == 5
    with pages({"/metrics": lambda times: f"sglang:num_requests_total {times}\n"}) as url:
        assert not asyncio.run(scrape([Address(url)], patience=0.1)).quiet


def test_what_was_prepared_stands_in_the_scrape_that_a_run_starts_from(tmp_path):
    with pages({"/metrics": SGLANG}) as url:
        found = asyncio.run(scrape([Address(url, "prefill")], patience=5))
    known = prepared(found, found, set_sha256="s", served=[(512, 0), (512, 384)])
    write_scrape(known, tmp_path / "counters-before.json")
    with (tmp_path / "counters-before.json").open("rb") as content:
        (again,) = counters.read("c", content)
    assert again == known
    assert again.prepared.requests == 2
    assert (again.prepared.prompt_tokens, again.prepared.cached_tokens) == (1024, 384)


def test_the_command_scrapes_a_rehearsal_and_a_dead_server_is_bad_input(tmp_path, monkeypatch, capsys):
    def run(*arguments: object):
        monkeypatch.setattr(sys, "argv", ["wlgen", "counters", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return int(left.value.code or 0), capsys.readouterr()

    with rehearsal(small_set()) as server:
        row = next(small_set().rows(("seed",)))
        server.chat(row.messages[0].content, routed_dp_rank=0)
        code, streams = run("--url", server.url, "-o", tmp_path / "a.json")
    assert code == 0, streams.err
    assert "1 requests" in streams.out
    content = json.loads((tmp_path / "a.json").read_bytes())
    assert content["servers"][0]["total"]["prompt_tokens"] == row.prompt_len
    code, streams = run("--url", server.url, "-o", tmp_path / "b.json")
    assert code == 2
    assert "Start the server" in streams.err
    assert not (tmp_path / "b.json").exists()
    code, streams = run("-o", tmp_path / "b.json")
    assert code == 2


def test_a_url_with_a_secret_is_refused():
    with pytest.raises(WlgenError, match="no secret in the URL"):
        asyncio.run(scrape([Address("http://a:b@h:1")]))
