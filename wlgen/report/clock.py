"""The clock of an audit's pictures: the requests whose times are known, and one time axis for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wlgen.audit.model import Audit, RowOutcome, timed_split
from wlgen.audit.windows import Times
from wlgen.report.svg import Axis, legend
from wlgen.report.words import WINDOWS, number

LAST_LABEL = 0.96  # of the width; a label further on would stand out of the page


class Timed(NamedTuple):
    """A successful row whose times are known, in seconds after the run's first start."""

    outcome: RowOutcome
    start: float
    ttft: float | None
    end: float

    @property
    def tpot(self) -> float | None:
        """Seconds for each token after the first; None of a request with one token."""
        tokens = self.outcome.result.output_tokens if self.outcome.result else None
        if self.ttft is None or tokens is None or tokens <= 1:
            return None
        return (self.end - self.start - self.ttft) / (tokens - 1)

    @property
    def kind(self) -> str:
        """How the row is marked: with a finding, without a figure, or as promised."""
        if self.outcome.findings:
            return "broken"
        return "unseen" if self.outcome.cached_ratio is None else "kept"


@dataclass(frozen=True, slots=True)
class Clock:
    """The timed rows in the order of their starts, and the time axis: its range and its labels.

    origin: the first start, on the client's clock.
    """

    origin: float
    axis: Axis
    labels: Sequence[tuple[float, str]]
    rows: Sequence[Timed]

    @classmethod
    def of(cls, audit: Audit) -> Clock | None:
        """Return the clock of a run; None if its client keeps no starts."""
        line = audit.timeline
        if line.start is None:
            return None
        origin = float(line.start.min())
        axis = Axis(0.0, max(1e-9, float(line.end.max()) - origin))
        ticks = [(axis.part(tick), f"{number(tick)} s") for tick in axis.ticks(7)]
        split = timed_split(audit.splits)
        rows = [
            Timed(o, r.start - origin, r.ttft, r.end - origin)
            for o in audit.outcomes
            if o.row.split == split
            and (r := o.result)
            and r.success
            and r.start is not None
            and r.end is not None
        ]
        labels = [(at, name) for at, name in ticks if at < LAST_LABEL]
        return cls(origin, axis, labels, sorted(rows, key=lambda row: row.start))

    def stable(self, audit: Audit) -> list[tuple[str, tuple[float, float]]]:
        """Return the name of each stable window that exists, and where it lies on the time axis, 0 to 1."""
        return [
            (WINDOWS[w.name], (self.axis.part(w.start), self.axis.part(w.start + w.duration)))
            for w in audit.windows[1:]
            if w.start is not None and w.duration
        ]


def peaks(start: Times, end: Times, seconds: float, parts: int) -> NDArray[np.int64]:
    """Return the most requests that ran at once in each of equal parts of a run: shape (parts,).

    start, end: seconds after the run's first start, shape (requests,).
    """
    moments = np.linspace(0, seconds, parts + 1)
    times = np.concatenate([start, end])
    order = np.argsort(times, kind="stable")
    running = np.cumsum(np.where(order < len(start), 1, -1))
    # Running before each part of the run, and the most that any event inside it leaves.
    before = np.concatenate([[0], running])[np.searchsorted(times[order], moments[:-1], side="left")]
    most: NDArray[np.int64] = before.copy()
    inside = np.clip(np.searchsorted(moments, times[order], side="right") - 1, 0, parts - 1)
    np.maximum.at(most, inside, running)
    return most


def key(rows: Sequence[Timed]) -> str:
    """Return what the marks of these rows mean."""
    names = {"kept": "as promised", "broken": "with a finding", "unseen": "not observed"}
    kinds = {row.kind for row in rows}
    return legend(*((kind, name) for kind, name in names.items() if kind in kinds))
