"""Windows of a run: all of it, and AISBench's steady window in its two definitions. Times are seconds.

Only successful requests count. Events are starts and ends, sorted by time; events at the same time keep the
order of the client's records, as in AISBench.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Times: TypeAlias = NDArray[np.float64]
Name: TypeAlias = Literal["whole", "stable_v1", "stable_v2"]
WAVE = 0.02  # stable V1: concurrency may fall this far below the limit
REACHED = 2  # the window opens with this start at the limit, since the first is a warm-up
LOOK_AHEAD = 0.001  # stable V1: seconds within which a start makes up for an end


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A span of a run, and the requests that started in it, each counted whole.

    members: indices into the arrays of the run, ascending. missing: why there is no window, "" if there is.
    """

    name: Name
    start: float = 0.0
    end: float = 0.0
    members: NDArray[np.int64]
    missing: str = ""

    @property
    def duration(self) -> float:
        """Seconds from start to end."""
        return self.end - self.start


class _Event(NamedTuple):
    time: float
    request: int
    is_start: bool
    running: int  # requests running after it


def windows(start: Times, end: Times, concurrency: int) -> tuple[Window, Window, Window]:
    """Return the whole run, stable V1 and stable V2; start and end have shape (requests,), record order.

    concurrency: the client's limit (AISBench's batch_size).
    """
    return whole(start, end), stable_v1(start, end, concurrency), stable_v2(start, end, concurrency)


def whole(start: Times, end: Times) -> Window:
    """Return the run from its first start to its last end."""
    if not len(start):
        return _none("whole", "the results hold no times of a successful request")
    first, last = float(start.min()), float(end.max())
    return Window(name="whole", start=first, end=last, members=np.arange(len(start)))


def stable_v1(start: Times, end: Times, concurrency: int) -> Window:
    """Return AISBench's steady window as its releases up to 3.1.20260630 define it.

    It opens with the second start that reaches the limit and closes with the first end after all requests
    have started, or with an end that leaves concurrency 2 % below the limit for more than a millisecond.
    Members: the starts at the limit after the first, and later ones at 98 % of it or more.
    Source: ais_bench/benchmark/calculators/stable_perf_metric_calculator.py.
    """
    low = int(concurrency * (1 - WAVE))
    events = list(_events(start, end))
    reached: list[int] = []
    opened = closed = 0.0
    started = 0
    for position, event in enumerate(events):
        started += event.is_start
        if event.is_start and event.running == concurrency:
            reached.append(event.request)
            if len(reached) == REACHED:
                opened = event.time
        elif event.is_start and event.running >= low and len(reached) > REACHED:
            reached.append(event.request)
        elif not event.is_start and (
            started == len(start) or (len(reached) >= REACHED and _falls(events, position, low))
        ):
            closed = event.time
            break
    return _window("stable_v1", opened, closed, np.sort(np.array(reached[1:], dtype=np.int64)), concurrency)


def stable_v2(start: Times, end: Times, concurrency: int) -> Window:
    """Return AISBench's steady window as its main branch defines it since 2026-08-17.

    It opens with the second start that reaches the limit and closes with the last event that leaves
    concurrency at the limit. Members: all that start inside it.
    """
    at_limit = [event for event in _events(start, end) if event.running == concurrency]
    starts = [event.time for event in at_limit if event.is_start]
    if len(starts) < REACHED:
        return _window("stable_v2", 0.0, 0.0, np.empty(0, dtype=np.int64), concurrency)
    opened, closed = starts[1], at_limit[-1].time
    members = np.flatnonzero((start >= opened) & (start <= closed))
    return _window("stable_v2", opened, closed, members, concurrency)


def running(start: Times, end: Times, since: float, until: float) -> tuple[int, float]:
    """Return the peak and the mean over time of concurrency between two times."""
    overlap = np.minimum(end, until) - np.maximum(start, since)
    mean = float(overlap[overlap > 0].sum()) / (until - since) if until > since else 0.0
    before = int(((start < since) & (end > since)).sum())
    counts = [event.running for event in _events(start, end) if since <= event.time <= until]
    return max([before, *counts]), mean


def _events(start: Times, end: Times) -> Iterator[_Event]:
    times = np.stack([start, end], axis=1).ravel()  # a request's start before its end
    order = np.argsort(times, kind="stable")
    is_start = order % 2 == 0
    count = np.cumsum(np.where(is_start, 1, -1))
    columns = (times[order].tolist(), (order // 2).tolist(), is_start.tolist(), count.tolist())
    return map(_Event._make, zip(*columns, strict=True))


def _falls(events: list[_Event], position: int, low: int) -> bool:
    # Whether concurrency is below `low` after this end, and no start within LOOK_AHEAD raises it again.
    here = events[position]
    if here.running >= low:
        return False
    for later in range(position + 1, len(events)):
        event = events[later]
        if event.time - here.time > LOOK_AHEAD:
            return True
        if event.is_start and event.running >= low:
            return False
    return True


def _window(name: Name, opened: float, closed: float, members: NDArray[np.int64], limit: int) -> Window:
    if not len(members):
        return _none(name, f"concurrency {limit} was not reached by two starts, so there is no steady window")
    if closed <= opened:
        return _none(name, "the steady window has no length")
    return Window(name=name, start=opened, end=closed, members=members)


def _none(name: Name, why: str) -> Window:
    return Window(name=name, members=np.empty(0, dtype=np.int64), missing=why)
