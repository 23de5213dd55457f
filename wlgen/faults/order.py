"""Rows in another order than planned, or too many in flight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wlgen.faults import Fault, Parameters, Run, View

FLIGHTS = (2, 4, 8, 16, 32, 64)


def _by_starts(view: View) -> Iterator[Parameters]:
    if view.reordered and view.off:
        yield {}


def _as_it_was(run: Run, _: Parameters) -> Run:
    """Return the run itself: it has its rows in the order of their starts, and as they overlapped."""
    return run


def _at_once(view: View) -> Iterator[Parameters]:
    if not view.off:
        return
    if view.run.overlapping:
        yield {}
    yield from ({"in_flight": count} for count in FLIGHTS)


def _together(run: Run, parameters: Parameters) -> Run:
    return replace(run, in_flight=parameters.get("in_flight", run.in_flight))


_ORDERLY = "Send each rank's rows in their order and pinned"

FAULTS = (
    Fault(
        name="other_order",
        propose=_by_starts,
        act=_as_it_was,
        words=lambda _: "the rows reached the server in another order than the set's",
        remedy=lambda _: f"{_ORDERLY}; switch the client's shuffling off",
        scope=5,
    ),
    Fault(
        name="in_flight",
        takes=("in_flight",),
        propose=_at_once,
        act=_together,
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
