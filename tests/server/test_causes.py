"""A preparation names the cause with what it knows beyond an audit."""

from __future__ import annotations

from kit.rules import made_rule

from wlgen.audit.diagnosis import Pair
from wlgen.audit.findings import Promised
from wlgen.encodings import Message
from wlgen.readers import Result
from wlgen.server.causes import causes
from wlgen.workload.bounds import Bound
from wlgen.workload.rows import Row

RULE = made_rule(name="vllm", engine="vllm", page_size=64, hit_quantum=64)


def row(split: str, rank: int, *, prompt_len: int = 1000, cached_len: int = 0) -> Row:
    return Row(
        id=f"{split}-r{rank:02d}-000000",
        split=split,
        dp_rank=rank,
        group="all",
        round=0,
        messages=(Message("user", "text"),),
        body_len=prompt_len,
        prompt_len=prompt_len,
        shared_len=704,
        cached_len=cached_len,
        output_len=1,
        prompt_sha256="",
    )


def check(rank: int, cached: int) -> Pair:
    found = row("check", rank, cached_len=704)
    return Pair(
        Promised.of(found, Bound(tokens=1)),
        Result(place="", id=found.id, prompt_tokens=1000, cached_tokens=cached),
    )


def told(*pairs: Pair, seeds=(), pinned=True, restarted=False):
    return causes(pairs, RULE, seeds=seeds, pinned=pinned, restarted=restarted)


def test_seeds_that_were_answered_are_not_called_unsent():
    short = [row("seed", rank, prompt_len=705) for rank in range(2)]
    (cause,) = told(check(0, 704), check(1, 0), seeds=short)
    assert cause.cause == "rank_not_seeded"
    assert "rank 1 answered its seeds" in cause.evidence
    assert "less than the 705 tokens" in cause.evidence
    assert "shape: short" not in cause.evidence
    assert "pins are dropped" not in cause.evidence


def test_full_length_seeds_point_at_a_hybrid_model():
    (cause,) = told(check(0, 0), seeds=[row("seed", 0, prompt_len=1000)])
    assert "shape: short" in cause.evidence


def test_unproved_pins_are_the_first_suspect():
    (cause,) = told(check(0, 0), seeds=[row("seed", 0, prompt_len=705)], pinned=False)
    assert "tokens: pins are dropped" in cause.evidence


def test_ranks_without_an_answered_seed_are_left_to_the_audit():
    (cause,) = told(check(0, 0), check(0, 0))
    assert "seed was not sent" in cause.evidence or "nothing was seeded" in cause.evidence


def test_a_restart_that_is_known_comes_first():
    found = told(check(0, 0), seeds=[row("seed", 0, prompt_len=705)], restarted=True)
    assert found[0].cause == "server_restarted"
