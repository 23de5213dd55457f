"""Prepare, probe and `wlgen route` against a real SGLang 0.5.23 pair on a CPU, two ranks a side.

Run: lay the servers out with sglang-server/setup.sh FOLDER and start both sides with sglang-server/pair.sh
(prefill with `--dp-size 2`, decode too), and a router that passes bodies on, as mini_lb does. Then

    WLGEN_SGLANG_PAIR="ROUTER_URL PREFILL_URL DECODE_URL" pytest -m slow tests/servers/test_sglang_pair.py

WLGEN_SGLANG_PAIR_RADIX names the same three of a pair whose decode side has its radix cache on, and
WLGEN_SGLANG_ROUTER the address of sglang-router in front of the first pair. mini_lb may stand for ROUTER_URL:
python -m sglang_router.launch_router --pd-disaggregation --mini-lb --prefill URL PORT --decode URL.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from typer.testing import CliRunner

from wlgen.cli import app
from wlgen.errors import WlgenError
from wlgen.server.outcome import Outcome, Wanted
from wlgen.server.prepare import PrimedServer, prepare_set
from wlgen.workload.opened import Workload, open_workload

PAIR = os.environ.get("WLGEN_SGLANG_PAIR", "").split()
ROUTER = os.environ.get("WLGEN_SGLANG_ROUTER", "")
RADIX = os.environ.get("WLGEN_SGLANG_PAIR_RADIX", "").split()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (PAIR or RADIX), reason="WLGEN_SGLANG_PAIR names no running pair"),
]
plain = pytest.mark.skipif(not PAIR, reason="WLGEN_SGLANG_PAIR names no running pair")
radix = pytest.mark.skipif(not RADIX, reason="WLGEN_SGLANG_PAIR_RADIX names no running pair")
SPEC = """
name: {name}
random_seed: 9
encoding: {{name: {encoding}}}
cache: {{engine: sglang, page_size: 128}}
dp_ranks: 2
requests: {{body_len: 2048, output_len: 8, cached: {cached}{prefix}}}
splits: {{{seed}check: {{per_rank: 1}}, formal: {{total: 8}}}}
"""
SETS = {
    "warm": {"cached": "{min_ratio: 0.7}", "seed": "seed: {per_rank: 1}, ", "prefix": ""},
    "zero": {"cached": "{max_tokens: 0}", "seed": "", "prefix": ""},
    "nested": {
        "cached": "{min_ratio: 0.5}",
        "seed": "seed: {per_rank: 1}, ",
        "prefix": ", prefix: {levels: [{shared_by: all, pages: 4}, {shared_by: group, groups: 2}]}",
    },
    "ranked": {
        "cached": "{min_ratio: 0.7}",
        "seed": "seed: {per_rank: 1}, ",
        "prefix": ", prefix: {shared_by: rank}",
    },
}


@pytest.fixture(scope="module", params=SETS)
def workload(request, tmp_path_factory) -> Workload:
    return built(tmp_path_factory.mktemp("pair"), request.param)


def built(folder, name: str, *, encoding: str = "deepseek-v4") -> Workload:
    spec = folder / f"{name}.yaml"
    spec.write_text(SPEC.format(name=name, encoding=encoding, **SETS[name]))
    done = CliRunner().invoke(app, ["build", str(spec), "--output", str(folder)])
    assert done.exit_code == 0, done.output
    return open_workload(folder / name)


def prepared(workload: Workload, pair: list[str], url: str = "") -> Outcome:
    router, prefill, decode = pair
    target = PrimedServer(url=url or router, prefill=(prefill,), decode=(decode,), timeout=120)
    return asyncio.run(prepare_set(workload, target, Wanted(ranks=(0, 1), flush=True)))


def computed(prefill: str) -> list[int]:
    loads = httpx.get(f"{prefill}/v1/loads").json()["loads"]
    return [load["total_prefill_uncached_tokens"] for load in loads]


def sent(workload: Workload, url: str, *, both: bool) -> list[tuple[int, int]]:
    """Send the formal rows in turn; return each row's planned and reported cached tokens."""
    figures = []
    for row in workload.rows(("formal",)):
        body = {
            "model": "tiny-dsv4",
            "messages": [m._asdict() for m in row.messages],
            "max_tokens": row.output_len,
            "ignore_eos": True,
            "routed_dp_rank": row.dp_rank,
        }
        body |= {"disagg_prefill_dp_rank": row.dp_rank} if both else {}
        usage = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120).json()["usage"]
        assert usage["prompt_tokens"] == row.prompt_len
        figures.append((row.cached_len, usage["prompt_tokens_details"]["cached_tokens"]))
    return figures


@contextmanager
def routing(pair: list[str]) -> Iterator[str]:
    """Run `wlgen route` as a process until the block ends; give its URL."""
    command = [
        sys.executable,
        "-m",
        "wlgen",
        "route",
        "--port",
        "0",
        "--prefill",
        pair[1],
        "--decode",
        pair[2],
    ]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            line = next(line for line in process.stdout if line.startswith("listening on "))
            yield line.split()[-1]
        finally:
            process.terminate()


@plain
@pytest.mark.parametrize("command", ["prepare", "probe"])
@pytest.mark.parametrize("side", [1, 2], ids=["prefill", "decode"])
def test_a_side_given_as_url_is_refused_and_lives_on(workload, command, side):
    before = computed(PAIR[1])
    folder = [str(workload.folder)] if command == "prepare" else []
    done = CliRunner().invoke(app, [command, *folder, "--url", PAIR[side]])
    assert "server of a pair (2 ranks)" in str(done.exception)
    assert computed(PAIR[1]) == before
    assert all(httpx.get(f"{url}/server_info").status_code == 200 for url in PAIR[1:])


@plain
@pytest.mark.parametrize("way", ["router", "route"])
def test_each_row_is_as_planned_by_the_client_and_by_the_prefill_sides_counters(workload, way):
    with routing(PAIR) as route:
        url = PAIR[0] if way == "router" else route
        outcome = prepared(workload, PAIR, url)
        assert (outcome.prepared, outcome.findings, outcome.unproved) == (True, [], [])
        before = computed(PAIR[1])
        figures = sent(workload, url, both=way == "router")
    assert_planned(figures)
    after = computed(PAIR[1])
    for rank in range(2):
        rows = list(workload.rows(("formal",), (rank,)))
        assert after[rank] - before[rank] == sum(row.prompt_len - row.cached_len for row in rows)


def assert_planned(figures: list[tuple[int, int]]) -> None:
    assert figures == [(planned, planned) for planned, _ in figures]
    assert len(figures) == 8


@plain
def test_a_flush_waits_for_a_request_that_runs(tmp_path):
    """One answer of 400 tokens is under way on the pair while the preparation begins."""
    workload = built(tmp_path, "warm")
    body = {"model": "tiny-dsv4", "prompt": [7] * 300, "max_tokens": 400, "ignore_eos": True}
    body |= {"routed_dp_rank": 1, "disagg_prefill_dp_rank": 1}
    answers = []
    busy = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{PAIR[0]}/v1/completions", json=body, timeout=300))
    )
    busy.start()
    time.sleep(1)
    outcome = prepared(workload, PAIR)
    busy.join()
    assert outcome.prepared
    assert answers[0].status_code == 200


@plain
def test_the_pair_is_probed(tmp_path):
    del tmp_path
    sides = ["--prefill", PAIR[1], "--decode", PAIR[2]]
    done = CliRunner().invoke(app, ["probe", "--url", PAIR[0], *sides, "--longest", "4000"])
    assert done.exit_code == 0, done.output
    assert "ranks: 2, pinned" in done.output
    assert "page_size: 128" in done.output


@plain
@pytest.mark.skipif(not ROUTER, reason="WLGEN_SGLANG_ROUTER names no running router")
def test_sglang_router_is_refused_for_a_chat_and_serves_a_text(tmp_path):
    """It drops the rank on chat routes and keeps it on /v1/completions."""
    with pytest.raises(WlgenError, match=r"pins: .*Start `wlgen route"):
        prepared(built(tmp_path, "warm"), PAIR, ROUTER)
    text = tmp_path / "text"
    text.mkdir()
    outcome = prepared(built(text, "warm", encoding="raw"), PAIR, ROUTER)
    assert (outcome.prepared, outcome.findings) == (True, [])


@radix
def test_with_decodes_cache_on_the_prefill_sides_counters_are_the_figure(tmp_path):
    workload = built(tmp_path, "warm")
    outcome = prepared(workload, RADIX)
    assert outcome.prepared
    assert any("decode radix cache: ON" in proof for proof in outcome.proofs)
    # The prefill side alone is flushed: decode still claims the seeds, and prefill computes every token.
    httpx.post(f"{RADIX[1]}/flush_cache?timeout=30", timeout=60).raise_for_status()
    target = PrimedServer(url=RADIX[0], prefill=(RADIX[1],), decode=(RADIX[2],), timeout=120)
    wanted = Wanted(ranks=(0, 1), only="check", concurrency=1)
    checked = asyncio.run(prepare_set(workload, target, wanted))
    assert [f.id for f in checked.findings] == ["check-r00-000000"]
    assert checked.findings[0].got == 0
