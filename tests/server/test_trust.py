"""PREPARED is never said of a cache that prepare cannot vouch for, whatever the journal says."""

from __future__ import annotations

import asyncio

import pytest
from kit.rehearsals import ZERO, Rehearsal, rehearsal, small_set
from typer.testing import CliRunner

from wlgen.cli import app
from wlgen.faults._names import fault_named
from wlgen.server.journal import JOURNAL
from wlgen.server.outcome import Wanted
from wlgen.server.prepare import PrimedServer, prepare_set
from wlgen.server.trust import doubt_of, spans
from wlgen.workload.opened import Workload

RANKS = (0, 1, 2)
NO_COUNTS = {"hidden": ("/metrics",)}  # a default SGLang server before /v1/loads
LOADS = {"hidden": ("/metrics",), "loads": True}  # a default SGLang server of today


@pytest.fixture
def warm():
    return fresh("trust")


@pytest.fixture
def zero():
    return fresh("trust-zero", cached=ZERO)


def fresh(name: str, **changes: object) -> Workload:
    workload = small_set(name=name, **changes)
    (workload.folder / JOURNAL).unlink(missing_ok=True)
    return workload


def prepared(workload, running: Rehearsal, **wanted: object):
    target = PrimedServer(url=running.url, timeout=30.0)
    return asyncio.run(prepare_set(workload, target, Wanted(**{"ranks": RANKS} | wanted)))


def command(workload, running: Rehearsal, *options: str) -> tuple[int, list[str]]:
    done = CliRunner().invoke(app, ["prepare", str(workload.folder), "--url", running.url, *options])
    return done.exit_code, done.output.strip().splitlines()


def run(workload, running: Rehearsal) -> None:
    """Send the formal rows, as a client does."""
    for row in workload.rows(("formal",)):
        running.chat(row.messages[-1].content, routed_dp_rank=row.dp_rank)


def flushes(running: Rehearsal) -> int:
    return [path for path, _, _ in running.requests].count("/flush_cache")


@pytest.mark.parametrize("server", [NO_COUNTS, LOADS, {}], ids=["no counts", "loads", "metrics"])
@pytest.mark.parametrize(
    "options", [(), ("--quiet",), ("--flush",), ("--flush", "--quiet"), ("--ranks", "0")]
)
def test_after_a_run_the_cache_is_emptied_and_seeded_again(warm, server, options):
    with rehearsal(warm, **server) as running:
        assert command(warm, running)[0] == 0
        run(warm, running)
        code, lines = command(warm, running, *options)
        assert code == 0
        assert flushes(running) == 2
        seeds = {row.messages[-1].content for row in warm.rows(("seed",), (0,))}
        assert [text in seeds for text in running.texts()].count(True) == 2
    if "--ranks" in options:
        assert lines[-1].startswith("PREPARED, rank 1-2 unproved:")
    else:
        assert lines == [] if "--quiet" in options else lines[-1].startswith("PREPARED: ")


def test_one_rank_after_a_run_is_not_excused_by_a_journal_that_is_void(warm):
    """Its check finds the formal rows' pages: 2048 tokens where 1536 are promised, say."""
    with rehearsal(warm) as running:
        prepared(warm, running)
        run(warm, running)
        outcome = prepared(warm, running, ranks=(0,), flush=False)
    assert [f.promise for f in outcome.findings] == ["cached_len"]
    assert not outcome.prepared


@pytest.mark.parametrize("server", [NO_COUNTS, LOADS, {}], ids=["no counts", "loads", "metrics"])
def test_a_second_preparation_goes_on_only_where_counts_prove_that_nothing_was_sent(warm, server):
    with rehearsal(warm, **server) as running:
        prepared(warm, running)
        outcome = prepared(warm, running)
        assert (outcome.prepared, outcome.unproved) == (True, [])
        assert flushes(running) == (2 if server is NO_COUNTS else 1)


def test_resume_takes_your_word_and_the_last_line_says_so(warm):
    with rehearsal(warm, **NO_COUNTS) as running:
        prepared(warm, running)
        code, lines = command(warm, running, "--resume", "--quiet")
        assert code == 0
        assert flushes(running) == 1
    expected = "PREPARED, that nothing was sent since the last run (--resume) unproved: "
    assert len(lines) == 1
    assert lines[0].startswith(expected)


@pytest.mark.parametrize("server", [LOADS, {}], ids=["loads", "metrics"])
def test_resume_does_not_overrule_what_the_counts_show(warm, server):
    with rehearsal(warm, **server) as running:
        prepared(warm, running)
        run(warm, running)
        outcome = prepared(warm, running, resume=True)
        assert any("did other work" in note for note in outcome.notes)
        assert flushes(running) == 2


def test_a_request_that_its_client_gave_up_is_work_too(warm):
    """It is in no count of finished requests, and its prompt is in the cache."""
    with rehearsal(warm) as running:
        prepared(warm, running)
        running.life.ranks[1].aborted += 1
        assert any("did other work" in note for note in prepared(warm, running).notes)
        assert flushes(running) == 2


def test_a_zero_set_is_emptied_again_after_a_run(zero):
    with rehearsal(zero, **NO_COUNTS) as running:
        assert prepared(zero, running).prepared
        run(zero, running)
        assert prepared(zero, running).prepared
        assert flushes(running) == 2


def test_without_a_flush_an_empty_cache_is_unproved(warm):
    with rehearsal(warm) as running:
        code, lines = command(warm, running, "--no-flush", "--quiet")
        assert (code, len(lines)) == (0, 1)
        assert lines[0].startswith("PREPARED, that the cache was empty before the seeds unproved: ")
        outcome = prepared(warm, running)  # goes on, and says it again
        assert outcome.unproved == ["that the cache was empty before the seeds"]


def test_pins_unproved_stands_in_the_last_line(warm):
    with rehearsal(warm, faults=("ignore-pins",)) as running:
        code, lines = command(warm, running)
        assert (code, lines[-1][:24]) == (0, "PREPARED, pins unproved:")
        assert command(warm, running, "--quiet")[1][-1].startswith("PREPARED, pins unproved:")


def test_a_round_sent_twice_is_a_finding_and_a_first_use_is_unproved_where_nothing_counts():
    rounds = fresh("trust-rounds", rounds=2)
    with rehearsal(rounds, **NO_COUNTS) as running:
        assert prepared(rounds, running).prepared
        assert prepared(rounds, running, round=1).unproved == ["that round 1 was not sent before"]
        again = prepared(rounds, running, round=1, concurrency=1)
        assert [f.promise for f in again.findings] == ["cached_len"]


def test_resume_and_flush_contradict_each_other(warm):
    done = CliRunner().invoke(
        app, ["prepare", str(warm.folder), "--url", "http://127.0.0.1:9", "--resume", "--flush"]
    )
    assert "--resume: expected no --flush" in str(done.exception)


def test_the_audits_advice_starts_over():
    for name in ("sent_twice", "rank_not_seeded"):
        assert "wlgen prepare --flush" in fault_named(name, place="").remedy(None)


@pytest.mark.parametrize(
    ("seen", "now", "closed", "resume", "doubt"),
    [
        ({"n": 1}, {"n": 1}, True, False, ""),
        ({"n": 1}, {"n": 2}, True, False, "other work"),
        ({"n": 1}, {"n": 2}, True, True, "other work"),
        ({"n": 2}, {"n": 1}, True, True, "restarted"),
        ({"n": 2}, {"n": 1}, False, True, "restarted"),
        ({"n": 1}, {"n": 1}, False, False, "did not end"),
        ({"n": 1}, {"n": 5}, False, True, ""),
        (None, None, True, False, "no count"),
        ({"n": 1}, None, True, False, "no count"),
        (None, None, True, True, ""),
    ],
)
def test_what_makes_an_earlier_run_count(seen, now, closed, resume, doubt):
    found = doubt_of(Wanted(ranks=RANKS, resume=resume), seen, now, closed=closed)
    assert doubt in found
    assert bool(doubt) == bool(found)


def test_ranks_are_told_as_spans():
    assert spans([0, 1, 2, 5]) == "0-2,5"
