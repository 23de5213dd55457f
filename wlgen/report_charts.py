"""The charts of an audit's page: shares by rank, their distribution, the timeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from html import escape

import numpy as np

from wlgen.audit import Audit, Outcome, Share, timed_split
from wlgen.pages import percent
from wlgen.report_svg import Axis, box, dot, level, plot, steps
from wlgen.report_words import WINDOWS, counted, number, shown_ratio
from wlgen.windows import Times

DOTS = 1500  # rows drawn one by one; above, counts in bins
BINS = 140  # of the share axis
LEVELS = 14  # bars of the distribution
BARS = 700  # requests drawn as bars; above, only their first tokens
LEAST = 0.004  # of the plot's width, what can be seen
MOMENTS = 500  # parts of the run in which the peak concurrency is drawn


def by_rank(audit: Audit) -> str:
    """Return the share of each row, by rank: a dot a row, or counts in bins where there are many."""
    seen = [(outcome, share) for outcome in audit.outcomes if (share := outcome.share) is not None]
    if not seen:
        return "<p>No cached tokens were observed, so there is nothing to draw.</p>"
    ranks = sorted({outcome.row.dp_rank for outcome in audit.outcomes})
    axis = _share_axis(audit, [share for _, share in seen])
    bound = 100 * audit.promises.configured
    shapes = [level(axis.part(tick), "grid") for tick in axis.ticks(8)]
    if len(seen) <= DOTS:
        shapes += _dots(seen, ranks, axis)
        how = "A dot is a request, spread sideways within its rank; a square has a finding (point at it)."
    else:
        shapes += _bins(seen, ranks, axis)
        how = (
            f"{len(seen):,} requests, so they are counted in {BINS} bins: the longer a bar, the more of its "
            "rank's requests it holds. A bar has a least size, so that one request shows."
        )
    shapes.append(level(axis.part(bound), "bound"))
    missing = len(audit.outcomes) - len(seen)
    caption = how + (f" Not drawn: {counted(missing, 'row')} without a figure." if missing else "")
    caption += f" The axis starts at {axis.low:.4g} %." if axis.low > 0 else ""
    every = max(1, -(-len(ranks) // 16))
    x = [((i + 0.5) / len(ranks), str(rank)) for i, rank in enumerate(ranks) if i % every == 0]
    y = [(axis.part(tick), f"{tick:.4g} %") for tick in axis.ticks(8)]
    bound_label = f"bound {shown_ratio(audit.promises.configured)}"
    key = _key(("kept", "as promised"), ("broken", "with a finding"), ("dash", bound_label))
    title = f"Cached share of each of {len(seen)} requests by data-parallel rank"
    body = plot(shapes, height=300, title=title, x=x, y=y)
    axis_name = '<p class="soft">Across: data-parallel rank. Up: cached tokens / prompt tokens.</p>'
    return f"<figure><figcaption>{key}<br>{escape(caption)}</figcaption>{body}{axis_name}</figure>"


def distribution(audit: Audit) -> str:
    """Return how many rows have which share: each value where there are few, ranges where there are many."""
    shares = [share for outcome in audit.outcomes if (share := outcome.share) is not None]
    broken = {o.share for o in audit.outcomes if o.share and any("cached" in f.promise for f in o.findings)}
    levels = Counter(shares)
    if len(levels) <= LEVELS:
        lines = [
            (f"{share.cached:,} of {share.prompt:,} = {percent(*share)}", count, share in broken)
            for share, count in sorted(levels.items(), key=lambda item: -item[0].ratio)
        ]
    else:
        lines = list(_ranges(shares, broken))
    missing = len(audit.outcomes) - len(shares)
    if missing:
        lines.append(("not observed, failed or missing", missing, True))
    most = max((count for _, count, _ in lines), default=1)
    bars = "".join(_bar(*line, most=most) for line in lines)
    return f'<div class="bars">{bars}</div>'


def timeline(audit: Audit) -> str:
    """Return concurrency over time with the windows, and the requests; or why there is none."""
    line = audit.timeline
    if line.start is None:
        return f"<p>No timeline: {escape(audit.windows[0].missing)}.</p>"
    origin = float(line.start.min())
    axis = Axis(0.0, max(1e-9, float(line.end.max()) - origin))
    x = [(axis.part(tick), f"{number(tick)} s") for tick in axis.ticks(7)]
    timed = [o for o in audit.outcomes if o.row.split == timed_split(audit.splits) and _times(o)[2]]
    timed.sort(key=_times)
    return (
        _concurrency(audit, line.start - origin, line.end - origin, axis, x)
        + _first_tokens(timed, origin, axis, x)
        + _requests(timed, origin, axis, x)
    )


def _share_axis(audit: Audit, shares: Sequence[Share]) -> Axis:
    # Percent. From 0 where a row is near it; else only the part that holds rows and bound, so that a
    # row a page short can be told from one that is not.
    values = [100 * audit.promises.configured, *(100 * share.ratio for share in shares)]
    low, high = min(values), max(values)
    pad = max(0.5, (high - low) * 0.15)
    return Axis(0.0 if low < 20 else max(0.0, low - pad), min(100.0, high + pad))  # noqa: PLR2004 (percent)


def _dots(seen: Sequence[tuple[Outcome, Share]], ranks: Sequence[int], axis: Axis) -> Iterator[str]:
    place = {rank: i for i, rank in enumerate(ranks)}
    turn: Counter[int] = Counter()
    counts = Counter(outcome.row.dp_rank for outcome, _ in seen)
    radius = 3.0 if len(seen) <= BARS else 2.2
    late = []
    for outcome, share in seen:
        rank = outcome.row.dp_rank
        turn[rank] += 1
        x = (place[rank] + 0.12 + 0.76 * turn[rank] / (counts[rank] + 1)) / len(ranks)
        y = axis.part(100 * share.ratio)
        if outcome.findings:
            tip = f"{_tip(outcome)}, {share.cached} of {share.prompt} = {percent(*share)}"
            late.append(dot(x, y, "broken", radius=radius, tip=tip))
        else:
            yield dot(x, y, "kept", radius=radius)
    yield from late  # above the others


def _bins(seen: Sequence[tuple[Outcome, Share]], ranks: Sequence[int], axis: Axis) -> Iterator[str]:
    place = {rank: i for i, rank in enumerate(ranks)}
    counts: Counter[tuple[int, int, bool]] = Counter()
    totals: Counter[int] = Counter()
    for outcome, share in seen:
        y = min(BINS - 1, int(axis.part(100 * share.ratio) * BINS))
        counts[place[outcome.row.dp_rank], y, bool(outcome.findings)] += 1
        totals[place[outcome.row.dp_rank]] += 1
    for (column, y, is_broken), count in sorted(counts.items(), key=lambda item: item[0][2]):
        width = max(0.1 / len(ranks), LEAST if is_broken else 0, 0.84 * count / totals[column] / len(ranks))
        left = (column + 0.08) / len(ranks)
        tip = f"rank {ranks[column]}: {counted(count, 'request')}" if is_broken else ""
        kind = "broken" if is_broken else "kept"
        yield box((left, left + width), (y / BINS, (y + 2) / BINS), kind, tip=tip)


def _ranges(shares: Sequence[Share], broken: AbstractSet[Share]) -> Iterator[tuple[str, int, bool]]:
    values = np.array([100 * share.ratio for share in shares])
    counts, edges = np.histogram(values, bins=LEVELS)
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, LEVELS - 1)
    bad = {int(place) for place, share in zip(places, shares, strict=True) if share in broken}
    for number_, count in reversed(list(enumerate(counts.tolist()))):
        if count:
            yield f"{edges[number_]:.4f} to {edges[number_ + 1]:.4f} %", count, number_ in bad


def _bar(label: str, count: int, is_broken: bool, *, most: int) -> str:  # noqa: FBT001 (a line of a table)
    kind = "bar broken" if is_broken else "bar"
    width = f"{70 * count / most:.2f}%"
    rows = counted(count, "row") + (", with findings" if is_broken else "")
    return f'<span>{escape(label)}</span><div class="{kind}"><i style="width:{width}"></i>{rows}</div>'


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


def _requests(timed: Sequence[Outcome], origin: float, axis: Axis, x: Sequence[tuple[float, str]]) -> str:
    if len(timed) > BARS:
        return ""
    shapes = []
    for i, outcome in enumerate(timed):
        start, first, end = (axis.part(time - origin) for time in _times(outcome))
        y = (1 - (i + 1) / len(timed), 1 - (i + 0.1) / len(timed))
        kind = "broken" if outcome.findings else "kept"
        shapes += [box((start, first), y, "wait"), box((first, end), y, kind, tip=_tip(outcome))]
    items = [("wait", "to the first token"), ("kept", "to the end")]
    if any(outcome.findings for outcome in timed):
        items.append(("broken", "with a finding"))
    height = max(60, min(420, 7 * len(timed)))
    body = plot(shapes, height=height, title="Requests in the order they were sent", x=x, y=[])
    caption = f"{counted(len(timed), 'request')}, in the order they were sent."
    return f"<figure><figcaption>{_key(*items)}<br>{caption}</figcaption>{body}</figure>"


def _first_tokens(timed: Sequence[Outcome], origin: float, axis: Axis, x: Sequence[tuple[float, str]]) -> str:
    every = -(-len(timed) // DOTS)
    broken = [i for i, outcome in enumerate(timed) if outcome.findings][:DOTS]
    waits = [first - start for start, first, _ in map(_times, timed)]
    top = Axis(0.0, 1.05 * max(waits) or 1.0)
    shapes = [level(top.part(tick), "grid") for tick in top.ticks(5)]
    for i in sorted({*range(0, len(timed), every), *broken}, key=lambda i: bool(timed[i].findings)):
        kind = "broken" if timed[i].findings else "kept"
        at = axis.part(_times(timed[i])[0] - origin)
        shapes.append(dot(at, top.part(waits[i]), kind, radius=1.6, tip=_tip(timed[i])))
    caption = "Time to the first token, by when the request was sent"
    if every > 1:
        caption += f": one request in {every} of {len(timed):,}"
        caption += f", and {'those' if len(broken) < DOTS else f'the first {DOTS}'} with a finding"
    y = [(top.part(tick), f"{number(tick)} s") for tick in top.ticks(5)]
    body = plot(shapes, height=200, title=caption, x=x, y=y)
    items = [("kept", "a request"), *([("broken", "with a finding")] if broken else [])]
    return f"<figure><figcaption>{_key(*items)}<br>{caption}.</figcaption>{body}</figure>"


def _key(*items: tuple[str, str]) -> str:
    return "".join(f'<span class="item"><i class="key {kind}"></i>{name}</span>' for kind, name in items)


def _tip(outcome: Outcome) -> str:
    promises = ", ".join(sorted({finding.promise for finding in outcome.findings}))
    return f"{outcome.row.id}: {promises}" if promises else ""


def _times(outcome: Outcome) -> tuple[float, float, float]:
    result = outcome.result
    if result is None or result.start is None or result.end is None:
        return 0.0, 0.0, 0.0
    return result.start, result.end if result.first_token is None else result.first_token, result.end
