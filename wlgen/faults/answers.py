"""Answers that did not come as asked: refused, cut, missing, twice, too short, too late."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from wlgen.faults import Aspect, Fault, Parameters, Says, SeenRow, View
from wlgen.faults._words import AGAIN, ranks_in_words

_CODE = re.compile(r"(?<!\d)([45]\d\d)(?!\d)")
_TIME = ("timed out", "timeout", "time out", "deadline")
_CUT = ("cut", "incomplete", "closed", "disconnect", "reset", "premature", "broken", "eof", "peer")


def _kind(row: SeenRow) -> str:
    """Return how a request failed: an HTTP status, "timeout", "cut" or "error"."""
    error = row.error.lower()
    if found := _CODE.search(row.error):
        return found[1]
    if any(word in error for word in _TIME):
        return "timeout"
    return "cut" if any(word in error for word in _CUT) else "error"


def _failed(view: View) -> dict[str, list[SeenRow]]:
    by_kind: dict[str, list[SeenRow]] = defaultdict(list)
    for row in view.rows:
        if "failed" in row.deviates:
            by_kind[_kind(row)].append(row)
    return by_kind


def _proposed(view: View, *, is_cut: bool) -> Iterator[Parameters]:
    for kind, rows in _failed(view).items():
        if (kind in ("cut", "timeout")) == is_cut:
            ranks = sorted({row.rank for row in rows})
            some = len(ranks) < len(view.ranks)
            yield {"how": kind, "ranks": ranks} if some else {"how": kind}


def _says_failed(view: View, parameters: Parameters) -> Says:
    failed: frozenset[Aspect] = frozenset({"failed"})
    return {row.number: failed for row in _failed(view).get(parameters["how"], [])}


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
    order = view.rows
    gone = [n for n, row in enumerate(order) if "missing" in row.deviates]
    if not gone:
        return
    by_rank: dict[int, list[SeenRow]] = defaultdict(list)
    for row in order:
        by_rank[row.rank].append(row)
    whole = {rank for rank, rows in by_rank.items() if all("missing" in r.deviates for r in rows)}
    yield (
        {"rows": len(gone), "ranks": sorted(whole)}
        if whole and len(whole) < len(by_rank)
        else {"rows": len(gone)}
    )


def _says_missing(view: View, parameters: Parameters) -> Says:
    missing: frozenset[Aspect] = frozenset({"missing"})
    ranks = parameters.get("ranks")
    return {
        row.number: missing
        for row in view.rows
        if "missing" in row.deviates and (ranks is None or row.rank in ranks)
    }


def _doubled(view: View) -> Iterator[Parameters]:
    twice = [row for row in view.rows if "doubled" in row.deviates]
    if twice:
        yield {"files": len({name for row in twice for name in row.files})}


def _says_doubled(view: View, _: Parameters) -> Says:
    doubled: frozenset[Aspect] = frozenset({"doubled"})
    return {row.number: doubled for row in view.rows if "doubled" in row.deviates}


def _stopped(view: View) -> Iterator[Parameters]:
    if any("output" in row.deviates and (row.output or 0) < row.output_len for row in view.rows):
        yield {}


def _says_stopped(view: View, _: Parameters) -> Says:
    output: frozenset[Aspect] = frozenset({"output"})
    return {
        row.number: output
        for row in view.rows
        if "output" in row.deviates and (row.output or 0) < row.output_len
    }


def _late(view: View) -> Iterator[Parameters]:
    times = [row.late for row in view.rows if row.late]
    if times:
        ranks = Counter(row.rank for row in view.rows if row.late)
        most = round(max(times), 2)
        some = len(ranks) < len(view.ranks)
        yield {"seconds": most, "ranks": sorted(ranks)} if some else {"seconds": most}


def _says_late(view: View, _: Parameters) -> Says:
    late: frozenset[Aspect] = frozenset({"late"})
    return {row.number: late for row in view.rows if row.late}


FAULTS = (
    Fault(
        name="refused",
        propose=lambda view: _proposed(view, is_cut=False),
        says=_says_failed,
        words=_refused_words,
        remedy=lambda _: "See the server's log; send fewer requests at a time if it was overloaded",
        scope=4,
    ),
    Fault(
        name="cut",
        propose=lambda view: _proposed(view, is_cut=True),
        says=_says_failed,
        words=_cut_words,
        remedy=lambda _: "See the logs of server, router and client; give the client more time",
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
        says=_says_doubled,
        words=lambda p: (
            "rows have more than one result"
            + (f", in {p['files']} files" if p["files"] > 1 else ", in the same file")
        ),
        remedy=lambda _: "Give each result file once; use a fresh result folder for each run",
        scope=4,
    ),
    Fault(
        name="stopped_early",
        propose=_stopped,
        says=_says_stopped,
        words=lambda _: "answers are shorter than asked: a stop token ended them",
        remedy=lambda _: 'Send "ignore_eos": true with each request',
        scope=4,
    ),
    Fault(
        name="late",
        propose=_late,
        says=_says_late,
        words=lambda p: f"requests{_where(p)} were sent up to {p['seconds']} s after their planned times",
        remedy=lambda _: "Give the client more workers, or the set fewer requests a second",
        scope=4,
    ),
)
