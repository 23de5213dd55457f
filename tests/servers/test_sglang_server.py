"""Prepare, run and audit against a real SGLang 0.5.23 server on a CPU, with each of its own witnesses.

The server counts (/metrics), writes a line a finished request (--export-metrics-to-file) and logs each
prefill batch. Run: lay it out with sglang-server/setup.sh FOLDER, then

    WLGEN_SGLANG=FOLDER WLGEN_CLIENTS=CLIENTS pytest -m slow tests/servers/test_sglang_server.py

One server of two ranks serves all tests; it takes one to three minutes to start and about 4 GB.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from kit.cards import block, shell
from typer.testing import CliRunner

from wlgen.build.build import build
from wlgen.cli import app
from wlgen.export.export import export
from wlgen.server.outcome import Wanted
from wlgen.server.prepare import PrimedServer, prepare_set
from wlgen.server.scrape import COUNTERS_BEFORE
from wlgen.spec import file as spec_file
from wlgen.workload.opened import Workload
from wlgen.workload.rows import Row

SGLANG = os.environ.get("WLGEN_SGLANG", "")
CLIENTS = os.environ.get("WLGEN_CLIENTS", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SGLANG, reason="WLGEN_SGLANG names no folder that setup.sh made"),
]
START_SECONDS = 400
MODEL = "tiny-dsv4"
SPEC = """
name: seen
random_seed: 9
encoding: {name: deepseek-v4}
cache: {engine: sglang, page_size: 128}
dp_ranks: 2
requests: {body_len: 2048, output_len: 8, cached: {min_ratio: 0.7}}
splits: {seed: {per_rank: 1}, check: {per_rank: 1}, formal: {total: 8}}
"""
FLAGS = f"""
--model-path {SGLANG}/model --served-model-name {MODEL} --host 127.0.0.1 --device cpu --dtype bfloat16
--attention-backend torch_native --sampling-backend pytorch --grammar-backend none --disable-overlap-schedule
--disable-cuda-graph --context-length 40000 --max-running-requests 16 --max-total-tokens 100096
--skip-server-warmup --page-size 128 --dp-size 2
--enable-cache-report --enable-metrics --export-metrics-to-file
""".split()
ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "SGLANG_RUST_BUILD_MODE": "never",
    "SGLANG_CPU_OMP_THREADS_BIND": "0|1",
    "HF_HUB_OFFLINE": "1",
    "HF_HOME": f"{SGLANG}/hf",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "DO_NOT_TRACK": "1",
}


@dataclass(frozen=True, kw_only=True)
class Served:
    """A running server, the folder of its request files, and its log."""

    url: str
    requests: Path
    log: Path

    def lines(self) -> list[bytes]:
        """Return the lines of all its request files so far, in order."""
        return [line for path in sorted(self.requests.iterdir()) for line in path.read_bytes().splitlines()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("sglang")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    found = Served(url=f"http://127.0.0.1:{port}", requests=folder / "requests", log=folder / "server.log")
    found.requests.mkdir()
    command = [f"{SGLANG}/venv/bin/python", "-m", "sglang.launch_server", *FLAGS, "--port", str(port)]
    command += ["--export-metrics-to-file-dir", str(found.requests)]
    with found.log.open("wb") as log:
        process = subprocess.Popen(
            command, env=os.environ | ENVIRONMENT, stdout=log, stderr=log, start_new_session=True
        )
        try:
            _wait(process, found)
            yield found
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # it has a process a rank, which outlive a plain end
            process.wait(timeout=60)


def _wait(process: subprocess.Popen[bytes], server: Served) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if b"fired up and ready" in server.log.read_bytes():
            return
        time.sleep(1)
    pytest.fail(f"the server did not start:\n{server.log.read_text()[-3000:]}")


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    return build(spec_file.parse(SPEC, "seen.yaml"), tmp_path_factory.mktemp("seen")).workload


@dataclass(frozen=True, kw_only=True)
class Run:
    """What the client and the server recorded of one run, from its flush to its second scrape."""

    results: Path
    before: Path
    after: Path
    requests: Path
    log: Path

    @property
    def counters(self) -> tuple[object, ...]:
        """The option that gives an audit both scrapes."""
        return ("--counters", self.before, self.after)


class Recording:
    """One run: prepared at the start, and its witnesses kept at the end, each for itself."""

    def __init__(self, workload: Workload, server: Served, folder: Path) -> None:
        self.workload, self.server, self.folder = workload, server, folder
        folder.mkdir()
        target, wanted = PrimedServer(url=server.url), Wanted(ranks=(0, 1), flush=True)
        assert asyncio.run(prepare_set(workload, target, wanted)).prepared
        (folder / "before.json").write_bytes((workload.folder / COUNTERS_BEFORE).read_bytes())
        self.seen, self.logged = len(server.lines()), server.log.stat().st_size

    def end(self, results: Path) -> Run:
        found = Run(
            results=results,
            before=self.folder / "before.json",
            after=self.folder / "after.json",
            requests=self.folder / "requests.log",
            log=self.folder / "server.log",
        )
        told = CliRunner().invoke(app, ["counters", "--url", self.server.url, "--output", str(found.after)])
        assert told.exit_code == 0, told.output
        found.requests.write_bytes(b"".join(line + b"\n" for line in self.server.lines()[self.seen :]))
        found.log.write_bytes(self.server.log.read_bytes()[self.logged :])
        return found


def posted(rows: Sequence[Row], url: str) -> list[dict[str, Any]]:
    """Send rows in turn as a small client does; return what it records of each."""
    found = []
    for row in rows:
        body = {
            "model": MODEL,
            "messages": [m._asdict() for m in row.messages],
            "max_tokens": row.output_len,
            "ignore_eos": True,
            "routed_dp_rank": row.dp_rank,
            "rid": row.id,
        }
        start = time.time()
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120)
        answer.raise_for_status()
        found.append({"id": row.id, "usage": answer.json()["usage"], "start": start, "end": time.time()})
    return found


def written(records: Sequence[dict[str, Any]], path: Path) -> Path:
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    return path


def blind(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records as a client that keeps no cached tokens would have left them."""
    return [
        record | {"usage": {k: v for k, v in record["usage"].items() if k != "prompt_tokens_details"}}
        for record in records
    ]


def audited(workload: Workload, *arguments: object) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["audit", str(workload.folder), *map(str, arguments), "--json"])
    assert done.exit_code in (0, 1), done.output + str(done.exception)
    found: dict[str, Any] = orjson.loads(done.stdout)
    assert (done.exit_code == 0) == (found["verdict"] == "KEPT")
    return found


def formal(workload: Workload) -> list[Row]:
    """Return the formal rows, one of each rank in turn."""
    by_rank = [list(workload.rows(("formal",), (rank,))) for rank in (0, 1)]
    return [row for turn in zip(*by_rank, strict=True) for row in turn]


@pytest.fixture(scope="module")
def kept(workload: Workload, server: Served, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run that keeps every promise, by a small client that records the server's usage."""
    folder = tmp_path_factory.mktemp("kept")
    recording = Recording(workload, server, folder / "run")
    return recording.end(written(posted(formal(workload), server.url), folder / "results.jsonl"))


@pytest.mark.skipif(not Path(CLIENTS, "sglang").is_dir() or not CLIENTS, reason="no environment sglang")
def test_a_run_of_the_real_client_by_its_card_is_proved_by_each_witness(workload, server, tmp_path):
    recording = Recording(workload, server, tmp_path / "run")
    out = tmp_path / "out"
    export(workload, "sglang", out)
    card = (out / "RUN.md").read_text()
    steps = [block(card, r"3\. Set these once"), f"export URL={server.url} MODEL={MODEL}"]
    ran = shell("\n".join([*steps, block(card, r"5\. Formal run")]), Path(CLIENTS, "sglang"))
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    (results,) = out.rglob("results/*/formal.jsonl")
    run = recording.end(results)
    everything = audited(workload, results, *run.counters, "--requests", run.requests, "--log", run.log)
    assert everything["verdict"] == "KEPT"
    assert everything["findings"] == []
    assert {told["witness"]: told["fits"] for told in everything["sums"]} == {
        "counters": True,
        "request file": True,
        "log": True,
    }
    assert all(each["holds"] for each in everything["counters"]["conditions"]), everything["counters"]
    alone = audited(workload, "--requests", run.requests)
    assert (alone["verdict"], alone["states"]) == ("KEPT", {"observed (by server)": 8})
    content = json.loads(results.read_bytes())
    content.pop("cached_tokens_details", None)
    unseen = tmp_path / "unseen.jsonl"
    unseen.write_text(json.dumps({k: v for k, v in content.items() if "cache" not in k}))
    assert audited(workload, unseen, "--client", "sglang")["verdict"] == "NOT PROVED"
    proved = audited(workload, unseen, "--client", "sglang", *run.counters)
    assert (proved["verdict"], proved["states"]) == ("KEPT", {"proved by ceiling": 8})
    sums = audited(workload, *run.counters, "--log", run.log)
    assert sums["verdict"] == "NOT PROVED"
    assert [told["fits"] for told in sums["sums"]] == [True, True]


def test_the_run_of_a_small_client_is_proved_by_each_witness(workload, kept):
    assert audited(workload, kept.results, *kept.counters, "--requests", kept.requests)["verdict"] == "KEPT"
    assert audited(workload, "--requests", kept.requests)["verdict"] == "KEPT"


def test_a_row_sent_twice_in_place_of_another_is_not_proved_by_any_witness(workload, server, tmp_path):
    """The client's file claims each row once; the server got the first row twice and the last one never."""
    recording, rows = Recording(workload, server, tmp_path / "run"), formal(workload)
    records = posted([*rows[:-1], rows[0]], server.url)
    claimed = [*records[:-1], records[-1] | {"id": rows[-1].id}]
    run = recording.end(written(records, tmp_path / "honest.jsonl"))
    unseen = written(blind(claimed), tmp_path / "claimed.jsonl")
    honest = audited(workload, run.results, *run.counters)
    assert {f["id"] for f in honest["findings"] if f["promise"] == "sent_once"} == {rows[0].id, rows[-1].id}
    for witness in (run.counters, ("--requests", run.requests), ("--log", run.log)):
        assert audited(workload, unseen, *witness)["verdict"] != "KEPT", witness
    told = audited(workload, unseen, "--requests", run.requests)
    assert rows[0].id in {f["id"] for f in told["findings"] if f["promise"] == "sent_once"}
    alone = audited(workload, "--requests", run.requests)
    assert {f["id"] for f in alone["findings"] if f["promise"] == "sent_once"} == {rows[0].id, rows[-1].id}


@pytest.fixture(scope="module")
def flushed(workload: Workload, server: Served, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run whose cache was emptied after its fourth row."""
    folder = tmp_path_factory.mktemp("flushed")
    recording, rows = Recording(workload, server, folder / "run"), formal(workload)
    first = posted(rows[:4], server.url)
    httpx.post(f"{server.url}/flush_cache?timeout=60", timeout=90).raise_for_status()
    return recording.end(written([*first, *posted(rows[4:], server.url)], folder / "results.jsonl"))


def short_rows(found: dict[str, Any]) -> set[str]:
    return {f["id"] for f in found["findings"] if f["promise"] == "cached_bound"}


def test_a_cache_flushed_half_way_is_named_by_each_witness(workload, flushed, tmp_path):
    seen = audited(workload, flushed.results)
    assert seen["verdict"] == "NOT KEPT"
    assert len(short_rows(seen)) == 2  # the first row of each rank after the flush seeds those after it
    assert short_rows(audited(workload, "--requests", flushed.requests)) == short_rows(seen)
    records = [orjson.loads(line) for line in flushed.results.read_bytes().splitlines()]
    unseen = written(blind(records), tmp_path / "unseen.jsonl")
    counted = audited(workload, unseen, *flushed.counters)
    assert counted["verdict"] == "NOT KEPT"
    assert [f["id"] for f in counted["findings"] if f["promise"] == "cached_sum"] == [
        "seen rank 0",
        "seen rank 1",
    ]
    logged = audited(workload, unseen, "--log", flushed.log)
    assert logged["verdict"] == "NOT PROVED"
    assert [told["fits"] for told in logged["sums"]] == [False]


@pytest.mark.parametrize("witness", ["counters", "requests", "log"])
def test_a_witness_of_another_run_does_not_prove_a_run(workload, kept, flushed, tmp_path, witness):
    """The results are of the run whose cache was flushed half-way, the witness is of the kept one."""
    given = {
        "counters": kept.counters,
        "requests": ("--requests", kept.requests),
        "log": ("--log", kept.log),
    }[witness]
    assert audited(workload, flushed.results, *given)["verdict"] == "NOT KEPT"
    records = [orjson.loads(line) for line in flushed.results.read_bytes().splitlines()]
    unseen = written(blind(records), tmp_path / "unseen.jsonl")
    assert audited(workload, unseen, *given)["verdict"] == "NOT PROVED"


def test_the_request_files_of_two_runs_prove_the_one_between_the_scrapes(workload, kept, flushed, tmp_path):
    """A server appends every run of an hour to one file: the scrapes tell which of the records count."""
    both = tmp_path / "both"
    both.mkdir()
    lines = kept.requests.read_bytes() + flushed.requests.read_bytes()
    (both / "sglang-request-metrics-1.log").write_bytes(lines)
    assert audited(workload, kept.results, *kept.counters, "--requests", both)["verdict"] == "KEPT"
    bad = audited(workload, flushed.results, *flushed.counters, "--requests", both)
    assert bad["verdict"] == "NOT KEPT"
    assert not [f for f in bad["findings"] if f["promise"] in {"sent_once", "witnesses"}]
