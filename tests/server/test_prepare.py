"""Prepare sends seeds and checks, pinned and once, stops at the first that falls short, and says why."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import traceback

import orjson
import pytest
from kit.rehearsals import ZERO, rehearsal, small_set
from kit.rules import made_rule
from typer.testing import CliRunner

from wlgen.cli import app
from wlgen.commands._outcome import outcome_text
from wlgen.errors import WlgenError
from wlgen.rehearse.settings import TimeModel
from wlgen.server.journal import JOURNAL
from wlgen.server.outcome import Outcome, Wanted
from wlgen.server.prepare import PrimedServer, parse_ranks, prepare_set
from wlgen.workload.opened import Workload, open_workload
from wlgen.workload.splits import Split

RANKS = (0, 1, 2)
SLOW = TimeModel(prefill_rate=1000, decode_rate=1e9)


SETS = {
    "sglang": {},
    "vllm": {"engine": "vllm"},
    "zero": {"cached": ZERO},
    "checks": {"check": 2},
    "raw": {"encoding": "raw"},
    "system": {"prefix": "{shared_by: all, message: system}"},
    "groups": {"prefix": "{shared_by: group, groups: 2}", "check": 2},
}


def a_set(name: str) -> Workload:
    """Return one of the sets, without a journal."""
    workload = small_set(name=name, **SETS[name])
    (workload.folder / JOURNAL).unlink(missing_ok=True)
    return workload


@pytest.fixture
def warm():
    return a_set("sglang")


def prepared(workload, url, *, engine=None, model=None, timeout=30.0, **wanted: object):
    target = PrimedServer(url=url, engine=engine, model=model, timeout=timeout)
    return asyncio.run(prepare_set(workload, target, Wanted(**{"ranks": RANKS} | wanted)))


def journal(workload) -> list[dict]:
    return [orjson.loads(line) for line in (workload.folder / JOURNAL).read_bytes().splitlines()]


def rows_sent(running, workload) -> list[str]:
    """Return the ids of the set's rows that a rehearsal was asked, in order."""
    ids = {row.messages[-1].content: row.id for row in workload.rows()}
    return [ids[text] for text in running.texts() if text in ids]


@pytest.mark.parametrize("name", ["sglang", "vllm", "zero", "raw"])
def test_a_good_server_is_prepared_and_no_formal_row_is_sent(name):
    workload = a_set(name)
    with rehearsal(workload) as running:
        outcome = prepared(workload, running.url)
        expected = {row.id for row in workload.rows(("seed", "check"))}
        assert outcome.prepared
        assert not outcome.findings
        assert set(rows_sent(running, workload)) == expected
        assert len(rows_sent(running, workload)) == len(expected)
    assert any("pinning: proved" in proof for proof in outcome.proofs)
    assert any("framing: proved" in proof for proof in outcome.proofs)


@pytest.mark.parametrize("name", ["sglang", "vllm"])
def test_each_row_is_pinned_framed_and_asked_for_exactly_its_output(name):
    workload = a_set(name)
    rows = {row.messages[-1].content: row for row in workload.rows()}
    with rehearsal(workload) as running:
        prepared(workload, running.url)
        sent = [
            (headers, body, rows[body["messages"][-1]["content"]])
            for path, headers, body in running.requests
            if path == "/v1/chat/completions" and body["messages"][-1]["content"] in rows
        ]
    for headers, body, row in sent:
        assert headers["x-data-parallel-rank"] == str(row.dp_rank)
        assert body.get("routed_dp_rank", row.dp_rank) == row.dp_rank
        assert body["chat_template_kwargs"] == {"thinking": False}
        assert (body["max_tokens"], body["ignore_eos"]) == (row.output_len, True)
    assert len(sent) == 6


def test_seeds_come_before_checks_and_the_flush_before_both(warm):
    with rehearsal(warm) as running:
        prepared(warm, running.url)
        splits = [name.split("-")[0] for name in rows_sent(running, warm)]
        paths = [path for path, _, _ in running.requests]
    assert splits == ["seed"] * 3 + ["check"] * 3
    texts = {row.messages[-1].content for row in warm.rows(("seed",))}
    generated = [
        n
        for n, (path, _, body) in enumerate(running.requests)
        if path == "/v1/chat/completions" and body["messages"][-1]["content"] in texts
    ]
    assert paths.index("/flush_cache") < min(generated)


def test_the_journal_tells_each_request_and_no_text_or_key(warm, monkeypatch):
    monkeypatch.setenv("WLGEN_API_KEY", "s3cret-key")
    with rehearsal(warm, api_key="s3cret-key") as running:
        outcome = prepared(warm, running.url)
    ended = [event for event in journal(warm) if event["event"] == "ended"]
    assert {event["id"] for event in ended} == {row.id for row in warm.rows(("seed", "check"))}
    assert all(event["success"] and event["prompt_tokens"] for event in ended)
    content = (warm.folder / JOURNAL).read_text()
    assert "s3cret-key" not in content + repr(outcome)
    assert all(row.messages[-1].content[:40] not in content for row in warm.rows(("seed",)))


def test_a_wrong_key_is_named_by_its_variable_and_never_shown(warm, monkeypatch):
    monkeypatch.setenv("WLGEN_API_KEY", "wrong-key")
    with rehearsal(warm, api_key="right-key") as running, pytest.raises(WlgenError) as failure:
        prepared(warm, running.url)
    assert "WLGEN_API_KEY" in str(failure.value)
    assert "wrong-key" not in "".join(traceback.format_exception(failure.value))


def test_the_cost_counts_what_was_computed_and_reused(warm):
    with rehearsal(warm) as running:
        outcome = prepared(warm, running.url)
    seeds, checks = (list(warm.rows((split,))) for split in ("seed", "check"))
    assert outcome.steps[Split.SEED].computed == sum(row.prompt_len for row in seeds)
    assert outcome.steps[Split.CHECK].reused == sum(row.cached_len for row in checks)
    assert outcome.steps[Split.CHECK].computed == sum(row.prompt_len - row.cached_len for row in checks)
    assert outcome.flush.requests == 1


# What goes wrong on servers, and what is said of it.


def test_a_rank_that_loses_its_cache_stops_the_run_with_the_cause(warm):
    with rehearsal(warm, faults=("lose-cache=1",)) as running:
        outcome = prepared(warm, running.url, concurrency=1)
        assert rows_sent(running, warm)[-1] == "check-r01-000000"  # nothing after the first shortfall
    assert [f.id for f in outcome.findings] == ["check-r01-000000"]
    assert outcome.findings[0].promise == "cached_bound"
    assert outcome.diagnosis[0].cause == "lost_cache"
    assert not outcome.prepared


def test_a_larger_quantum_than_planned_is_diagnosed(warm):
    rule = made_rule(name="sglang", engine="sglang", page_size=64, hit_quantum=256)
    with rehearsal(warm, rule=rule) as running:
        outcome = prepared(warm, running.url)
    assert outcome.findings
    assert outcome.diagnosis[0].cause == "hit_quantum"
    assert "256" in outcome.diagnosis[0].evidence


def test_seeds_that_evict_each_other_are_told_from_seeds_not_sent():
    workload = a_set("groups")
    with rehearsal(workload, capacity=700) as running:  # the two seeds of a rank do not fit
        outcome = prepared(workload, running.url)
    assert outcome.findings
    assert "a rank's cache holds about" in outcome.diagnosis[0].evidence


@pytest.mark.parametrize("name", ["sglang", "zero"])
def test_a_server_that_leaves_out_zeros_is_seen_to_and_prepared(name):
    workload = a_set(name)
    with rehearsal(workload, faults=("omit-zero",)) as running:
        outcome = prepared(workload, running.url)
    assert outcome.omits_zero
    assert outcome.prepared


def test_thinking_mode_is_named_before_anything_is_seeded(warm):
    with rehearsal(warm, faults=("thinking",)) as running, pytest.raises(WlgenError) as failure:
        prepared(warm, running.url)
    assert "+79" in str(failure.value)
    assert '"chat_template_kwargs": {"thinking": false}' in str(failure.value)
    assert not rows_sent(running, warm)


@pytest.mark.parametrize(
    ("fault", "remedy"), [("no-cached=1", "--enable-cache-report"), ("no-usage=1", "usage")]
)
def test_a_server_that_does_not_report_is_refused_with_the_flag(warm, fault, remedy):
    with rehearsal(warm, faults=(fault,)) as running, pytest.raises(WlgenError, match=remedy):
        prepared(warm, running.url)
    assert not rows_sent(running, warm)


def test_usage_that_goes_missing_later_is_not_observed(warm):
    """Never 0 and never a pass."""
    with rehearsal(warm, faults=("no-cached=0.167",)) as running:
        outcome = prepared(warm, running.url, concurrency=1)
    assert [f.promise for f in outcome.findings] == ["observed"]
    assert outcome.findings[0].got == "NOT_OBSERVED"


def test_pins_that_are_ignored_are_reported_as_unproved(warm):
    with rehearsal(warm, faults=("ignore-pins",)) as running:
        outcome = prepared(warm, running.url, concurrency=1)
    assert any("UNPROVED" in proof for proof in outcome.proofs)
    assert "pins" in outcome.unproved


def test_a_server_with_fewer_ranks_than_the_set_is_refused_and_with_more_reported(warm):
    with rehearsal(ranks=2) as running, pytest.raises(WlgenError, match="rank 2 of 3 to be served"):
        prepared(warm, running.url)
    with rehearsal(ranks=4) as running:
        outcome = prepared(warm, running.url)
    assert any("more ranks than the 3" in proof for proof in outcome.proofs)
    assert outcome.prepared


def test_a_server_that_is_not_there_and_a_wrong_model(warm):
    with pytest.raises(WlgenError, match=r"Start the server, or correct --url"):
        prepared(warm, "http://127.0.0.1:9")
    with rehearsal(warm) as running, pytest.raises(WlgenError, match=r"expected a model the server serves"):
        prepared(warm, running.url, model="rehearsel")
    assert not rows_sent(running, warm)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://x", "http://", "http://user:pw@host", "http://h/?key=1"]
)
def test_a_url_that_is_none_or_holds_a_secret_is_refused_unshown(warm, url):
    with pytest.raises(WlgenError, match="--url") as failure:
        prepared(warm, url)
    assert "pw" not in str(failure.value)
    assert "key=1" not in str(failure.value)


def test_a_url_with_v1_is_the_same_server(warm):
    with rehearsal(warm) as running:
        assert prepared(warm, running.url + "/v1/").prepared


def test_an_http_error_on_a_seed_stops_the_run(warm):
    with rehearsal(warm, faults=("error=0.2",)) as running, pytest.raises(WlgenError, match="HTTP 500"):
        prepared(warm, running.url, concurrency=1)
    failed = [e for e in journal(warm) if e["event"] == "ended" and not e["success"]]
    assert len(failed) == 1
    assert "HTTP 500" in failed[0]["error"]


def test_a_stream_cut_midway_stops_the_run(warm):
    with rehearsal(warm, faults=("cut=0.3",)) as running, pytest.raises(WlgenError, match="cut"):
        prepared(warm, running.url, concurrency=1)


def test_a_request_without_an_answer_times_out(warm):
    with rehearsal(warm, faults=("stall=0.3",)) as running, pytest.raises(WlgenError, match="--timeout"):
        prepared(warm, running.url, concurrency=1, timeout=0.5)


@pytest.mark.parametrize("name", ["sglang", "vllm"])
def test_a_busy_server_is_waited_for_and_then_given_up(name):
    workload = a_set(name)
    with rehearsal(workload) as running:
        running.life.ranks[0].running += 1  # somebody else's request
        with pytest.raises(WlgenError, match="busy for"):
            prepared(workload, running.url, patience=0.2)
        running.life.ranks[0].running -= 1
        assert prepared(workload, running.url).prepared


def test_a_server_that_restarted_between_seeds_and_checks_is_diagnosed(warm):
    """The caches and the count of requests start anew in the middle of the checks."""
    with rehearsal(warm) as running:
        restarting = Restart(running)
        target = PrimedServer(url=running.url, timeout=30.0)
        outcome = asyncio.run(prepare_set(warm, target, Wanted(ranks=RANKS), restarting.after_seeds))
    assert outcome.diagnosis[0].cause == "restarted"
    assert outcome.findings


class Restart:
    """Empties a rehearsal as a restart does once its three seeds have ended."""

    def __init__(self, running) -> None:
        self._ranks = running.life.ranks
        self._ended = 0

    def after_seeds(self, done: int, total: int) -> None:
        del total
        if done == 3:
            for rank in self._ranks:
                rank.flush()
                rank.requests = -1000


# Going on where the last run stopped.


def test_a_second_run_sends_one_check_a_rank_and_no_seed(warm):
    with rehearsal(warm) as running:
        prepared(warm, running.url)
        before = len(rows_sent(running, warm))
        assert prepared(warm, running.url).prepared
        assert sorted(rows_sent(running, warm)[before:]) == [f"check-r0{r}-000000" for r in RANKS]


def test_checks_that_were_not_sent_decide_and_sent_ones_are_not_repeated():
    workload = a_set("checks")
    with rehearsal(workload, times=SLOW) as running:
        interrupted(workload, running, '"id":"check-r00-000001"')
        before = rows_sent(running, workload)
        assert "check-r00-000000" in before
        assert prepared(workload, running.url, concurrency=1, resume=True).prepared
        after = rows_sent(running, workload)[len(before) :]
        assert after == [f"check-r0{r}-00000{n}" for r in RANKS for n in (0, 1)][1:]


def test_seeds_that_are_gone_are_noticed_and_sent_again(warm):
    with rehearsal(warm) as running:
        prepared(warm, running.url)
        for rank in running.life.ranks:
            rank.flush()
        outcome = prepared(warm, running.url)
        assert outcome.prepared
        assert any("no longer holds" in note for note in outcome.notes)
        assert rows_sent(running, warm).count("seed-r00-000000") == 2


def test_requests_of_others_since_the_preparation_make_it_start_over(warm):
    """They may have been the formal rows, which the cache would now hold."""
    with rehearsal(warm) as running:
        prepared(warm, running.url)
        running.chat("somebody else's")
        outcome = prepared(warm, running.url)
        assert any("perhaps the formal rows" in note for note in outcome.notes)
        assert rows_sent(running, warm).count("seed-r00-000000") == 2


def test_a_run_that_ended_with_a_finding_is_not_gone_on_with(warm):
    with rehearsal(warm, faults=("lose-cache=1",), port=0) as running:
        prepared(warm, running.url)
        outcome = prepared(warm, running.url)
        assert any("ended with a finding" in note for note in outcome.notes)


def test_fresh_starts_over(warm):
    with rehearsal(warm) as running:
        prepared(warm, running.url)
        assert prepared(warm, running.url, fresh=True).prepared
        assert rows_sent(running, warm).count("seed-r00-000000") == 2


def test_an_interrupted_run_says_what_was_under_way_and_goes_on(warm):
    with rehearsal(warm, times=SLOW) as running:
        interrupted(warm, running, '"id":"seed-r01-000000"')
        last = journal(warm)[-1]
        assert (last["id"], last["success"], last["error"]) == ("seed-r01-000000", False, "interrupted")
        outcome = prepared(warm, running.url, resume=True)
        assert outcome.unproved == ["that nothing was sent since the last run (--resume)"]
        assert rows_sent(running, warm).count("seed-r00-000000") == 1


def test_an_interrupted_run_is_not_gone_on_with_unasked(warm):
    """The counters moved with what was interrupted, so they cannot show that nothing else was sent."""
    with rehearsal(warm, times=SLOW) as running:
        interrupted(warm, running, '"id":"seed-r01-000000"')
        outcome = prepared(warm, running.url)
        assert any("--resume goes on with it" in note for note in outcome.notes)
        assert (outcome.prepared, outcome.unproved) == (True, [])
        assert rows_sent(running, warm).count("seed-r00-000000") == 2


def interrupted(workload, running, mark: str) -> None:
    """Prepare one rank after another, and interrupt once the journal shows the mark."""
    path = workload.folder / JOURNAL

    async def run():
        task = asyncio.create_task(
            prepare_set(workload, PrimedServer(url=running.url), Wanted(ranks=RANKS, concurrency=1))
        )
        while not path.exists() or mark not in path.read_text():  # noqa: ASYNC110 (the journal is a file)
            await asyncio.sleep(0.005)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(run())


# Parts of it.


def test_only_seed_and_only_check_do_one_step(warm):
    with rehearsal(warm) as running:
        prepared(warm, running.url, only="seed")
        assert {name.split("-")[0] for name in rows_sent(running, warm)} == {"seed"}
        assert prepared(warm, running.url, only="check").prepared
        assert rows_sent(running, warm)[3:] == [f"check-r0{r}-000000" for r in RANKS]


def test_a_check_alone_on_an_unseeded_server_falls_short(warm):
    with rehearsal(warm) as running:
        outcome = prepared(warm, running.url, only="check")
        assert outcome.diagnosis[0].cause == "rank_not_seeded"


def test_some_ranks_do_not_empty_the_others(warm):
    with rehearsal(warm) as running:
        prepared(warm, running.url, ranks=(0, 1))
        before = len(rows_sent(running, warm))
        assert prepared(warm, running.url, ranks=(2,)).prepared
        assert rows_sent(running, warm)[before:] == ["seed-r02-000000", "check-r02-000000"]
        assert [path for path, _, _ in running.requests].count("/flush_cache") == 1


def test_a_rank_that_fell_short_is_not_prepared_again_where_that_empties_others(warm):
    with rehearsal(warm, faults=("lose-cache=2",)) as running:
        assert prepared(warm, running.url).findings
        before = len(rows_sent(running, warm))
        outcome = prepared(warm, running.url, ranks=(2,))
        assert "would empty rank 0-1, too" in outcome.refused
        assert (outcome.prepared, outcome.findings) == (False, [])
        assert len(rows_sent(running, warm)) == before
        assert [path for path, _, _ in running.requests].count("/flush_cache") == 1
        done = CliRunner().invoke(
            app, ["prepare", str(warm.folder), "--url", running.url, "--ranks", "2", "--quiet"]
        )
        assert (done.exit_code, done.output[:13]) == (1, "NOT PREPARED:")
        assert prepared(warm, running.url, ranks=(2,), flush=True).findings
        assert [path for path, _, _ in running.requests].count("/flush_cache") == 2


def test_no_flush_sends_none(warm):
    with rehearsal(warm) as running:
        assert prepared(warm, running.url, flush=False).prepared
        assert "/flush_cache" not in [path for path, _, _ in running.requests]


def test_ranks_go_in_parallel_and_within_the_bound(warm):
    slow = TimeModel(prefill_rate=4000, decode_rate=1e9)
    with rehearsal(warm, times=slow) as running:
        most = Watch(running)
        assert prepared(warm, running.url, concurrency=2).prepared
        assert most.stop() == 2


class Watch:
    """Samples how many ranks of a rehearsal are busy at once."""

    def __init__(self, running) -> None:
        self._ranks = running.life.ranks
        self._most, self._going = 0, True
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while self._going:
            self._most = max(self._most, sum(rank.busy for rank in self._ranks))
            time.sleep(0.005)

    def stop(self) -> int:
        self._going = False
        self._thread.join()
        return self._most


@pytest.mark.parametrize("text", ["3", "0,3", "a", "1-", "", "2-1"])
def test_ranks_that_are_none_of_the_set_are_refused(text):
    with pytest.raises(WlgenError, match="--ranks"):
        parse_ranks(text, RANKS)


def test_ranks_are_single_numbers_and_spans():
    assert parse_ranks(None, RANKS) == (0, 1, 2)
    assert parse_ranks("5, 0-2,1", range(6)) == (0, 1, 2, 5)


def test_a_set_without_seeds_and_checks_has_nothing_to_prepare():
    workload = small_set(name="formal", cached=ZERO, check=0)
    (workload.folder / JOURNAL).unlink(missing_ok=True)
    with rehearsal(workload) as running:
        outcome = prepared(workload, running.url)
        assert (outcome.prepared, outcome.nothing, outcome.findings) == (True, True, [])
        assert (outcome.flush.requests, rows_sent(running, workload)) == (1, [])
        done = CliRunner().invoke(app, ["prepare", str(workload.folder), "--url", running.url])
    assert done.exit_code == 0
    assert "NOTHING TO PREPARE: the set has no seeds and no checks; the cache was emptied." in done.output


# Rounds.


@pytest.fixture
def rounds():
    workload = small_set(name="rounds", rounds=3)
    (workload.folder / JOURNAL).unlink(missing_ok=True)
    return workload


def test_a_round_sends_its_own_checks_alone_and_empties_nothing(rounds):
    with rehearsal(rounds) as running:
        first = prepared(rounds, running.url)
        assert (first.prepared, first.steps[Split.SEED].requests, first.steps[Split.CHECK].requests) == (
            True,
            3,
            3,
        )
        assert rows_sent(running, rounds)[3:] == [f"check-r0{r}-000000" for r in RANKS]
        later = prepared(rounds, running.url, round=2)
        assert (later.prepared, later.findings, later.steps[Split.SEED].requests) == (True, [], 0)
        assert rows_sent(running, rounds)[6:] == [f"check-r0{r}-000000-k2" for r in RANKS]
        assert [path for path, _, _ in running.requests].count("/flush_cache") == 1
        assert journal(rounds)[-1]["event"] == "prepared"


def test_a_round_needs_seeds_that_the_server_holds(rounds):
    with rehearsal(rounds) as running:
        with pytest.raises(WlgenError, match="0 of 3 answered by this server"):
            prepared(rounds, running.url, round=1)
        prepared(rounds, running.url, ranks=(0, 1))
        with pytest.raises(WlgenError, match="not seed-r02-000000"):
            prepared(rounds, running.url, round=1)
        assert prepared(rounds, running.url, round=1, ranks=(0, 1)).prepared


def test_a_round_whose_seeds_are_gone_falls_short_and_starts_nothing_over(rounds):
    with rehearsal(rounds) as running:
        assert prepared(rounds, running.url).prepared
        running.post("/flush_cache", {})
        before = len(rows_sent(running, rounds))
        outcome = prepared(rounds, running.url, round=1, concurrency=1)
        assert [f.id for f in outcome.findings] == ["check-r00-000000-k1"]
        assert rows_sent(running, rounds)[before:] == ["check-r00-000000-k1"]


@pytest.mark.parametrize(
    ("options", "said"), [(["--round", "3"], "0, 1, 2"), (["--round", "1", "--only", "seed"], "alone")]
)
def test_a_round_that_cannot_be_prepared_is_refused(rounds, options, said):
    done = CliRunner().invoke(app, ["prepare", str(rounds.folder), "--url", "http://127.0.0.1:9", *options])
    assert said in str(done.exception)


@pytest.mark.parametrize(("name", "client"), [("vllm", "aisbench"), ("system", "aiperf")])
def test_the_client_that_comes_next_pins_each_row_and_keeps_cached_tokens(name, client):
    said = outcome_text(Outcome(prepared=True), a_set(name), Wanted(ranks=RANKS))
    assert f"--to {client} --split formal --output formal" in said


@pytest.mark.parametrize(("wanted", "said"), [(None, 0), (0, 0), (2, 2)])
def test_the_formal_rows_that_come_next_are_of_one_round(rounds, wanted, said):
    text = outcome_text(Outcome(prepared=True), rounds, Wanted(ranks=RANKS, round=wanted))
    assert f"--split formal --round {said} --output formal" in text


def test_a_manifest_reopened_prepares_the_same(warm):
    with rehearsal(warm) as running:
        assert prepared(open_workload(warm.folder), running.url).prepared
