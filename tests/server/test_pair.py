"""Prepare and probe of a prefill/decode pair: pins proved on the prefill side, and its figures alone."""

from __future__ import annotations

import asyncio
import time

import httpx
import orjson
import pytest
from kit.pairs import RehearsedPair, rehearsed_pair, routed
from kit.rehearsals import ZERO, small_set
from typer.testing import CliRunner

from wlgen.cli import app
from wlgen.errors import WlgenError
from wlgen.rehearse.dialects import RefusedError
from wlgen.rehearse.pair import PrefillSide
from wlgen.server import pins
from wlgen.server.journal import JOURNAL
from wlgen.server.outcome import Wanted
from wlgen.server.prepare import PrimedServer, prepare_set
from wlgen.server.probe import probe_server
from wlgen.workload.splits import Split

RANKS = (0, 1, 2)


@pytest.fixture
def warm():
    return fresh("pair-warm")


def fresh(name: str, **changes: object):
    workload = small_set(name=name, **changes)
    (workload.folder / JOURNAL).unlink(missing_ok=True)
    return workload


def prepared(workload, pair: RehearsedPair, url: str = "", **wanted: object):
    sides = {} if url else {"prefill": (pair.prefill,), "decode": (pair.decode,)}
    target = PrimedServer(url=url or pair.url, timeout=30.0, **sides)
    ranks = tuple(range(workload.manifest.dp_ranks))
    return asyncio.run(prepare_set(workload, target, Wanted(**{"ranks": ranks} | wanted)))


@pytest.mark.parametrize("changes", [{}, {"cached": ZERO}, {"prefix": "{shared_by: rank}"}], ids=str)
def test_a_pair_behind_mini_lb_is_prepared(changes):
    workload = fresh(f"pair-{len(str(changes))}", **changes)
    with rehearsed_pair(workload) as pair:
        outcome = prepared(workload, pair)
    assert (outcome.prepared, outcome.findings, outcome.unproved) == (True, [], [])
    said = "\n".join(outcome.proofs)
    assert "a pin binds the decode rank, too" in said
    assert "a prompt sent twice to rank 0 hits, on rank 2 it misses, and the prefill side computed" in said


def test_a_decode_side_of_fewer_ranks_needs_wlgens_router(warm):
    with rehearsed_pair(warm, decode_ranks=2) as pair:
        with pytest.raises(WlgenError, match=r"3 decode ranks: .* found 2. Start `wlgen route"):
            prepared(warm, pair)
        with routed(pair) as url:
            outcome = prepared(warm, pair, url)
        assert (outcome.prepared, outcome.unproved) == (True, [])
        assert "pins the prefill side alone" in "\n".join(outcome.proofs)
        assert {rank.requests for rank in pair.life.decode.ranks} != {0}


def test_two_prefill_servers_need_wlgens_router(warm):
    """Any other router chooses one of them at random."""
    with rehearsed_pair(warm) as pair:
        target = PrimedServer(url=pair.url, prefill=(pair.prefill, pair.prefill), decode=(pair.decode,))
        with pytest.raises(WlgenError, match="expected one prefill server behind this router"):
            asyncio.run(prepare_set(warm, target, Wanted(ranks=RANKS)))


def test_the_ranks_of_several_prefill_servers_count_on_in_order():
    """Four ranks on two servers of two: rank 3 is rank 1 of the second, and each rank has its own seed."""
    workload = fresh("pair-several", ranks=4, prefix="{shared_by: rank}")
    with rehearsed_pair(workload, prefill_servers=2, decode_ranks=3) as pair, routed(pair) as url:
        prefill, decode = (pair.prefill, *pair.further), (pair.decode,)
        target = PrimedServer(url=url, prefill=prefill, decode=decode, timeout=30.0)
        outcome = asyncio.run(prepare_set(workload, target, Wanted(ranks=(0, 1, 2, 3))))
        before = pair.computed
        for row in workload.rows(("formal",)):
            body = {"messages": [m._asdict() for m in row.messages], "max_tokens": 1}
            answer = httpx.post(f"{url}/v1/chat/completions", json=body | {"routed_dp_rank": row.dp_rank})
            details = answer.json()["usage"]["prompt_tokens_details"]
            assert details["cached_tokens"] == row.cached_len
        after = pair.computed
    assert (outcome.prepared, outcome.findings, outcome.unproved) == (True, [], [])
    for rank in range(4):
        rows = list(workload.rows(("formal",), (rank,)))
        assert after[rank] - before[rank] == sum(row.prompt_len - row.cached_len for row in rows)


def test_sglang_router_loses_the_pin_of_a_chat_and_it_is_said_at_once(warm):
    with rehearsed_pair(warm, router="sglang-router") as pair:
        started = time.monotonic()
        with pytest.raises(WlgenError, match="served, which cannot exist") as failure:
            prepared(warm, pair)
    assert "sglang-router keeps it on /v1/completions only. Start `wlgen route" in str(failure.value)
    assert time.monotonic() - started < 10


def test_sglang_router_keeps_the_pin_of_a_text():
    raw = fresh("pair-raw", encoding="raw")
    with rehearsed_pair(raw, router="sglang-router") as pair:
        assert prepared(raw, pair).prepared


def test_a_pin_that_hangs_is_not_waited_for(warm, monkeypatch):
    """The real decode side hangs for 300 s when the prefill side refuses."""
    monkeypatch.setattr(pins, "PIN_SECONDS", 0.5)

    def conflict(side, ask, named, room):
        del side, ask, named
        raise RefusedError(500, f"follow_bootstrap_room conflict: bootstrap_room {room}")

    monkeypatch.setattr(PrefillSide, "_rank", conflict)
    with rehearsed_pair(warm, hangs=30) as pair:
        started = time.monotonic()
        with pytest.raises(WlgenError, match=r"no whole answer within 0\.5 s.*wlgen route"):
            prepared(warm, pair)
        assert time.monotonic() - started < 10
        with routed(pair) as url, pytest.raises(WlgenError, match="follow_bootstrap_room conflict"):
            prepared(warm, pair, url)


def test_each_server_is_flushed_itself_and_waited_for(warm):
    with rehearsed_pair(warm) as pair:
        pair.life.decode.ranks[1].running += 1
        with pytest.raises(WlgenError, match=f"{pair.decode}: busy for 0.3 s"):
            prepared(warm, pair, patience=0.3)
        pair.life.decode.ranks[1].running -= 1
        assert prepared(warm, pair).prepared


def test_with_decodes_cache_the_prefill_sides_counters_are_the_figure(warm):
    with rehearsed_pair(warm, decode_radix=True) as pair:
        outcome = prepared(warm, pair)
        assert outcome.prepared
        assert "decode radix cache: ON" in "\n".join(outcome.proofs)
        assert outcome.steps[Split.CHECK].reused == sum(row.cached_len for row in warm.rows(("check",)))
    with rehearsed_pair(warm, decode_radix=True, faults=("lose-cache=1",)) as pair:
        outcome = prepared(warm, pair, concurrency=1)
        assert [f.id for f in outcome.findings] == ["check-r01-000000"]  # though decode's cache claims a hit


def test_the_addresses_stand_in_the_journal_and_other_addresses_start_over(warm):
    with rehearsed_pair(warm) as pair:
        prepared(warm, pair)
        begin = orjson.loads((warm.folder / JOURNAL).read_bytes().splitlines()[0])
        assert (begin["prefill"], begin["decode"]) == ([pair.prefill], [pair.decode])
        assert (
            prepared(warm, pair).steps[Split.SEED].requests == 0
        )  # counters of the prefill side moved by nothing else
        httpx.post(f"{pair.url}/v1/completions", json={"prompt": [1, 2, 3], "max_tokens": 1})
        assert prepared(warm, pair).steps[Split.SEED].requests == 3


def test_the_command_takes_both_sides(warm):
    with rehearsed_pair(warm) as pair:
        sides = ["--prefill", pair.prefill, "--decode", pair.decode]
        done = CliRunner().invoke(app, ["prepare", str(warm.folder), "--url", pair.url, *sides])
        assert done.exit_code == 0, done.output
        assert done.output.splitlines()[-1].startswith("PREPARED: ")


def test_a_pair_is_probed_with_its_ranks_and_pinned_only():
    with rehearsed_pair() as pair:
        sides = {"prefill": [pair.prefill], "decode": [pair.decode]}
        found = asyncio.run(
            probe_server(pair.url, engine=None, model=None, patience=30, longest=2000, **sides)
        )
        assert found.dp_ranks == 2
        assert found.separate
        assert not pair.life.ended.is_set()
        assert found.facts[0].startswith(f"pair: prefill {pair.prefill} (2 ranks)")


@pytest.mark.parametrize("side", ["prefill", "decode"])
@pytest.mark.parametrize("command", ["prepare", "probe"])
def test_a_side_given_as_url_lives_on(warm, command, side):
    with rehearsed_pair(warm) as pair:
        folder = [str(warm.folder)] if command == "prepare" else []
        done = CliRunner().invoke(app, [command, *folder, "--url", getattr(pair, side)])
        assert f"the {side} server of a pair" in str(done.exception)
        assert not pair.life.ended.is_set()
        assert sum(rank.looked_up for rank in (*pair.life.prefill.ranks, *pair.life.decode.ranks)) == 0
