"""The run over time on an audit's page: concurrency with the windows, first tokens, each request."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from wlgen.audit.model import Audit
from wlgen.audit.windows import Times
from wlgen.errors import counted
from wlgen.report.clock import Clock, Timed, key, peaks
from wlgen.report.svg import Axis, box, dot, legend, level, plot, steps
from wlgen.report.words import WINDOWS, broken_promises, number

DOTS = 1500  # requests drawn as dots; above, some of them
BARS = 700  # requests drawn as bars; above, only their first tokens
MOMENTS = 500  # parts of the run in which the peak concurrency is drawn


def timeline(audit: Audit, clock: Clock | None) -> str:
    """Return concurrency over time with the windows, and the requests; or why there is none."""
    if clock is None or audit.timeline.start is None:
        return f"<p>No timeline: {escape(audit.windows[0].missing)}.</p>"
    start, end = audit.timeline.start - clock.origin, audit.timeline.end - clock.origin
    return (
        _concurrency(audit, clock, start, end)
        + _first_tokens([row for row in clock.rows if row.ttft is not None], clock.axis, clock.labels)
        + _requests(clock.rows, clock.axis, clock.labels)
    )


def _concurrency(audit: Audit, clock: Clock, start: Times, end: Times) -> str:
    x = clock.labels
    most = peaks(start, end, clock.axis.high, MOMENTS)
    top = Axis(0.0, max(1, int(most.max())) * 1.1)
    shapes = [level(top.part(tick), "grid") for tick in top.ticks(5)]
    shapes.append(steps([top.part(peak) for peak in most.tolist()], "area"))
    lanes = []
    stable = clock.stable(audit)
    for i, (_, span) in enumerate(stable):
        shapes.append(box(span, (0, 1), "band"))
        lanes.append(box(span, (1 - (i + 0.8) / len(stable), 1 - (i + 0.2) / len(stable)), "lane"))
    y = [(top.part(tick), f"{tick:g}") for tick in top.ticks(5)]
    body = plot(shapes, height=170, title="Requests running over time", x=[] if lanes else x, y=y)
    if lanes:
        names = [(1 - (i + 0.5) / len(stable), name.split()[-1]) for i, (name, _) in enumerate(stable)]
        body += plot(lanes, height=16 * len(stable), title="Where the stable windows lie", x=x, y=names)
    missing = [f"{WINDOWS[w.name]}: no window, {w.missing}." for w in audit.windows[1:] if w.missing]
    caption = f"Requests running: the peak in each of {MOMENTS} equal parts of the run. " + (
        "Shaded, and on the lanes below: the stable windows. " if lanes else ""
    )
    return f"<figure><figcaption>{escape(caption + ' '.join(missing))}</figcaption>{body}</figure>"


def _requests(timed: Sequence[Timed], axis: Axis, x: Sequence[tuple[float, str]]) -> str:
    if not timed or len(timed) > BARS:
        return ""
    shapes = []
    for i, row in enumerate(timed):
        outcome, start, ttft, end = row
        begun, first, ended = (axis.part(time) for time in (start, start + (ttft or 0.0), end))
        y = (1 - (i + 1) / len(timed), 1 - (i + 0.1) / len(timed))
        shapes += [
            box((begun, first), y, "wait"),
            box((first, ended), y, row.kind, tip=broken_promises(outcome)),
        ]
    height = max(60, min(420, 7 * len(timed)))
    body = plot(shapes, height=height, title="Requests in the order they were sent", x=x, y=[])
    caption = f"{counted(len(timed), 'request')}, in the order they were sent."
    marks = legend(("wait", "to the first token")) + key(timed)
    return f"<figure><figcaption>{marks}<br>{caption}</figcaption>{body}</figure>"


def _first_tokens(timed: Sequence[Timed], axis: Axis, x: Sequence[tuple[float, str]]) -> str:
    if not timed:
        return ""
    every = -(-len(timed) // DOTS)
    broken = [i for i, t in enumerate(timed) if t.outcome.findings][:DOTS]
    top = Axis(0.0, 1.05 * max(t.ttft or 0.0 for t in timed) or 1.0)
    shapes = [level(top.part(tick), "grid") for tick in top.ticks(5)]
    radius = 1.6 if len(timed) > BARS else 2.6
    drawn = {*range(0, len(timed), every), *broken}
    for row in sorted((timed[i] for i in drawn), key=lambda t: bool(t.outcome.findings)):
        place = (axis.part(row.start), top.part(row.ttft or 0.0))
        shapes.append(dot(*place, row.kind, radius=radius, tip=broken_promises(row.outcome)))
    caption = "Time to the first token, by when the request was sent"
    if every > 1:
        caption += f": one request in {every} of {len(timed):,}"
        caption += f", and {'those' if len(broken) < DOTS else f'the first {DOTS}'} with a finding"
    y = [(top.part(tick), f"{number(tick)} s") for tick in top.ticks(5)]
    body = plot(shapes, height=200, title=caption, x=x, y=y)
    return f"<figure><figcaption>{key(timed)}<br>{caption}.</figcaption>{body}</figure>"
