"""Requests that reach another cache than planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import accumulate

from wlgen.cache.rule import CacheRule
from wlgen.engines import engine
from wlgen.faults import Asked, Fault, Figure, Parameters, Run, Says, View, of_each

CACHES = (2, 3, 4)  # caches that may stand where the plan has one
TURN = 64  # ranks from which a turn may begin


def _turns(view: View) -> Iterator[Parameters]:
    if len(view.ranks) > 1 and view.off:
        yield from ({"in_turn_from": rank} for rank in view.ranks[:TURN])


def _unpinned(view: View) -> Iterator[Parameters]:
    if view.deviating_in("rank"):  # the answers say which rank it was
        yield {"by": "answers"}
        return
    yield from _turns(view)
    if _is_scattered(view):
        yield {"by": "load", "rows": len(view.short), "ranks": len(view.ranks)}


def _is_scattered(view: View) -> bool:
    """Return whether misses lie among hits on most ranks, as a balancer by load leaves them."""
    missed = {row.rank for row in view.short}
    hit = {row.rank for row in view.seen if row.as_planned(row.cached) and row.planned}
    both = missed & hit
    return len(view.ranks) > 1 and len(both) * 2 > len(view.ranks) and len(view.short) > len(both)


def _routed(run: Run, parameters: Parameters) -> Run:
    ranks = sorted({asked.rank for asked in run.asked})
    if parameters.get("by") == "answers":
        asked = tuple(a if a.served is None else a._replace(rank=a.served) for a in run.asked)
        return replace(run, asked=asked)
    if "by" in parameters:
        return replace(run, reported=partial(_somewhere, run.rule))
    turn = ranks.index(parameters["in_turn_from"]) if parameters["in_turn_from"] in ranks else 0
    routed = []
    for each in run.asked:
        routed.append(each if each.row is None else each._replace(rank=ranks[turn % len(ranks)]))
        turn += each.row is not None
    return replace(run, asked=tuple(routed))


def _somewhere(rule: CacheRule, asked: Asked, cached: int) -> frozenset[Figure]:
    """Return what a row may find on any rank: nothing, its plan, or some levels of its prefix."""
    ends = accumulate(tokens for _, tokens in asked.chain)
    levels = (rule.cached_len(end, asked.prompt_len) for end in ends)
    return frozenset({0, cached, *(level for level in levels if level < cached)})


def _all_on(view: View) -> Iterator[Parameters]:
    if len(view.ranks) > 1 and any({"cached", "rank"} & row.deviates for row in view.rows):
        yield from ({"rank": rank, "seeds": "there"} for rank in view.ranks[:1])
        yield from ({"rank": rank} for rank in view.ranks[:16])


def _one_rank(run: Run, parameters: Parameters) -> Run:
    """Send every row to one rank; "seeds: there": the seeds and checks, too."""
    moves = "seeds" in parameters
    asked = tuple(a._replace(rank=parameters["rank"]) if a.row is not None or moves else a for a in run.asked)
    return replace(run, asked=asked)


def _more(view: View) -> Iterator[Parameters]:
    if view.short:
        yield from ({"caches": count} for count in CACHES)


def _several_caches(run: Run, parameters: Parameters) -> Run:
    """Let each rank stand for several caches, which get its requests in turn."""
    count, turns = parameters["caches"], Counter[int]()
    asked = []
    for a in run.asked:
        turns[a.rank] += 1
        asked.append(a._replace(rank=a.rank * count + (turns[a.rank] - 1) % count))
    return replace(run, asked=tuple(asked))


def _says_moved(view: View, _: Parameters) -> Says:
    return of_each(view.deviating_in("rank"), "rank")


def _says_moved_there(view: View, parameters: Parameters) -> Says:
    """Say of each row that it was served by the one rank; of none where an answer names another."""
    told = {row.served_by for row in view.rows} - {None}
    return _says_moved(view, parameters) if told <= {parameters["rank"]} else {}


def _absent_ranks(view: View) -> Iterator[Parameters]:
    failed = {row.rank for row in view.deviating_in("failed")}
    fine = {row.rank for row in view.rows if row.success and row.results}
    if failed and fine and min(failed) > max(fine):
        yield {"ranks": min(failed)}


def _says_failed(view: View, parameters: Parameters) -> Says:
    failed = view.deviating_in("failed")
    return of_each((row for row in failed if row.rank >= parameters["ranks"]), "failed")


def _pin(view: View) -> str:
    """Return how a row is pinned on the set's engine, and behind the router of its pairs."""
    of = engine(view.run.rule.engine)
    by = f'"{of.pin_field}" in its body' if of.pin_field else "the header X-data-parallel-rank"
    pair = (
        f'; behind a prefill/decode router "{of.prefill_pin_field}" too, or send it through `wlgen route`'
        if of.prefill_pin_field
        else ""
    )
    return f"Pin each row to its rank by {by}{pair}"


FAULTS = (
    Fault(
        name="unpinned",
        takes=("in_turn_from",),
        propose=_unpinned,
        act=_routed,
        says=_says_moved,
        words=lambda p: (
            "the server chose the rank of each request itself, "
            + (
                f"in turn from rank {p['in_turn_from']}"
                if "in_turn_from" in p
                else "by load"
                if p["by"] == "load"
                else "as its answers say"
            )
        ),
        remedy=_pin,
        scope=8,
        apart="the rank of each answer",
    ),
    Fault(
        name="one_rank_serves_all",
        takes=("rank", "seeds"),
        propose=_all_on,
        act=_one_rank,
        says=_says_moved_there,
        words=lambda p: (
            f"rank {p['rank']} served every row"
            + (", the seeds and checks too: there may be one cache only" if "seeds" in p else "")
        ),
        remedy=_pin,
        scope=8,
        apart="the rank of each answer",
    ),
    Fault(
        name="more_caches_than_ranks",
        takes=("caches",),
        propose=_more,
        act=_several_caches,
        words=lambda p: (
            f"each rank of the set stands for {p['caches']} caches, which get its requests in turn"
        ),
        remedy=lambda _: "Build the set for as many dp_ranks as there are caches, and pin each row",
        scope=8,
        apart="the rank of each answer",
    ),
    Fault(
        name="no_such_rank",
        propose=_absent_ranks,
        says=_says_failed,
        words=lambda p: f"the server has {p['ranks']} ranks: it refuses rows of rank {p['ranks']} and above",
        remedy=lambda _: "Start it with as many ranks as the set has (--dp-size), or build the set for fewer",
        scope=4,
    ),
)
