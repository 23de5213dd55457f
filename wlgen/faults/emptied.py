"""Caches that lose what they held: flushed, restarted, or never keeping anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wlgen.faults import Asked, Aspect, Fault, Parameters, Run, Says, SeenRow, View
from wlgen.faults._words import PREPARE, ranks_in_words, short_ranks


def _at(view: View) -> Iterator[Parameters]:
    """Propose the place of the first short row, on all ranks or on its own."""
    for row in view.in_order(view.short)[:1]:
        yield {"before": row.id}
        if len(view.ranks) > 1:
            yield {"before": row.id, "rank": row.rank}


def _emptied(run: Run, parameters: Parameters) -> Run:
    place = _place(run, parameters["before"])
    return replace(run, flushes=run.flushes | {(place, parameters.get("rank"))})


def _place(run: Run, row_id: str) -> int:
    return next((n for n, asked in enumerate(run.asked) if asked.id == row_id), len(run.asked))


def _restarts(view: View) -> Iterator[Parameters]:
    """Propose the place of the first short row, and that behind the first row that failed."""
    for row in view.in_order(view.short)[:1]:
        yield {"before": row.id}
    order = view.in_order(view.rows)
    failed = next((n for n, row in enumerate(order) if "failed" in row.deviates), len(order))
    while failed < len(order) and "failed" in order[failed].deviates:
        failed += 1
    if failed < len(order):
        yield {"before": order[failed].id}


def _failed_around(view: View, parameters: Parameters) -> Says:
    """Say that the failures next to the restart are its own: those between the rows around it."""
    order = view.in_order(view.rows)
    at = next((n for n, row in enumerate(order) if row.id == parameters["before"]), len(order))
    found: dict[int, frozenset[Aspect]] = {}
    for step in (-1, 1):
        n = at - 1 if step < 0 else at
        while 0 <= n < len(order) and "failed" in order[n].deviates:
            found[order[n].number] = frozenset({"failed"})
            n += step
    return found


def _losses(view: View) -> Iterator[Parameters]:
    """Propose ranks, a group, or all; from the start, or from the first short row on."""
    short = view.in_order(view.short)
    if not short:
        return
    first = short[0]
    ranks, groups = short_ranks(view), sorted({row.group for row in short})
    whole = _keepers(view)
    scopes: list[dict[str, object]] = [{}]
    if len(view.ranks) > 1:
        scopes.append({"ranks": ranks})
        scopes += [{"ranks": [rank]} for rank in ranks[:8]] if len(ranks) > 1 else []
    if len({row.group for row in view.rows}) > 1:
        scopes += [{"group": group} for group in groups[:8]]
    for scope in scopes:
        yield scope
        start = next((r for r in short if _within(scope, r)), first)
        if start.number not in whole:
            yield {**scope, "from": start.id}


def _keepers(view: View) -> set[int]:
    """Return the first row of each rank."""
    firsts: dict[int, SeenRow] = {}
    for row in view.in_order(view.rows):
        firsts.setdefault(row.rank, row)
    return {row.number for row in firsts.values()}


def _within(scope: Parameters, row: SeenRow) -> bool:
    return row.rank in scope.get("ranks", (row.rank,)) and row.group == scope.get("group", row.group)


def _keeping_nothing(run: Run, parameters: Parameters) -> Run:
    """Empty the ranks' caches at the place, and keep nothing from there on.

    Of a group alone the pages of other groups stay. Before its place in the run the group finds its own; from
    there on its requests find nothing, as if each had another text.
    """
    place = _place(run, parameters["from"]) if "from" in parameters else 0
    ranks, group = parameters.get("ranks"), parameters.get("group")
    asked = tuple(
        _losing(a, whole_text=group is None or "from" not in parameters)
        if n >= place and (ranks is None or a.rank in ranks) and (group is None or a.group == group)
        else a
        for n, a in enumerate(run.asked)
    )
    if group is not None:
        return replace(run, asked=asked)
    flushes = {(place, rank) for rank in ranks} if ranks is not None else {(place, None)}
    return replace(run, asked=asked, flushes=run.flushes | flushes)


def _losing(asked: Asked, *, whole_text: bool) -> Asked:
    chain = asked.chain if whole_text else ((("lost", asked.id), asked.prompt_len),)
    return asked._replace(keeps=False, chain=chain)


def _lost(parameters: Parameters) -> str:
    who = "the server"
    if "ranks" in parameters:
        who = ranks_in_words(parameters["ranks"])
    if "group" in parameters:
        who = f"the server, of group {parameters['group']},"
    several = len(parameters.get("ranks", ())) > 1
    since = f" from {parameters['from']} on" if "from" in parameters else ""
    return f"{who} keep{'' if several else 's'} nothing{since}"


FAULTS = (
    Fault(
        name="flushed",
        takes=("before", "rank"),
        propose=_at,
        act=_emptied,
        touches=lambda _, p: {p["rank"]} if "rank" in p else None,
        words=lambda p: (
            "the cache"
            + (f" of rank {p['rank']}" if "rank" in p else "")
            + f" was emptied before {p['before']}"
        ),
        remedy=lambda _: (
            f"Find out who flushed the cache (a flush of another client, a new model), then "
            f"{PREPARE[0].lower()}{PREPARE[1:]} and send the set once"
        ),
        scope=6,
        apart="process_start_time_seconds in the counters before and after: a flush leaves it",
    ),
    Fault(
        name="restarted",
        takes=("before",),
        propose=_restarts,
        act=_emptied,
        says=_failed_around,
        words=lambda p: f"the server restarted before {p['before']}",
        remedy=lambda _: f"Find out why in its log, then {PREPARE[0].lower()}{PREPARE[1:]}: it seeds anew",
        scope=6,
        apart="process_start_time_seconds in the counters before and after: a restart moves it",
    ),
    Fault(
        name="lost_cache",
        takes=("ranks", "group", "from"),
        propose=_losses,
        act=_keeping_nothing,
        touches=lambda _, p: set(p["ranks"]) if "ranks" in p else None,
        words=_lost,
        remedy=lambda _: (
            "Look at the server's flags, log and memory: prefix caching on, room for the prefixes "
            "of each rank, requests that reach the ranks that hold them"
        ),
        scope=5,
        apart="a check sent now: a rank that keeps nothing misses it, too",
    ),
)
