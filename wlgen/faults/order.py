"""Rows in another order than planned, or too many in flight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wlgen.faults import Asked, Fault, Parameters, Run, View

FLIGHTS = (2, 4, 8, 16, 32, 64)


def _by_starts(view: View) -> Iterator[Parameters]:
    if view.reordered and view.off:
        yield {}


def _ordered(run: Run, _: Parameters) -> Run:
    before = [asked for asked in run.asked if asked.row is None]
    rows = [asked for asked in run.asked if asked.row is not None]
    if any(asked.start is None for asked in rows):
        return run
    return replace(run, asked=(*before, *sorted(rows, key=_start)))


def _start(asked: Asked) -> float:
    return asked.start or 0.0


def _at_once(view: View) -> Iterator[Parameters]:
    if not view.off:
        return
    if view.run.overlapping:
        yield {}
    yield from ({"in_flight": count} for count in FLIGHTS)


def _overlapping(run: Run, parameters: Parameters) -> Run:
    if "in_flight" in parameters:
        return replace(run, in_flight=parameters["in_flight"])
    return replace(_ordered(run, {}), overlapping=run.overlapping)


_ORDERLY = "Send each rank's rows in their order and pinned"

FAULTS = (
    Fault(
        name="other_order",
        propose=_by_starts,
        act=_ordered,
        words=lambda _: "the rows reached the server in another order than the set's",
        remedy=lambda _: f"{_ORDERLY}; switch the client's shuffling off",
        scope=5,
    ),
    Fault(
        name="in_flight",
        takes=("in_flight",),
        propose=_at_once,
        act=_overlapping,
        words=lambda p: (
            f"{p['in_flight']} requests of a rank ran at once"
            if "in_flight" in p
            else "requests of a rank ran at once, and found nothing of one another"
        ),
        remedy=lambda _: f"{_ORDERLY}, fewer at a time: `wlgen plan SPEC --in-flight N` says what N leaves",
        scope=5,
        apart="each request's start and end",
    ),
)
