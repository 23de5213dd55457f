"""The charts of an audit's page: ratios by rank and their distribution."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from html import escape

import numpy as np

from wlgen.audit.model import Audit, CachedRatio, RowOutcome
from wlgen.errors import counted
from wlgen.pages import percent
from wlgen.report.svg import Axis, box, dot, legend, level, plot
from wlgen.report.words import broken_promises, shown_ratio

DOTS = 1500  # the most rows that are drawn as dots; more rows are counted in bins
LARGE = 700  # the most rows whose dots are large
BINS = 140  # bins of the ratio axis
LEVELS = 14  # the most bars of the distribution
LEAST = 0.004  # the least width of a bar, as a share of the plot's width


def by_rank(audit: Audit) -> str:
    """Return the picture of rows' ratios by rank: a dot for each row, or counts in bins if there are many.

    "" where no ratio was observed.
    """
    seen = [(outcome, ratio) for outcome in audit.outcomes if (ratio := outcome.cached_ratio) is not None]
    if not seen:
        return ""
    ranks = sorted({outcome.row.dp_rank for outcome in audit.outcomes})
    axis = _ratio_axis(audit, [ratio for _, ratio in seen])
    bounds = _bounds(audit)
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
    shapes += [level(axis.part(bound), "bound") for bound in bounds]
    missing = len(audit.outcomes) - len(seen)
    caption = how + (f" Not drawn: {counted(missing, 'row')} without a figure." if missing else "")
    caption += f" The axis starts at {axis.low:.4g} %." if axis.low > 0 else ""
    every = max(1, -(-len(ranks) // 16))
    x = [((i + 0.5) / len(ranks), str(rank)) for i, rank in enumerate(ranks) if i % every == 0]
    y = [(axis.part(tick), f"{tick:.4g} %") for tick in axis.ticks(8)]
    dashes = [("dash", f"bound {shown_ratio(bound / 100)}") for bound in bounds]
    key = legend(("kept", "as promised"), ("broken", "with a finding"), *dashes)
    title = f"Cached ratio of each of {len(seen)} requests by data-parallel rank"
    body = plot(shapes, height=300, title=title, x=x, y=y)
    axis_name = '<p class="soft">Across: data-parallel rank. Up: cached tokens / prompt tokens.</p>'
    return f"<figure><figcaption>{key}<br>{escape(caption)}</figcaption>{body}{axis_name}</figure>"


def distribution(audit: Audit) -> str:
    """Return how many rows have which ratio: for each value if there are few, otherwise for ranges.

    "" where no ratio was observed.
    """
    ratios = [ratio for outcome in audit.outcomes if (ratio := outcome.cached_ratio) is not None]
    broken = {
        o.cached_ratio
        for o in audit.outcomes
        if o.cached_ratio and any("cached" in f.promise for f in o.findings)
    }
    levels = Counter(ratios)
    if len(levels) <= LEVELS:
        lines = [
            (f"{ratio.cached:,} of {ratio.prompt:,} = {percent(*ratio)}", count, ratio in broken)
            for ratio, count in sorted(levels.items(), key=lambda item: -item[0].value)
        ]
    else:
        lines = list(_ranges(ratios, broken))
    missing = len(audit.outcomes) - len(ratios)
    if not ratios:
        return ""
    if missing:
        lines.append(("not observed, failed or missing", missing, True))
    most = max((count for _, count, _ in lines), default=1)
    bars = "".join(_bar(*line, most=most) for line in lines)
    return f'<div class="bars">{bars}</div>'


def _bounds(audit: Audit) -> list[float]:
    """Return the bounds of single requests in percent; none if the spec bounds only their aggregate."""
    asked = [of.bound for of in audit.classes]
    if len(asked) == 1 and (asked[0].min_ratio or asked[0].tokens or asked[0].max_tokens is not None):
        return [100 * audit.promises.configured]
    return sorted({float(100 * bound.min_ratio) for bound in asked if bound.min_ratio is not None})


def _ratio_axis(audit: Audit, ratios: Sequence[CachedRatio]) -> Axis:
    # Percent. The axis starts at 0 if a row is near 0; else it shows only the part with rows and bound, so
    # that a row which is one page short differs visibly from one that is not.
    values = [*_bounds(audit), *(100 * ratio.value for ratio in ratios)]
    low, high = min(values), max(values)
    pad = max(0.5, (high - low) * 0.15)
    return Axis(0.0 if low < 20 else max(0.0, low - pad), min(100.0, high + pad))  # noqa: PLR2004 (percent)


def _dots(seen: Sequence[tuple[RowOutcome, CachedRatio]], ranks: Sequence[int], axis: Axis) -> Iterator[str]:
    place = {rank: i for i, rank in enumerate(ranks)}
    turn: Counter[int] = Counter()
    counts = Counter(outcome.row.dp_rank for outcome, _ in seen)
    radius = 3.0 if len(seen) <= LARGE else 2.2
    late = []
    for outcome, ratio in seen:
        rank = outcome.row.dp_rank
        turn[rank] += 1
        x = (place[rank] + 0.12 + 0.76 * turn[rank] / (counts[rank] + 1)) / len(ranks)
        y = axis.part(100 * ratio.value)
        if outcome.findings:
            tip = f"{broken_promises(outcome)}, {ratio.cached} of {ratio.prompt} = {percent(*ratio)}"
            late.append(dot(x, y, "broken", radius=radius, tip=tip))
        else:
            yield dot(x, y, "kept", radius=radius)
    yield from late  # above the others


def _bins(seen: Sequence[tuple[RowOutcome, CachedRatio]], ranks: Sequence[int], axis: Axis) -> Iterator[str]:
    place = {rank: i for i, rank in enumerate(ranks)}
    counts: Counter[tuple[int, int, bool]] = Counter()
    totals: Counter[int] = Counter()
    for outcome, ratio in seen:
        y = min(BINS - 1, int(axis.part(100 * ratio.value) * BINS))
        counts[place[outcome.row.dp_rank], y, bool(outcome.findings)] += 1
        totals[place[outcome.row.dp_rank]] += 1
    for (column, y, is_broken), count in sorted(counts.items(), key=lambda item: item[0][2]):
        width = max(0.1 / len(ranks), LEAST if is_broken else 0, 0.84 * count / totals[column] / len(ranks))
        left = (column + 0.08) / len(ranks)
        tip = f"rank {ranks[column]}: {counted(count, 'request')}" if is_broken else ""
        kind = "broken" if is_broken else "kept"
        yield box((left, left + width), (y / BINS, (y + 2) / BINS), kind, tip=tip)


def _ranges(
    ratios: Sequence[CachedRatio], broken: AbstractSet[CachedRatio]
) -> Iterator[tuple[str, int, bool]]:
    values = np.array([100 * ratio.value for ratio in ratios])
    axis = Axis(float(values.min()), float(values.max()))
    ticks = axis.ticks(LEVELS - 2)
    step = ticks[1] - ticks[0]
    low, high = math.floor(axis.low / step), math.floor(axis.high / step) + 1
    edges = np.array([n * step for n in range(low, high + 1)])  # round values, of which the outer hold all
    counts = np.histogram(values, bins=edges)[0]
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(counts) - 1)
    bad = {int(place) for place, ratio in zip(places, ratios, strict=True) if ratio in broken}
    for number_, count in reversed(list(enumerate(counts.tolist()))):
        if count:
            yield f"{edges[number_]:.6g} to {edges[number_ + 1]:.6g} %", count, number_ in bad


def _bar(label: str, count: int, is_broken: bool, *, most: int) -> str:  # noqa: FBT001 (a line of a table)
    kind = "bar broken" if is_broken else "bar"
    width = f"{70 * count / most:.2f}%"
    rows = counted(count, "row") + (", with findings" if is_broken else "")
    return f'<span>{escape(label)}</span><div class="{kind}"><i style="width:{width}"></i>{rows}</div>'
