"""The run over time on an audit's page: concurrency with the windows, first tokens, each request."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from wlgen.audit.model import Audit, RowOutcome, timed_split
from wlgen.audit.windows import Times
from wlgen.report.svg import Axis, box, dot, legend, level, plot, steps
from wlgen.report.words import WINDOWS, broken_promises, counted, number

DOTS = 1500  # requests drawn as dots; above, some of them
BARS = 700  # requests drawn as bars; above, only their first tokens
LAST_LABEL = 0.96  # of the width; a label further on would stand out of the page
MOMENTS = 500  # parts of the run in which the peak concurrency is drawn


def timeline(audit: Audit) -> str:
    """Return concurrency over time with the windows, and the requests; or why there is none."""
    line = audit.timeline
    if line.start is None:
        return f"<p>No timeline: {escape(audit.windows[0].missing)}.</p>"
    origin = float(line.start.min())
    axis = Axis(0.0, max(1e-9, float(line.end.max()) - origin))
    ticks = [(axis.part(tick), f"{number(tick)} s") for tick in axis.ticks(7)]
    x = [(at, name) for at, name in ticks if at < LAST_LABEL]
    split = timed_split(audit.splits)
    timed = sorted(
        (
            _Timed(o, r.start - origin, r.ttft, r.end - origin)
            for o in audit.outcomes
            if o.row.split == split
            and (r := o.result)
            and r.success
            and r.start is not None
            and r.end is not None
        ),
        key=lambda t: t.start,
    )
    return (
        _concurrency(audit, line.start - origin, line.end - origin, axis, x)
        + _first_tokens([t for t in timed if t.ttft is not None], axis, x)
        + _requests(timed, axis, x)
    )


class _Timed(NamedTuple):
    """A successful row whose times are known, in seconds after the run's first start."""

    outcome: RowOutcome
    start: float
    ttft: float | None
    end: float


def _concurrency(audit: Audit, start: Times, end: Times, axis: Axis, x: Sequence[tuple[float, str]]) -> str:
    moments = np.linspace(0, axis.high, MOMENTS + 1)
    times = np.concatenate([start, end])
    order = np.argsort(times, kind="stable")
    running = np.cumsum(np.where(order < len(start), 1, -1))
    # Running before each part of the run, and the most that any event inside it leaves.
    before = np.concatenate([[0], running])[np.searchsorted(times[order], moments[:-1], side="left")]
    peaks = before.copy()
    inside = np.clip(np.searchsorted(moments, times[order], side="right") - 1, 0, MOMENTS - 1)
    np.maximum.at(peaks, inside, running)
    top = Axis(0.0, max(1, int(peaks.max())) * 1.1)
    shapes = [level(top.part(tick), "grid") for tick in top.ticks(5)]
    shapes.append(steps([top.part(peak) for peak in peaks.tolist()], "area"))
    lanes = []
    stable = [window for window in audit.windows[1:] if window.start is not None and window.duration]
    for i, window in enumerate(stable):
        span = [
            axis.part(edge)
            for edge in (window.start or 0.0, (window.start or 0.0) + (window.duration or 0.0))
        ]
        shapes.append(box(span, (0, 1), "band"))
        lanes.append(box(span, (1 - (i + 0.8) / len(stable), 1 - (i + 0.2) / len(stable)), "lane"))
    y = [(top.part(tick), f"{tick:g}") for tick in top.ticks(5)]
    body = plot(shapes, height=170, title="Requests running over time", x=[] if lanes else x, y=y)
    if lanes:
        names = [(1 - (i + 0.5) / len(stable), WINDOWS[w.name].split()[-1]) for i, w in enumerate(stable)]
        body += plot(lanes, height=16 * len(stable), title="Where the stable windows lie", x=x, y=names)
    missing = [f"{WINDOWS[w.name]}: no window, {w.missing}." for w in audit.windows[1:] if w.missing]
    caption = f"Requests running: the peak in each of {MOMENTS} equal parts of the run. " + (
        "Shaded, and on the lanes below: the stable windows. " if lanes else ""
    )
    return f"<figure><figcaption>{escape(caption + ' '.join(missing))}</figcaption>{body}</figure>"


def _requests(timed: Sequence[_Timed], axis: Axis, x: Sequence[tuple[float, str]]) -> str:
    if not timed or len(timed) > BARS:
        return ""
    shapes = []
    for i, (outcome, start, ttft, end) in enumerate(timed):
        begun, first, ended = (axis.part(time) for time in (start, start + (ttft or 0.0), end))
        y = (1 - (i + 1) / len(timed), 1 - (i + 0.1) / len(timed))
        kind = "broken" if outcome.findings else "kept"
        shapes += [box((begun, first), y, "wait"), box((first, ended), y, kind, tip=broken_promises(outcome))]
    items = [("wait", "to the first token"), ("kept", "to the end")]
    if any(t.outcome.findings for t in timed):
        items.append(("broken", "with a finding"))
    height = max(60, min(420, 7 * len(timed)))
    body = plot(shapes, height=height, title="Requests in the order they were sent", x=x, y=[])
    caption = f"{counted(len(timed), 'request')}, in the order they were sent."
    return f"<figure><figcaption>{legend(*items)}<br>{caption}</figcaption>{body}</figure>"


def _first_tokens(timed: Sequence[_Timed], axis: Axis, x: Sequence[tuple[float, str]]) -> str:
    if not timed:
        return ""
    every = -(-len(timed) // DOTS)
    broken = [i for i, t in enumerate(timed) if t.outcome.findings][:DOTS]
    top = Axis(0.0, 1.05 * max(t.ttft or 0.0 for t in timed) or 1.0)
    shapes = [level(top.part(tick), "grid") for tick in top.ticks(5)]
    radius = 1.6 if len(timed) > BARS else 2.6
    drawn = {*range(0, len(timed), every), *broken}
    for outcome, start, ttft, _ in sorted((timed[i] for i in drawn), key=lambda t: bool(t.outcome.findings)):
        kind = "broken" if outcome.findings else "kept"
        place = (axis.part(start), top.part(ttft or 0.0))
        shapes.append(dot(*place, kind, radius=radius, tip=broken_promises(outcome)))
    caption = "Time to the first token, by when the request was sent"
    if every > 1:
        caption += f": one request in {every} of {len(timed):,}"
        caption += f", and {'those' if len(broken) < DOTS else f'the first {DOTS}'} with a finding"
    y = [(top.part(tick), f"{number(tick)} s") for tick in top.ticks(5)]
    body = plot(shapes, height=200, title=caption, x=x, y=y)
    items = [("kept", "a request"), *([("broken", "with a finding")] if broken else [])]
    return f"<figure><figcaption>{legend(*items)}<br>{caption}.</figcaption>{body}</figure>"
