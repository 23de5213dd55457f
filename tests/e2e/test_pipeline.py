"""The whole path on a laptop: build, rehearse as a real process, prepare, a real client, audit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import orjson
import pytest
from kit.rehearsals import rehearsal
from kit.rules import made_rule
from typer.testing import CliRunner

from wlgen.cli import app
from wlgen.workload.opened import Workload, open_workload
from wlgen.workload.rows import Row

SPEC = """
name: {name}
random_seed: 5
encoding: {{name: deepseek-v4}}
cache: {{rule: {engine}, page_size: 64}}
dp_ranks: 3
requests: {{body_len: 512, output_len: 8, cached: {cached}{prefix}}}
splits:
{seed}  formal: {{total: 12}}
"""
WARM = {"cached": "{min_ratio: 0.7}", "seed": "  seed: {per_rank: 1}\n", "prefix": ""}
BY_RANK = WARM | {"prefix": ", prefix: {shared_by: rank}"}
ZERO = {"cached": "{max_tokens: 0}", "seed": "", "prefix": ""}
QUANTUM = made_rule(name="sglang", engine="sglang", page_size=64, hit_quantum=256)
FAST = ("--prefill-rate", "1e9", "--decode-rate", "1e9")


def wlgen(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    command = [sys.executable, "-c", "from wlgen.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def built(output: Path, name: str, engine: str = "sglang", **parts: str) -> Workload:
    """Build a set through the command line."""
    spec = output / f"{name}.yaml"
    spec.write_text(SPEC.format(name=name, engine=engine, **(parts or WARM)))
    done = CliRunner().invoke(app, ["build", str(spec), "--output", str(output)])
    assert done.exit_code == 0, done.output
    return open_workload(output / name)


@contextmanager
def rehearsing(*arguments: object, **environment: str) -> Iterator[str]:
    """Run `wlgen rehearse` as a process until the block ends; give its URL."""
    command = [sys.executable, "-c", "from wlgen.cli import main; main()", "rehearse", "--port", "0"]
    command += map(str, (*FAST, *arguments))
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | environment | {"PYTHONUNBUFFERED": "1"}
    )
    try:
        for line in process.stdout:
            if found := re.fullmatch(r"listening on (\S+)\n", line):
                yield found[1]
                break
        else:
            pytest.fail(f"rehearse ended with {process.wait()} before it listened")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        process.stdout.close()


def send(row: Row, url: str, engine: str, *, pinned: bool = True) -> dict:
    """Send a row as a small client does, streaming, and return its line of a plain result file."""
    body = {
        "model": "rehearsal",
        "messages": [m._asdict() for m in row.messages],
        "max_tokens": row.output_len,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "chat_template_kwargs": {"thinking": False},
    }
    headers = {}
    if pinned and engine == "sglang":
        body["routed_dp_rank"] = row.dp_rank
    elif pinned:
        headers["X-data-parallel-rank"] = str(row.dp_rank)
    line = {"id": row.id, "text": row.messages[-1].content}
    try:
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30)
    except httpx.RemoteProtocolError as failure:
        return line | {"success": False, "error": str(failure)}
    if answer.status_code != 200:
        return line | {"success": False, "error": answer.text}
    events = [orjson.loads(x[6:]) for x in answer.text.splitlines() if x.startswith("data: {")]
    usage = next((event["usage"] for event in events if event.get("usage")), None)
    return line | {"usage": usage}


def audited(workload: Workload, lines: list[dict]) -> dict:
    """Audit result lines through the command line; give its JSON with the exit code."""
    results = workload.folder.parent / f"{workload.manifest.name}.results.jsonl"
    results.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    done = CliRunner().invoke(app, ["audit", str(workload.folder), str(results), "--json"])
    return orjson.loads(done.output) | {"exit": done.exit_code}


@pytest.mark.parametrize(("engine", "parts"), [("sglang", WARM), ("vllm", ZERO)])
def test_a_set_keeps_every_promise_from_build_to_audit(tmp_path, engine, parts):
    workload = built(tmp_path, "set", engine, **parts)
    with rehearsing("--set", workload.folder) as url:
        prepared = wlgen("prepare", workload.folder, "--url", url)
        assert prepared.returncode == 0, prepared.stderr
        assert "PREPARED" in prepared.stdout
        assert f"wlgen export {workload.folder} --to" in prepared.stdout
        lines = [send(row, url, engine) for row in workload.rows(("formal",))]
    answer = audited(workload, lines)
    assert (answer["exit"], answer["findings"]) == (0, [])
    assert answer["promises"]["per_request_min"] >= answer["promises"]["configured"]


FAULTS_OF_PREPARING = [
    # What the server does, the exit code, and what is said of it.
    ({"faults": ("lose-cache=1",)}, 1, "lost_cache"),
    ({"faults": ("thinking",)}, 2, "thinking is on"),
    ({"faults": ("no-cached",)}, 2, "--enable-cache-report"),
    ({"faults": ("no-usage",)}, 2, "no usage"),
    ({"faults": ("ignore-pins",)}, 0, "pinning: UNPROVED"),
    ({"faults": ("error=0.2",)}, 2, "HTTP 500"),
    ({"faults": ("cut=0.2",)}, 2, "the answer was cut"),
    ({"faults": ("stall=0.2",)}, 2, "--timeout"),
    ({"capacity": 400}, 2, "can hold is 400 tokens"),
    ({"rule": QUANTUM}, 1, "hit_quantum"),
]


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    return built(tmp_path_factory.mktemp("pipeline"), "warm")


@pytest.fixture(scope="module")
def by_rank(tmp_path_factory):
    """Build a set in which each rank has a prefix of its own."""
    return built(tmp_path_factory.mktemp("pipeline"), "by-rank", **BY_RANK)


@pytest.mark.parametrize(("options", "code", "said"), FAULTS_OF_PREPARING)
def test_each_fault_of_a_server_is_named_by_prepare(workload, tmp_path, options, code, said):
    journal = tmp_path / "journal.jsonl"
    with rehearsal(workload, **options) as running:
        arguments = ["prepare", str(workload.folder), "--url", running.url, "--journal", str(journal)]
        done = CliRunner().invoke(app, [*arguments, "--concurrency", "1", "--timeout", "2"])
    told = done.output + str(done.exception or "")
    assert said in told
    assert (done.exit_code if not done.exception or code < 2 else 2) == code
    assert code == 0 or "PREPARED" not in told


def test_a_server_that_restarts_after_the_seeds_is_prepared_by_running_again(workload, tmp_path):
    """Two throw-away prompts and three seeds are served; then the server is gone for a second."""
    journal = tmp_path / "journal.jsonl"
    with rehearsing("--set", workload.folder, "--fault", "restart=5") as url:
        arguments = ("prepare", workload.folder, "--url", url, "--journal", journal)
        first = wlgen(*arguments)
        assert first.returncode in (1, 2), first.stdout
        wait_for(url)
        second = wlgen(*arguments)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "seeds      3 in" in second.stdout


def wait_for(url: str) -> None:
    for _ in range(200):
        try:
            httpx.get(f"{url}/health")
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"{url} did not come back")


def test_a_key_goes_to_the_server_and_nowhere_else(workload, tmp_path, monkeypatch):
    journal = tmp_path / "journal.jsonl"
    monkeypatch.setenv("WLGEN_API_KEY", "wrong-s3cret")
    with rehearsing("--set", workload.folder, "--require-key", WLGEN_API_KEY="right-s3cret") as url:
        arguments = ("prepare", workload.folder, "--url", url, "--journal", journal)
        refused = wlgen(*arguments)
        monkeypatch.setenv("WLGEN_API_KEY", "right-s3cret")
        good = wlgen(*arguments)
    assert (refused.returncode, good.returncode) == (2, 0)
    assert "WLGEN_API_KEY" in refused.stderr
    everything = refused.stdout + refused.stderr + good.stdout + good.stderr + journal.read_text()
    assert "s3cret" not in everything


def test_an_interrupted_preparation_goes_on(workload, tmp_path):
    journal = tmp_path / "journal.jsonl"
    with rehearsing("--set", workload.folder, "--prefill-rate", "400") as url:
        arguments = ("prepare", workload.folder, "--url", url, "--journal", journal)
        command = [sys.executable, "-c", "from wlgen.cli import main; main()", *map(str, arguments)]
        process = subprocess.Popen(
            [*command, "--concurrency", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        while not journal.exists() or '"id":"seed-r01' not in journal.read_text():
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "run it again with --resume to go on" in told
        again = wlgen(*arguments, "--resume")
    assert again.returncode == 0, again.stderr
    assert "seeds" in again.stdout


FAULTS_OF_RUNS = [
    # What the server or the client does with the formal rows, and the cause that audit names.
    ({"faults": ("ignore-pins",)}, "unpinned"),
    ({"pinned": False}, "unpinned"),
    ({"faults": ("no-cached",)}, "not_observed"),
    ({"faults": ("lose-cache=1",)}, "lost_cache"),
    ({"twice": True}, "sent_twice"),
]


@pytest.mark.parametrize(("wrong", "cause"), FAULTS_OF_RUNS)
def test_each_fault_of_a_run_is_named_by_audit(by_rank, wrong, cause):
    with rehearsal(by_rank, faults=wrong.get("faults", ())) as running:
        formal = list(by_rank.rows(("formal",)))
        before = [*by_rank.rows(("seed",)), *(formal if wrong.get("twice") else ())]
        for row in before:
            send(row, running.url, "sglang")
        pinned = wrong.get("pinned", True)
        answer = audited(by_rank, [send(row, running.url, "sglang", pinned=pinned) for row in formal])
    assert answer["exit"] == 1
    assert cause in [d["cause"] for d in answer["diagnosis"]]
