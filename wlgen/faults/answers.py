"""Answers that did not come as asked: refused, cut, missing, twice, too short, too late."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from wlgen.faults import Fault, Parameters, Says, SeenRow, View, of_each
from wlgen.faults._words import AGAIN, ranks_in_words

_CODE = re.compile(r"(?<!\d)([45]\d\d)(?!\d)")
_TIME = ("timed out", "timeout", "time out", "deadline")
_PAIR = ("kvpoll", "bootstrap_room")  # how a decode side and a prefill side word it
_CUT = ("cut", "incomplete", "closed", "disconnect", "reset", "premature", "broken", "eof", "peer")


def _kind(row: SeenRow) -> str:
    """Return how a request failed: "transfer", an HTTP status, "timeout", "cut" or "error"."""
    error = row.error.lower()
    if any(word in error for word in _PAIR):
        return "transfer"
    if found := _CODE.search(row.error):
        return found[1]
    if any(word in error for word in _TIME):
        return "timeout"
    return "cut" if any(word in error for word in _CUT) else "error"


def _failed(view: View) -> dict[str, list[SeenRow]]:
    by_kind: dict[str, list[SeenRow]] = defaultdict(list)
    for row in view.deviating_in("failed"):
        by_kind[_kind(row)].append(row)
    return by_kind


_NAMES = {"cut": "cut", "timeout": "cut", "transfer": "not_transferred"}  # others: refused


def _proposed(view: View, name: str) -> Iterator[Parameters]:
    for kind, rows in _failed(view).items():
        if _NAMES.get(kind, "refused") == name:
            yield {"how": kind} | _on_some_ranks(view, rows)


def _on_some_ranks(view: View, rows: Sequence[SeenRow]) -> dict[str, Any]:
    """Return the ranks of rows as a parameter, none where every rank has some of them."""
    ranks = sorted({row.rank for row in rows})
    return {"ranks": ranks} if len(ranks) < len(view.ranks) else {}


def _says_failed(view: View, parameters: Parameters) -> Says:
    return of_each(_failed(view).get(parameters["how"], []), "failed")


def _where(parameters: Parameters) -> str:
    return f" on {ranks_in_words(parameters['ranks'])}" if "ranks" in parameters else ""


def _refused_words(parameters: Parameters) -> str:
    how = parameters["how"]
    said = f"HTTP {how}" if how.isdecimal() else "an error"
    return f"the server answered requests{_where(parameters)} with {said}"


def _cut_words(parameters: Parameters) -> str:
    how = "timed out" if parameters["how"] == "timeout" else "broke off before their end"
    return f"answers{_where(parameters)} {how}"


def _missing(view: View) -> Iterator[Parameters]:
    """Propose the ranks of which every row is missing, and all rows that are missing."""
    gone = view.deviating_in("missing")
    sent = {row.rank for row in view.rows if row.results}
    whole = [row for row in gone if row.rank not in sent]
    if whole and sent:
        yield {"rows": len(whole)} | _on_some_ranks(view, whole)
    elif gone:
        yield {"rows": len(gone)}


def _says_missing(view: View, parameters: Parameters) -> Says:
    ranks = parameters.get("ranks")
    gone = view.deviating_in("missing")
    return of_each((row for row in gone if ranks is None or row.rank in ranks), "missing")


def _doubled(view: View) -> Iterator[Parameters]:
    if twice := view.deviating_in("doubled"):
        yield {"files": len({name for row in twice for name in row.files})}


def _stopped_rows(view: View) -> list[SeenRow]:
    return [row for row in view.deviating_in("output") if (row.output or 0) < row.output_len]


def _late(view: View) -> Iterator[Parameters]:
    if late := view.deviating_in("late"):
        yield {"seconds": max((row.late for row in late), key=abs)} | _on_some_ranks(view, late)


def _late_words(parameters: Parameters) -> str:
    seconds = parameters["seconds"]
    side = "after" if seconds > 0 else "before"
    return f"requests{_where(parameters)} were sent up to {abs(seconds):.2f} s {side} their planned times"


def _late_ranks(view: View) -> set[int]:
    """Return the ranks of which every row that was sent was off its planned time."""
    kept = {row.rank for row in view.rows if row.results and "late" not in row.deviates}
    return {row.rank for row in view.deviating_in("late")} - kept


def _says_apart(view: View, _: Parameters) -> Says:
    """Say of each row that it ran apart, and of a rank that began late that its rows are late for that."""
    late = _late_ranks(view)
    apart = view.deviating_in("apart")
    return of_each(apart, "apart") | of_each((row for row in apart if row.rank in late), "apart", "late")


def _apart_words(parameters: Parameters) -> str:
    seconds = parameters["seconds"]
    if seconds > 0:
        return f"the ranks ran together in {seconds:.3f} s of {parameters['of']:.3f} s only"
    first, last = parameters["first"], parameters["last"]
    return f"the ranks did not run together: rank {first} had ended {-seconds:.3f} s before rank {last} began"


FAULTS = (
    Fault(
        name="refused",
        propose=lambda view: _proposed(view, "refused"),
        says=_says_failed,
        words=_refused_words,
        remedy=lambda _: "See the server's log; send fewer requests at a time if it was overloaded",
        scope=4,
    ),
    Fault(
        name="cut",
        propose=lambda view: _proposed(view, "cut"),
        says=_says_failed,
        words=_cut_words,
        remedy=lambda _: "See the logs of server, router and client; give the client more time",
        scope=4,
    ),
    Fault(
        name="not_transferred",
        propose=lambda view: _proposed(view, "not_transferred"),
        says=_says_failed,
        words=lambda p: (
            f"the decode side waited in vain for the prefill side{_where(p)}, which refused the rank "
            "or was gone"
        ),
        remedy=lambda _: (
            "See the prefill side's log. At `follow_bootstrap_room conflict` send routed_dp_rank and "
            "disagg_prefill_dp_rank together, or go through `wlgen route`; a prefill server that is gone may "
            "have got a request without a rank"
        ),
        scope=4,
    ),
    Fault(
        name="run_cut",
        propose=_missing,
        says=_says_missing,
        words=lambda p: (
            f"{p['rows']} rows have no result{_where(p)}: the client ended before it sent or kept them"
        ),
        remedy=lambda _: f"See why the client stopped. {AGAIN}",
        scope=4,
    ),
    Fault(
        name="doubled_rows",
        propose=_doubled,
        says=lambda view, _: of_each(view.deviating_in("doubled"), "doubled"),
        words=lambda p: (
            "rows have more than one result"
            + (f", in {p['files']} files" if p["files"] > 1 else ", in the same file")
        ),
        remedy=lambda _: "Give each result file once; use a fresh result folder for each run",
        scope=4,
    ),
    Fault(
        name="stopped_early",
        propose=lambda view: [{}] if _stopped_rows(view) else [],
        says=lambda view, _: of_each(_stopped_rows(view), "output"),
        words=lambda _: "answers are shorter than asked: a stop token ended them",
        remedy=lambda _: 'Send "ignore_eos": true with each request',
        scope=4,
    ),
    Fault(
        name="late",
        propose=_late,
        says=lambda view, _: of_each(view.deviating_in("late"), "late"),
        words=_late_words,
        remedy=lambda _: "Let the client send at the times of the file, with more workers if it lags behind",
        scope=4,
    ),
    Fault(
        name="ranks_apart",
        propose=lambda view: [view.apart] if view.apart else [],
        says=_says_apart,
        words=_apart_words,
        remedy=lambda _: (
            "Send all ranks from one client, or start the clients of all ranks at the same moment: "
            "until then no throughput of the run counts"
        ),
        scope=4,
    ),
)
