"""Prepare, probe and audit against a real vLLM server on the CPU, with tiny models of random weights.

Run: tests/servers/setup_vllm.sh FOLDER, then WLGEN_VLLM=FOLDER pytest -m slow tests/servers
A server takes one to three minutes to start and under 6 GB; one runs at a time.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from kit import families
from kit.cards import block, shell
from tokenizers import Tokenizer
from typer.testing import CliRunner

from wlgen.cli import app
from wlgen.errors import WlgenError
from wlgen.server.preparation import Outcome, Wanted
from wlgen.server.prepare import PrimedServer, prepare_set
from wlgen.server.scrape import COUNTERS_BEFORE
from wlgen.workload.opened import Workload, open_workload
from wlgen.workload.rows import Row
from wlgen.workload.splits import Split

VLLM = os.environ.get("WLGEN_VLLM", "")
CLIENTS = os.environ.get("WLGEN_CLIENTS", "")
BENCH = f"{CLIENTS}/vllm" if Path(CLIENTS, "vllm").is_dir() and CLIENTS else ""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not VLLM, reason="WLGEN_VLLM names no folder that setup_vllm.sh made"),
]
START_SECONDS = 600
COMMON = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 8192,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
DENSE = COMMON | {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}
WINDOW = COMMON | {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "num_hidden_layers": 4,
    "rms_norm_eps": 1e-6,
    "rope_local_base_freq": 10000.0,
    "query_pre_attn_scalar": 32,
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}


def model(folder: Path, config: dict[str, Any]) -> Path:
    """Write a model without weights: vLLM fills it with random ones."""
    folder.mkdir()
    families.chatml(folder)
    vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": vocabulary}))
    return folder


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """Run a real server until the block ends; give its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [f"{VLLM}/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--served-model-name", "tiny", "--load-format", "dummy", "--dtype", "float32"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "8192", "--enforce-eager"]
    environment = os.environ | {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen([*command, *options], env=environment, stdout=log, stderr=log)
        try:
            _wait(process, f"http://127.0.0.1:{port}", folder / "server.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=60)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(1)
    pytest.fail(f"the server did not start:\n{log.read_text()[-3000:]}")


def built(
    folder: Path, name: str, tokenizer: Path, cache: str, *, ranks: int, shape: str = "short"
) -> Workload:
    spec = folder / f"{name}.yaml"
    spec.write_text(f"""
name: {name}
random_seed: 3
encoding: {{path: {tokenizer}}}
cache: {{rule: vllm, {cache}}}
dp_ranks: {ranks}
requests: {{body_len: 2000, output_len: 16, cached: {{min_ratio: 0.75}}}}
splits:
  seed: {{per_rank: 1, shape: {shape}}}
  check: {{per_rank: 2}}
  formal: {{total: {4 * ranks}}}
""")
    done = CliRunner().invoke(app, ["build", str(spec), "--output", str(folder)])
    assert done.exit_code == 0, done.output
    return open_workload(folder / name)


def prepared(workload: Workload, url: str) -> Outcome:
    ranks = tuple(range(workload.manifest.dp_ranks))
    return asyncio.run(prepare_set(workload, PrimedServer(url=url), Wanted(ranks=ranks)))


def sent(row: Row, url: str) -> dict[str, Any]:
    """Send a row as a small client does, and return the server's usage."""
    body = {
        "model": "tiny",
        "messages": [m._asdict() for m in row.messages],
        "max_tokens": row.output_len,
        "ignore_eos": True,
    }
    pin = {"X-data-parallel-rank": str(row.dp_rank)}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers=pin, timeout=60)
    usage: dict[str, Any] = answer.json()["usage"]
    return usage


def audited(workload: Workload, url: str) -> dict[str, Any]:
    """Send the formal rows as a small client does, and audit what the server said of them."""
    results = workload.folder.parent / f"{workload.manifest.name}.results.jsonl"
    with results.open("wb") as lines:
        for row in workload.rows(("formal",)):
            lines.write(orjson.dumps({"id": row.id, "usage": sent(row, url)}) + b"\n")
    done = CliRunner().invoke(app, ["audit", str(workload.folder), str(results), "--json"])
    return orjson.loads(done.output) | {"exit": done.exit_code}


def probed(url: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["probe", "--url", url, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = orjson.loads(done.output)
    return found


def test_two_ranks_of_128_token_blocks_keep_every_promise(tmp_path):
    folder = model(tmp_path / "model", DENSE)
    workload = built(tmp_path, "dense", folder, "page_size: 128", ranks=2)
    with serving(
        folder, "--block-size", "128", "--data-parallel-size", "2", "--enable-prompt-tokens-details"
    ) as url:
        outcome = prepared(workload, url)
        assert outcome.prepared
        assert any("pinning: proved" in proof for proof in outcome.proofs)
        assert any("framing: proved" in proof for proof in outcome.proofs)
        assert (
            prepared(workload, url).steps[Split.SEED].requests == 0
        )  # it goes on with the seeds that are held
        answer = audited(workload, url)
        assert (answer["exit"], answer["findings"]) == (0, [])
        again = prepared(workload, url)  # the formal rows were sent meanwhile, so it starts over
        assert (again.prepared, again.steps[Split.SEED].requests) == (True, 2)
        found = probed(url)
    assert found["cache"] == {"engine": "vllm", "page_size": 128, "hit_quantum": 128, "speculative": False}
    assert (found["dp_ranks"], found["separate"], found["kept_late"]) == (2, True, False)


def test_a_sliding_window_misses_after_a_full_length_seed_and_not_after_ours(tmp_path):
    folder = model(tmp_path / "model", WINDOW)
    full = built(tmp_path, "full", folder, "page_size: 64", ranks=1, shape="full")
    ours = built(tmp_path, "ours", folder, "page_size: 64, sliding_window: 128", ranks=1)
    with serving(folder, "--block-size", "64", "--enable-prompt-tokens-details") as url:
        outcome = prepared(full, url)
        assert [f.got for f in outcome.findings] == [0]
        named = outcome.diagnosis[0]
        assert "sliding_window" in {named.cause, *(rival.cause for rival in named.rivals)}
        assert prepared(ours, url).prepared
        answer = audited(ours, url)
        assert (answer["exit"], answer["findings"]) == (0, [])
        found = probed(url)
    assert found["kept_late"] is True
    assert (found["cache"]["hit_quantum"], found["cache"]["sliding_window"]) == (64, 128)


def test_a_server_that_does_not_report_cached_tokens_is_refused_with_the_flag(tmp_path):
    folder = model(tmp_path / "model", DENSE)
    workload = built(tmp_path, "mute", folder, "page_size: 64", ranks=1)
    with (
        serving(folder, "--block-size", "64") as url,
        pytest.raises(WlgenError, match="--enable-prompt-tokens-details"),
    ):
        prepared(workload, url)


@pytest.mark.skipif(not BENCH, reason="WLGEN_CLIENTS names no folder that tests/clients/set_up.sh made")
def test_a_bench_run_that_keeps_no_figure_is_proved_by_two_scrapes(tmp_path):
    """`vllm bench serve` by its run card, from preparation to audit; then a flush, and one rank unseeded."""
    folder = model(tmp_path / "model", DENSE)
    workload = built(tmp_path, "blind", folder, "page_size: 128", ranks=2)
    before = workload.folder / COUNTERS_BEFORE
    options = ("--block-size", "128", "--data-parallel-size", "2", "--enable-prompt-tokens-details")
    with serving(folder, *options) as url:
        assert prepared(workload, url).prepared
        results = benched(workload, url)
        proved = audit_of(workload, results, "--counters", before, scraped(url, tmp_path / "after.json"))
        assert (proved["exit"], proved["verdict"]) == (0, "KEPT")
        assert proved["states"] == {"proved by ceiling": 8}
        blind = audit_of(workload, results)
        assert (blind["exit"], blind["verdict"]) == (1, "NOT PROVED")
        httpx.post(f"{url}/reset_prefix_cache", timeout=60)
        for row in workload.rows(("seed",), (0,)):
            sent(row, url)
        emptied = scraped(url, tmp_path / "emptied.json")
        results = benched(workload, url)
        short = audit_of(workload, results, "--counters", emptied, scraped(url, tmp_path / "later.json"))
    assert (short["exit"], short["verdict"]) == (1, "NOT KEPT")
    (finding,) = [f for f in short["findings"] if f["promise"] == "cached_sum"]
    assert finding["id"] == "blind rank 1"
    assert "at least 1 row" in finding["got"]


def benched(workload: Workload, url: str) -> list[Path]:
    """Send each rank's formal rows with `vllm bench serve`, by its run card, and return its result files."""
    out = workload.folder.parent / f"bench-{time.monotonic_ns()}"
    options = ["--to", "vllm", "--split", "formal", "--output", str(out)]
    done = CliRunner().invoke(app, ["export", str(workload.folder), *options])
    assert done.exit_code == 0, done.output
    card = (out / "RUN.md").read_text()
    steps = [block(card, r"3\. Set these once"), f"export URL={url} MODEL=tiny HF_HUB_OFFLINE=1"]
    ran = shell("\n".join([*steps, block(card, r"5\. Formal run")]), Path(BENCH), minutes=15)
    found = sorted(out.rglob("formal-rank-*.json"))
    assert len(found) == 2, ran.stdout[-2000:] + ran.stderr[-2000:]
    return found


def scraped(url: str, path: Path) -> Path:
    done = CliRunner().invoke(app, ["counters", "--url", url, "-o", str(path)])
    assert done.exit_code == 0, done.output
    return path


def audit_of(workload: Workload, results: list[Path], *options: object) -> dict[str, Any]:
    arguments = [str(each) for each in (workload.folder, *results, "--client", "vllm", *options, "--json")]
    done = CliRunner().invoke(app, ["audit", *arguments])
    return orjson.loads(done.stdout) | {"exit": done.exit_code}
