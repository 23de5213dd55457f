"""The pictures of how a run went: what each rank found and ran over time, throughput and latencies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import TypeAlias

import numpy as np

from wlgen.audit.model import Audit
from wlgen.audit.windows import Times
from wlgen.errors import counted
from wlgen.report.clock import Clock, Timed, key, peaks
from wlgen.report.svg import Axis, box, dot, lane, legend, level, plot, steps
from wlgen.report.words import broken_promises, number

DOTS = 600  # requests drawn as dots; above, one in so many, and those with a finding
LANES = 64  # ranks drawn, the first ones
PARTS = 200  # equal parts of the run
BARS = 30  # most bars of a distribution
Latency: TypeAlias = Callable[[Timed], float | None]
VARIES = 0.001  # of a ratio; less is one column of dots, which tells nothing
HIGH = 16  # CSS pixels of a rank's lane


def ratio_over_time(clock: Clock) -> str:
    """Return the cached ratio of each request over time, a lane for each rank; "" without a figure."""
    seen = [row for row in clock.rows if row.outcome.cached_ratio is not None]
    seen.sort(key=lambda row: row.outcome.row.dp_rank)  # so that one row in so many is one of each rank
    ranks, shapes = _lanes(seen)
    if not seen:
        return ""
    place = {rank: i for i, rank in enumerate(ranks)}
    drawn, sampled = _sampled([row for row in seen if row.outcome.row.dp_rank in place])
    for row in drawn:
        ratio = row.outcome.cached_ratio
        within = 0.1 + 0.8 * (ratio.value if ratio else 0.0)
        y = 1 - (place[row.outcome.row.dp_rank] + 1 - within) / len(ranks)
        shapes.append(
            dot(clock.axis.part(row.start), y, row.kind, radius=2, tip=broken_promises(row.outcome))
        )
    caption = f"Cached ratio of each request by when it was sent: a lane goes from 0 to 100 %{sampled}"
    return _in_lanes(caption, shapes, ranks, clock, marks=key(seen))


def running_by_rank(clock: Clock) -> str:
    """Return how many requests of each rank ran over time, a lane for each rank; "" for one rank."""
    ranks, shapes = _lanes(clock.rows)
    if len(ranks) <= 1:
        return ""
    times: dict[int, list[Timed]] = defaultdict(list)
    for row in clock.rows:
        times[row.outcome.row.dp_rank].append(row)
    running = {
        rank: peaks(
            np.array([row.start for row in times[rank]]),
            np.array([row.end for row in times[rank]]),
            clock.axis.high,
            PARTS,
        )
        for rank in ranks
    }
    most = max(int(found.max()) for found in running.values())
    for i, rank in enumerate(ranks):
        heights = [0.9 * peak / most for peak in running[rank].tolist()]
        shapes.append(lane(heights, (1 - (i + 1) / len(ranks), 1 - i / len(ranks)), "area"))
    caption = f"Requests running on each rank: a lane is {most} high, the most that ran on one rank"
    return _in_lanes(caption, shapes, ranks, clock)


def throughput(audit: Audit, clock: Clock) -> str:
    """Return output tokens a second over time, the stable windows shaded; "" if a count is missing."""
    counts = [row.outcome.result.output_tokens if row.outcome.result else None for row in clock.rows]
    known = [count for count in counts if count is not None]
    if not known or len(known) < len(counts):
        return ""
    tokens = np.array(known, dtype=np.float64)
    first = np.array([row.start + (row.ttft or 0.0) for row in clock.rows])
    end = np.maximum(np.array([row.end for row in clock.rows]), first + 1e-9)
    edges = np.linspace(0, clock.axis.high, PARTS + 1)
    done = [float((tokens * np.clip((at - first) / (end - first), 0, 1)).sum()) for at in edges]
    rates = np.diff(done) / (clock.axis.high / PARTS)
    top = Axis(0.0, 1.1 * float(rates.max()) or 1.0)
    shapes = [level(top.part(tick), "grid") for tick in top.ticks(5)]
    shapes.append(steps([top.part(rate) for rate in rates.tolist()], "area"))
    spans = [span for _, span in clock.stable(audit)]
    shapes += [box(span, (0, 1), "band") for span in spans]
    caption = "Output tokens a second, those of a request spread evenly from its first token to its last."
    caption += " Shaded: the stable windows." if spans else ""
    y = [(top.part(tick), number(tick)) for tick in top.ticks(5)]
    return _figure(caption, plot(shapes, height=170, title=caption, x=clock.labels, y=y))


def latencies(clock: Clock) -> str:
    """Return how TTFT and TPOT are distributed, and each beside the cached ratio where that varies."""
    kinds: tuple[tuple[str, Latency], ...] = (
        ("Time to the first token (TTFT)", lambda row: row.ttft),
        ("Time for each further token (TPOT)", lambda row: row.tpot),
    )
    found = ""
    for name, of in kinds:
        known = [value for row in clock.rows if (value := of(row)) is not None]
        if known:
            found += _spread(name, np.array(known)) + _beside(name, clock.rows, of)
    return found


def planned_times(audit: Audit, clock: Clock) -> str:
    """Return how far each request was sent off its planned time; "" where nothing was planned."""
    late = audit.lateness
    if late is None or not late.delays:
        return ""
    rows = [row for row in clock.rows if row.outcome.row.id in late.delays]
    most = 1.1 * max(late.limit, *(abs(seconds) for seconds in late.delays.values()))
    axis = Axis(-most, most)
    shapes = [level(axis.part(tick), "grid") for tick in axis.ticks(6)]
    drawn, sampled = _sampled(rows)
    for row in drawn:
        place = (clock.axis.part(row.start), axis.part(late.delays[row.outcome.row.id]))
        shapes.append(dot(*place, row.kind, radius=2.2, tip=broken_promises(row.outcome)))
    shapes += [level(axis.part(bound), "bound") for bound in (-late.limit, late.limit)]
    caption = f"Seconds off the planned time, late above 0, by when a request was sent{sampled}."
    y = [(axis.part(tick), f"{number(tick)} s") for tick in axis.ticks(6)]
    marks = legend(("kept", "a request"), ("dash", f"{late.limit:g} s, the most that is asked"))
    return _figure(caption, plot(shapes, height=180, title=caption, x=clock.labels, y=y), marks)


def _spread(name: str, values: Times) -> str:
    """Return the bars of a distribution on round bins, with p50 and p99 marked."""
    scale, unit = (1, "s") if values.max() >= 1 else (1000, "ms")
    values = values * scale
    ticks = Axis(0.0, float(values.max()) or 1.0).ticks(BARS)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else float(values.max()) or 1.0
    low = np.floor(values.min() / step) * step
    edges = np.arange(low, values.max() + step, step)
    edges = edges if len(edges) > 1 else np.array([low, low + step])
    edges = np.append(edges, edges[-1] + step) if edges[-1] <= values.max() else edges
    counts = np.histogram(values, bins=edges)[0].tolist()
    axis, top = Axis(float(edges[0]), float(edges[-1])), Axis(0.0, 1.1 * max(counts))
    shapes = [level(top.part(tick), "grid") for tick in top.ticks(4)]
    for n, count in enumerate(counts):
        across = (axis.part(edges[n]), axis.part(edges[n + 1]))
        said = f"{number(edges[n])} to {number(edges[n + 1])} {unit}: {counted(count, 'request')}"
        shapes.append(box(across, (0, top.part(count)), "node", tip=said))
    marks = dict(zip(("p50", "p99"), np.percentile(values, (50, 99)).tolist(), strict=True))
    shapes += [box((axis.part(at), axis.part(at) + 0.002), (0, 1), "mark") for at in marks.values()]
    said = ", ".join(f"{mark} {number(at)} {unit}" for mark, at in marks.items())
    x = [(at, f"{number(tick)} {unit}") for tick in axis.ticks(8) if (at := axis.part(tick)) < 0.96]  # noqa: PLR2004
    y = [(top.part(tick), f"{tick:g}") for tick in top.ticks(4) if tick == int(tick)]
    caption = f"{name} of {counted(len(values), 'request')}: {said}, marked. Up: requests."
    return _figure(caption, plot(shapes, height=130, title=caption, x=x, y=y))


def _beside(name: str, rows: Sequence[Timed], of: Latency) -> str:
    """Return a latency beside the cached ratio of its request; "" where the ratio is about the same."""
    known = [row for row in rows if row.outcome.cached_ratio is not None and of(row) is not None]
    ratios = [row.outcome.cached_ratio.value for row in known if row.outcome.cached_ratio]
    if not ratios or max(ratios) - min(ratios) < VARIES:
        return ""
    top, across = Axis(0.0, 1.05 * max(of(row) or 0.0 for row in known) or 1.0), Axis(0.0, 1.0)
    shapes = [level(top.part(tick), "grid") for tick in top.ticks(5)]
    drawn, sampled = _sampled(known)
    for row in drawn:
        ratio = row.outcome.cached_ratio
        place = (ratio.value if ratio else 0.0, top.part(of(row) or 0.0))
        shapes.append(dot(*place, row.kind, radius=2.2, tip=broken_promises(row.outcome)))
    caption = f"{name} beside the cached ratio{sampled}. Across: cached tokens / prompt tokens."
    x = [(tick, f"{100 * tick:g} %") for tick in across.ticks(8) if tick < across.high]
    y = [(top.part(tick), f"{number(tick)} s") for tick in top.ticks(5)]
    return _figure(caption, plot(shapes, height=170, title=caption, x=x, y=y), key(known))


def _sampled(rows: Sequence[Timed]) -> tuple[Iterator[Timed], str]:
    """Return the rows that are drawn, those with a finding last, and what is said of the others."""
    every = -(-len(rows) // DOTS)
    broken = [row for row in rows if row.kind == "broken"][:DOTS]
    others = [row for n, row in enumerate(rows) if row.kind != "broken" and n % max(1, every) == 0]
    said = f"; one request in {every} of {len(rows):,}, and those with a finding" if every > 1 else ""
    return iter([*others, *broken]), said


def _lanes(rows: Sequence[Timed]) -> tuple[list[int], list[str]]:
    """Return the ranks that are drawn, and the lines between their lanes."""
    ranks = sorted({row.outcome.row.dp_rank for row in rows})[:LANES]
    return ranks, [level(i / len(ranks), "grid") for i in range(len(ranks) + 1)] if ranks else []


def _in_lanes(
    caption: str, shapes: Sequence[str], ranks: Sequence[int], clock: Clock, *, marks: str = ""
) -> str:
    every = max(1, -(-len(ranks) // 32))
    y = [(1 - (i + 0.5) / len(ranks), f"rank {rank}") for i, rank in enumerate(ranks) if i % every == 0]
    height = max(60, HIGH * len(ranks))
    return _figure(f"{caption}.", plot(shapes, height=height, title=caption, x=clock.labels, y=y), marks)


def _figure(caption: str, body: str, marks: str = "") -> str:
    said = f"{marks}<br>{escape(caption)}" if marks else escape(caption)
    return f"<figure><figcaption>{said}</figcaption>{body}</figure>"
