"""Requests that the server had seen before: the whole set, some rows, or the client's warm-up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wlgen.faults import Fault, Parameters, Run, View
from wlgen.faults._words import AGAIN

MOST_ROWS = 20000  # rows that a part may name
TRIED = 8  # rows that may be the one that was sent before


def _twice(view: View) -> Iterator[Parameters]:
    if view.above:
        yield {}
        if len(view.above) > 1:
            yield {"rows": [row.id for row in view.above[:MOST_ROWS]]}


def _sent_before(run: Run, parameters: Parameters) -> Run:
    wanted = set(parameters["rows"]) if "rows" in parameters else None
    again = [
        asked._replace(row=None, start=None, end=None)
        for asked in run.asked
        if asked.row is not None and (wanted is None or asked.id in wanted)
    ]
    place = next((n for n, asked in enumerate(run.asked) if asked.row is not None), len(run.asked))
    moved = frozenset((at + len(again) if at >= place else at, rank) for at, rank in run.flushes)
    return replace(run, asked=(*run.asked[:place], *again, *run.asked[place:]), flushes=moved)


def _one(view: View) -> Iterator[Parameters]:
    for row in view.in_order(view.above)[:TRIED]:  # a later turn shows in the turns before it, too
        yield {"rows": [row.id]}


def _warm_up(view: View) -> Iterator[Parameters]:
    if any(row.number == view.rows[0].number for row in view.above):
        yield {}


def _first_before(run: Run, _: Parameters) -> Run:
    first = min((a.row, a.id) for a in run.asked if a.row is not None)
    return _sent_before(run, {"rows": [first[1]]})


def _touched(view: View, parameters: Parameters) -> set[int] | None:
    if "rows" not in parameters:
        return None
    wanted = set(parameters["rows"])
    return {row.rank for row in view.rows if row.id in wanted}


FAULTS = (
    Fault(
        name="sent_twice",
        looks_ahead=True,
        takes=("rows",),
        propose=_twice,
        act=_sent_before,
        touches=_touched,
        words=lambda p: (
            "the server had seen these prompts before: "
            + (f"{len(p['rows'])} rows were sent twice" if "rows" in p else "the set was sent twice")
        ),
        remedy=lambda _: AGAIN,
        scope=8,
    ),
    Fault(
        name="row_sent_before",
        looks_ahead=True,
        takes=("rows",),
        propose=_one,
        act=_sent_before,
        touches=_touched,
        words=lambda p: f"{p['rows'][0]} had been sent before",
        remedy=lambda _: AGAIN,
        scope=2,
    ),
    Fault(
        name="warmup_row_0",
        looks_ahead=True,
        propose=_warm_up,
        act=_first_before,
        words=lambda _: "the client sent the first row before the run, as a warm-up",
        remedy=lambda _: (
            "Switch the client's warm-up off (warm-ups 0, no ready check), flush, seed, run again"
        ),
        scope=1,
    ),
)
