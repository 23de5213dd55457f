"""A preparation names the cause with what it knows beyond an audit."""

from __future__ import annotations

from kit.rules import made_rule

from wlgen.audit.as_seen import RowSeen
from wlgen.audit.findings import Promised
from wlgen.readers import Result
from wlgen.server.causes import causes
from wlgen.workload.bounds import UNBOUNDED, Bound
from wlgen.workload.splits import BY_NAME

RULE = made_rule(name="vllm", engine="vllm", page_size=64, hit_quantum=64)


def row(split: str, rank: int, *, prompt_len: int = 1000, cached_len: int = 0) -> Promised:
    return Promised(
        id=f"{split}-r{rank:02d}-000000",
        split=BY_NAME[split],
        dp_rank=rank,
        group="all",
        prompt_len=prompt_len,
        shared_len=704,
        cached_len=cached_len,
        output_len=1,
        text_sha256="",
        bound=Bound(tokens=1) if split == "check" else UNBOUNDED,
    )


def check(rank: int, cached: int) -> RowSeen:
    found = row("check", rank, cached_len=704)
    result = Result(place="", id=found.id, prompt_tokens=1000, cached_tokens=cached, output_tokens=1)
    return RowSeen(row=found, results=[result], cached=cached)


def told(*rows: RowSeen, answered=(), pinned=True, restarted=False):
    """Return the causes where the seeds of these ranks, of two, were answered."""
    ids = [f"seed-r{rank:02d}-000000" for rank in answered]
    seeds = [row("seed", rank, prompt_len=705) for rank in range(2)]
    return causes(rows, RULE, seeds=seeds, answered=ids, pinned=pinned, restarted=restarted)


def test_seeds_that_were_answered_are_not_called_unsent():
    (cause,) = told(check(0, 704), check(1, 0), answered=(0, 1))
    assert (cause.cause, cause.parameters) == ("lost_cache", {"ranks": [1]})
    assert cause.explains == "rank 1 keeps nothing"
    assert not any(rival.cause == "rank_not_seeded" for rival in cause.rivals)


def test_a_rank_without_an_answered_seed_was_not_seeded():
    (cause,) = told(check(0, 704), check(1, 0), answered=(0,))
    assert (cause.cause, cause.parameters) == ("rank_not_seeded", {"ranks": [1]})


def test_unproved_pins_are_said_beside_a_cache_that_keeps_nothing():
    (cause,) = told(check(0, 0), answered=(0,), pinned=False)
    assert "pins are dropped on the way" in cause.explains
    assert "pins are dropped" not in told(check(0, 0), answered=(0,))[0].explains


def test_a_restart_that_is_known_comes_first():
    found = told(check(0, 0), answered=(0,), restarted=True)
    assert found[0].cause == "restarted"
    assert len(found) == 1
