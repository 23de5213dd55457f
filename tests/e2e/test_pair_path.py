"""The path of warm-128k on a rehearsed pair: prepare, every formal row, and the prefill side's counters."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import orjson
import pytest
from kit.pairs import rehearsed_pair, routed
from typer.testing import CliRunner

from wlgen.cli import app
from wlgen.rehearse.settings import TimeModel
from wlgen.workload.opened import Workload, open_workload

SPEC = """
name: small-128k
random_seed: 20261018
encoding: {name: deepseek-v4}
cache: {rule: sglang, page_size: 64}
dp_ranks: 16
requests: {body_len: 512, output_len: 4, cached: {min_ratio: 0.75}}
splits: {seed: {per_rank: 1}, check: {per_rank: 1}, formal: {total: 64}}
"""
TIMES = TimeModel(prefill_rate=1e9, decode_rate=1e9, running=64)


def built(folder: Path, spec: Path) -> Workload:
    done = CliRunner().invoke(app, ["build", str(spec), "--output", str(folder)])
    assert done.exit_code == 0, done.output
    return open_workload(next(path.parent for path in folder.glob("*/manifest.json")))


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Workload:
    folder = tmp_path_factory.mktemp("small")
    (folder / "spec.yaml").write_text(SPEC)
    return built(folder, folder / "spec.yaml")


async def send_all(workload: Workload, url: str, *, both: bool) -> list[dict]:
    """Send the formal rows, 16 at a time, and return lines that the audit reads."""
    gate = asyncio.Semaphore(16)
    async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=64)) as client:

        async def send(row) -> dict:
            body = {
                "model": "rehearsal",
                "messages": [m._asdict() for m in row.messages],
                "max_tokens": row.output_len,
                "ignore_eos": True,
                "routed_dp_rank": row.dp_rank,
            }
            body |= {"disagg_prefill_dp_rank": row.dp_rank} if both else {}
            async with gate:
                answer = await client.post(f"{url}/v1/chat/completions", json=body)
            line = {"id": row.id, "text_sha256": row.text_sha256, "usage": answer.json()["usage"]}
            return line | {"success": answer.status_code == 200}

        return await asyncio.gather(*(send(row) for row in workload.rows(("formal",))))


def walked(workload: Workload, decode_ranks: int, tmp_path: Path) -> None:
    """Prepare, send and audit; each row and each prefill rank must be as planned."""
    way = "router" if decode_ranks == 16 else "route"
    with rehearsed_pair(workload, decode_ranks=decode_ranks, times=TIMES) as pair, routed(pair) as route:
        url = pair.url if way == "router" else route
        sides = ["--prefill", pair.prefill, "--decode", pair.decode, "--flush"]
        journal = ["--journal", str(tmp_path / "journal.jsonl")]
        done = CliRunner().invoke(app, ["prepare", str(workload.folder), "--url", url, *sides, *journal])
        assert done.exit_code == 0, done.output
        assert done.output.splitlines()[-1].startswith("PREPARED: ")
        before = pair.computed
        lines = asyncio.run(send_all(workload, url, both=way == "router"))
        after = pair.computed
    for rank in range(16):
        rows = list(workload.rows(("formal",), (rank,)))
        assert after[rank] - before[rank] == sum(row.prompt_len - row.cached_len for row in rows)
    results = tmp_path / "results.jsonl"
    results.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    done = CliRunner().invoke(app, ["audit", str(workload.folder), str(results), "--json"])
    found = orjson.loads(done.output)
    assert (done.exit_code, found["findings"]) == (0, [])


@pytest.mark.parametrize("decode_ranks", [16, 4])
def test_every_row_of_a_small_set_is_as_planned(small, tmp_path, decode_ranks):
    walked(small, decode_ranks, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("decode_ranks", [16, 4])
def test_every_row_of_warm_128k_is_as_planned(tmp_path_factory, tmp_path, decode_ranks):
    spec = Path(__file__).parents[2] / "specs" / "warm-128k.yaml"
    walked(built(tmp_path_factory.mktemp("warm"), spec), decode_ranks, tmp_path)


def test_the_command_serves_three_ports_until_it_is_interrupted(small, tmp_path):
    command = [sys.executable, "-m", "wlgen", "rehearse", "--pd", "--port", "0", "--decode-ranks", "4"]
    command += ["--decode-radix-cache", "--set", str(small.folder)]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        told: dict[str, str] = {}
        for line in process.stdout:
            if found := re.match(r"(prefill|decode|listening on):? (http://[\d.:]+)", line):
                told[found[1]] = found[2]
            if "listening on" in told:
                break
        pages = [httpx.get(f"{told[side]}/server_info", timeout=20).json() for side in ("prefill", "decode")]
        models = httpx.get(told["listening on"] + "/v1/models", timeout=20).status_code
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        process.wait(timeout=20)
    del tmp_path
    assert models == 200
    assert [page["dp_size"] for page in pages] == [16, 4]
    assert pages[1]["disable_radix_cache"] is False
    assert time.monotonic() - started < 10
