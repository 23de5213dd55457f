"""Figures of a run in one window: throughput, latencies, concurrency, spacing. Times are seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wlgen.audit.sending import LATE, Overlap
from wlgen.audit.windows import Times, Window, running, windows
from wlgen.readers import Result

MEMBERS_FLOOR = 128
SECONDS_FLOOR = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a person says of the run; None: nothing said.

    concurrency: the client's limit; None: take the observed peak. rate: planned requests a second. cards:
    the number of accelerators, for output tokens a second and card. late: by how many seconds a request may
    miss its planned time.
    """

    concurrency: int | None = None
    rate: float | None = None
    cards: int | None = None
    late: float = LATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean and percentiles (linear interpolation, as the clients give them)."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one window. None: not observed, or there is no window.

    name: whole, stable_v1 or stable_v2. missing: why there is no window. start: seconds after the run's first
    start. meets_floor: whether the window has at least 128 members and 60 seconds; smaller windows show no
    steady state. concurrency: the limit for which the stable windows were searched: the given limit, or the
    observed peak. prompt_tokens_per_s, output_tokens_per_s, requests_per_s: members, each counted whole, over
    the duration; prompt tokens are those that were sent, cached ones too. e2el,
    ttft: seconds. tpot: seconds for each token after the first, of requests with more than one token.
    mean_concurrency: the mean over time of all requests that ran in the window. spacing: seconds between the
    members' starts. planned_spacing: 1 / rate.
    """

    name: str
    missing: str = ""
    members: int = 0
    start: float | None = None
    duration: float | None = None
    meets_floor: bool = False
    concurrency: int
    concurrency_given: bool = False
    prompt_tokens: int | None = None
    prompt_tokens_per_s: float | None = None
    output_tokens: int | None = None
    output_tokens_per_s: float | None = None
    output_tokens_per_s_per_card: float | None = None
    requests_per_s: float | None = None
    ttft: Spread | None = None
    tpot: Spread | None = None
    e2el: Spread | None = None
    peak_concurrency: int | None = None
    mean_concurrency: float | None = None
    spacing: Spread | None = None
    planned_spacing: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The successful requests of a run whose end is known, in record order; arrays of shape (requests,).

    start: None if the client records only durations. ttft, e2el: seconds, NaN if not recorded.
    prompt_tokens, output_tokens: -1 if not observed.
    """

    start: Times | None
    end: Times
    ttft: Times
    e2el: Times
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]

    @classmethod
    def of(cls, results: Sequence[Result]) -> Timeline:
        """Return the timeline of results; results without a start are left out if others have a start."""
        ended = [r for r in results if r.success and r.end is not None]
        started = [r for r in ended if r.start is not None]
        ended = started or ended
        return cls(
            start=np.array([r.start for r in ended], dtype=np.float64) if started else None,
            end=np.array([r.end for r in ended], dtype=np.float64),
            ttft=np.array([r.ttft for r in ended], dtype=np.float64),
            e2el=np.array([r.latency for r in ended], dtype=np.float64),
            prompt_tokens=_counts(r.prompt_tokens for r in ended),
            output_tokens=_counts(r.output_tokens for r in ended),
        )

    @property
    def peak(self) -> int:
        """The most requests that ran at once; 0 if starts are not known."""
        if self.start is None:
            return 0
        return running(self.start, self.end, float(self.start.min()), float(self.end.max()))[0]


def figures(timeline: Timeline, setting: Setting, overlap: Overlap | None = None) -> tuple[Figures, ...]:
    """Return the figures of the whole run, stable V1 and stable V2.

    overlap: when all ranks ran; a window has no figures if all ranks ran in less than half of it.
    """
    limit = timeline.peak if setting.concurrency is None else setting.concurrency
    if timeline.start is None:
        return _durations_alone(timeline, limit)
    found = windows(timeline.start, timeline.end, limit)
    return tuple(_of_window(timeline, _quotable(window, overlap), limit, setting) for window in found)


def _quotable(window: Window, overlap: Overlap | None) -> Window:
    if window.missing or overlap is None:
        return window
    return replace(window, missing=overlap.lacks(window.start, window.end))


def _durations_alone(timeline: Timeline, limit: int) -> tuple[Figures, ...]:
    why = "the client does not record when each request started"
    if not len(timeline.end):
        why = "the results hold no times of a successful request"
    everyone = np.arange(len(timeline.end))
    ttft, tpot, e2el = _latencies(timeline, everyone)
    total = Figures(
        name="whole",
        missing=why,
        members=len(everyone),
        concurrency=limit,
        prompt_tokens=_total(timeline.prompt_tokens),
        output_tokens=_total(timeline.output_tokens),
        ttft=ttft,
        tpot=tpot,
        e2el=e2el,
    )
    stable = ("stable_v1", "stable_v2")
    return total, *(Figures(name=name, missing=why, concurrency=limit) for name in stable)


def _of_window(timeline: Timeline, window: Window, limit: int, setting: Setting) -> Figures:
    start = timeline.start
    if window.missing or start is None:
        return Figures(name=window.name, missing=window.missing, concurrency=limit)
    members, duration = window.members, window.duration
    peak, mean = running(start, timeline.end, window.start, window.end)
    sent, tokens = _total(timeline.prompt_tokens[members]), _total(timeline.output_tokens[members])
    speed = _rate(tokens, duration)
    ttft, tpot, e2el = _latencies(timeline, members)
    return Figures(
        name=window.name,
        members=len(members),
        start=window.start - float(start.min()),
        duration=duration,
        meets_floor=len(members) >= MEMBERS_FLOOR and duration >= SECONDS_FLOOR,
        concurrency=limit,
        concurrency_given=setting.concurrency is not None,
        prompt_tokens=sent,
        prompt_tokens_per_s=_rate(sent, duration),
        output_tokens=tokens,
        output_tokens_per_s=speed,
        output_tokens_per_s_per_card=speed / setting.cards if speed is not None and setting.cards else None,
        requests_per_s=_rate(len(members), duration),
        ttft=ttft,
        tpot=tpot,
        e2el=e2el,
        peak_concurrency=peak,
        mean_concurrency=mean,
        spacing=_spread(np.diff(np.sort(start[members]))),
        planned_spacing=1 / setting.rate if setting.rate else None,
    )


def _counts(found: Iterable[int | None]) -> NDArray[np.int64]:
    return np.array([-1 if count is None else count for count in found], np.int64)


def _rate(count: int | None, duration: float) -> float | None:
    return count / duration if count is not None and duration > 0 else None


def _total(tokens: NDArray[np.int64]) -> int | None:
    # No total if one count is missing: a total without it would be too low, and look exact.
    return int(tokens.sum()) if len(tokens) and (tokens >= 0).all() else None


def _latencies(
    timeline: Timeline, members: NDArray[np.int64]
) -> tuple[Spread | None, Spread | None, Spread | None]:
    ttft, e2el, tokens = timeline.ttft[members], timeline.e2el[members], timeline.output_tokens[members]
    several = tokens > 1
    tpot = (e2el - ttft)[several] / (tokens[several] - 1)
    return _spread(ttft), _spread(tpot), _spread(e2el)


def _spread(values: Times) -> Spread | None:
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    p50, p90, p99 = np.percentile(known, (50, 90, 99)).tolist()
    return Spread(mean=float(known.mean()), p50=p50, p90=p90, p99=p99)
