"""counters-before.json: what a preparation leaves for the audit, and when it says that it proves nothing."""

from __future__ import annotations

import asyncio
import json

import pytest
from kit.pairs import rehearsed_pair
from kit.rehearsals import Rehearsal, rehearsal, small_set
from typer.testing import CliRunner

from wlgen.cli import app
from wlgen.server.journal import JOURNAL
from wlgen.server.outcome import Wanted
from wlgen.server.prepare import PrimedServer, prepare_set
from wlgen.server.scrape import COUNTERS_BEFORE

UNPROVED = "that nothing but its seeds and checks was served since the flush"


@pytest.fixture
def warm():
    workload = small_set(name="before")
    (workload.folder / JOURNAL).unlink(missing_ok=True)
    (workload.folder / COUNTERS_BEFORE).unlink(missing_ok=True)
    return workload


def wlgen(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def blind_run(workload, running: Rehearsal, path) -> None:
    """Send the formal rows as a client that keeps no cached tokens."""
    with path.open("w") as results:
        for row in workload.rows(("formal",)):
            usage = running.chat(
                row.messages[-1].content,
                routed_dp_rank=row.dp_rank,
                max_tokens=row.output_len,
                ignore_eos=True,
            )["usage"]
            del usage["prompt_tokens_details"]
            print(json.dumps({"id": row.id, "text_sha256": row.text_sha256, "usage": usage}), file=results)


def test_a_run_whose_client_keeps_nothing_is_proved_from_preparation_to_audit(warm, tmp_path):
    results, after = tmp_path / "results.jsonl", tmp_path / "after.json"
    before = warm.folder / COUNTERS_BEFORE
    with rehearsal(warm) as running:
        done = wlgen("prepare", warm.folder, "--url", running.url)
        assert done.exit_code == 0, done.output
        assert f"counters   {before}: BEFORE of `wlgen audit --counters BEFORE AFTER`" in done.output
        blind_run(warm, running, results)
        assert wlgen("counters", "--url", running.url, "-o", after).exit_code == 0
    blind = wlgen("audit", warm.folder, results, "--json")
    assert (blind.exit_code, json.loads(blind.stdout)["verdict"]) == (1, "NOT PROVED")
    proved = wlgen("audit", warm.folder, results, "--counters", before, after, "--json")
    assert (proved.exit_code, json.loads(proved.stdout)["verdict"]) == (0, "KEPT")
    rows = sum(1 for _ in warm.rows(("formal",)))
    assert json.loads(proved.stdout)["states"] == {"proved by ceiling": rows}


def test_somebody_elses_request_between_flush_and_checks_is_said_in_the_last_line(warm):
    with rehearsal(warm) as running:
        sent = []

        def progress(done: int, _: int) -> None:
            if not sent:
                sent.append(done)
                running.chat("a prompt of somebody else", routed_dp_rank=0)

        target = PrimedServer(url=running.url, timeout=30.0)
        outcome = asyncio.run(prepare_set(warm, target, Wanted(ranks=(0, 1, 2)), progress))
    assert outcome.unproved == [UNPROVED]
    assert "since the flush the server counts 7 requests, the seeds and checks make 6" in outcome.notes[-1]


def test_a_server_without_counters_is_named_with_the_flag_that_brings_them(warm):
    with rehearsal(warm, enable_metrics=False) as running:
        done = wlgen("prepare", warm.folder, "--url", running.url)
    assert done.exit_code == 0, done.output
    assert "start SGLang with --enable-metrics" in done.output
    assert not (warm.folder / COUNTERS_BEFORE).exists()


def test_the_counters_of_a_pair_are_those_of_each_side(warm):
    with rehearsed_pair(warm) as pair:
        sides = ["--prefill", pair.prefill, "--decode", pair.decode]
        done = wlgen("prepare", warm.folder, "--url", pair.url, *sides)
        assert done.exit_code == 0, done.output
    servers = json.loads((warm.folder / COUNTERS_BEFORE).read_text())["servers"]
    assert [server["role"] for server in servers] == ["prefill", "decode"]
    assert UNPROVED not in done.output
