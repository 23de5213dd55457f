"""When requests were sent: each against its planned time, and the ranks against each other.

A set with arrivals, or of a trace, promises when each request is sent: a row has timestamp_ms, counted from
the start of its round. And a client that runs one process a rank may send the ranks one after another: the
server was then never under the load of all of them, whatever the figures of the whole run say.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from wlgen.audit.findings import Promised
from wlgen.faults import Parameters
from wlgen.readers import Result
from wlgen.workload.rows import Finding

LATE = 0.5  # seconds by which a request may miss its planned time
OF_THE_GAP = 0.01  # or this share of the mean gap, if more: 1 s if a request is planned every 100 s
FIRST = 10  # the first requests of a round, which tell when it began
TOGETHER = 0.5  # all ranks must run in this share of a window for its figures to be quoted
_MS = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How far some requests were sent off their planned times, in seconds; later is positive.

    most: the delay of the request that was furthest off, early or late.
    """

    requests: int
    p50: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """How far the requests of a run were off their planned times.

    planned: how many rows have a planned time. limit: seconds that a request may be off. seen: the delays,
    None if no result says when it was sent; by_rank: the delays of each rank. delays: seconds of each
    request, by row, early below 0. findings: the requests further off than the limit.

    Times count from the request, among the first ten of a round, that was sent earliest against its plan. So
    a slow first request makes no other request early, and a client that sends twice as fast as planned is
    early, not late. A request far before the nine others does not count for this: one broken clock of 640
    would make 639 requests late.
    """

    planned: int
    limit: float
    seen: Delays | None
    by_rank: Mapping[int, Delays]
    delays: Mapping[str, float]
    findings: Mapping[str, Finding]

    @property
    def off(self) -> dict[str, float]:
        """The delays that are beyond the limit."""
        return {row_id: self.delays[row_id] for row_id in self.findings}

    @property
    def unseen(self) -> int:
        """How many rows have a planned time, but no result that says when they were sent."""
        return self.planned - (self.seen.requests if self.seen else 0)


def lateness(
    rows: Iterable[Promised], sent: Mapping[str, Result | None], late: float = LATE
) -> Lateness | None:
    """Return how late each row was sent; sent: row id -> its first result.

    None where no row has a planned time, and where `late` is infinite: then nothing is asked of times.
    """
    rounds: dict[int, list[tuple[float, Promised]]] = defaultdict(list)
    for row in rows:
        if row.timestamp_ms is not None:
            rounds[row.round].append((row.timestamp_ms * _MS, row))
    if not rounds or math.isinf(late):
        return None
    limit = max(
        [late, *(OF_THE_GAP * _mean_gap([time for time, _ in planned]) for planned in rounds.values())]
    )
    off: list[tuple[Promised, float]] = []
    for planned in rounds.values():
        planned.sort(key=lambda each: each[0])
        shifts = [
            (row, start - time) for time, row in planned if (start := _start(sent.get(row.id))) is not None
        ]
        zero = _zero(sorted(shift for _, shift in shifts[:FIRST]), limit)
        off += [(row, shift - zero) for row, shift in shifts]
    beyond = [(row, seconds) for row, seconds in off if abs(seconds) > limit]
    of_rank: dict[int, list[float]] = defaultdict(list)
    for row, seconds in off:
        of_rank[row.dp_rank].append(seconds)
    return Lateness(
        planned=sum(map(len, rounds.values())),
        limit=limit,
        seen=_delays([seconds for _, seconds in off]) if off else None,
        by_rank={rank: _delays(each) for rank, each in sorted(of_rank.items())},
        delays={row.id: seconds for row, seconds in off},
        findings={row.id: _finding(row, seconds, limit) for row, seconds in beyond},
    )


def _start(result: Result | None) -> float | None:
    return None if result is None else result.start


def _mean_gap(times: Sequence[float]) -> float:
    return (max(times) - min(times)) / (len(times) - 1) if len(times) > 1 else 0.0


def _zero(shifts: Sequence[float], limit: float) -> float:
    """Return the lowest of sorted shifts that has another within the limit; if none has, the lowest."""
    agreed = (low for low, high in pairwise(shifts) if high - low <= limit)
    return next(agreed, shifts[0] if shifts else 0.0)


def _delays(seconds: Sequence[float]) -> Delays:
    return Delays(requests=len(seconds), p50=median(seconds), most=max(seconds, key=abs))


def _finding(row: Promised, seconds: float, limit: float) -> Finding:
    got = f"{abs(seconds):.3f} s {'late' if seconds > 0 else 'early'}"
    return Finding(
        id=row.id, promise="on_time", expected=f"at most {limit:g} s off its planned time", got=got
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """The part of a run in which every rank ran: from when the last rank began to when the first rank ended.

    If rank 0 runs from 0 to 10 s and rank 1 from 10.014 to 20 s, it is 10.014 to 10: they never ran together.
    ranks: how many ran. since, until: on the client's clock. last, first: the ranks that began last and ended
    first. whole: seconds of the run. planned: whether the planned times themselves keep the ranks apart; then
    every window is quoted. in_turn: whether no request began before the one before it had ended.
    fewest: requests of the rank that has the fewest.
    """

    ranks: int
    since: float
    until: float
    last: int
    first: int
    whole: float
    planned: bool
    in_turn: bool
    fewest: int

    @property
    def seconds(self) -> float:
        """How long all ranks ran together; if negative, how long one had ended before another began."""
        return self.until - self.since

    @property
    def apart(self) -> bool:
        """Whether all ranks should have run together and did so in less than half of the run.

        A client that sends one request at a time loads no two ranks at once, in whatever order. And where
        the ranks take turns, the last one begins up to a turn after the first, and the first ends up to a
        turn before the last: of 3 requests a rank these are two thirds of the run, of 40 a twentieth.
        """
        turns = 2 / self.fewest
        return not self.planned and not self.in_turn and self.seconds < TOGETHER * (1 - turns) * self.whole

    @property
    def parameters(self) -> Parameters:
        """The same as the fault ranks_apart takes it."""
        return {"first": self.first, "last": self.last, "seconds": self.seconds, "of": self.whole}

    def outside(self, result: Result) -> bool:
        """Return whether a request ran wholly while another rank had not begun or had ended."""
        if result.start is None or result.end is None:
            return False
        return result.end <= self.since or result.start >= self.until

    def lacks(self, start: float, end: float) -> str:
        """Return why a window's figures are not quoted; "" if all ranks ran in half of it or more."""
        inside = min(end, self.until) - max(start, self.since)
        if self.planned or inside >= TOGETHER * (end - start):
            return ""
        if self.seconds <= 0:
            return (
                f"rank {self.first} had ended {-self.seconds:.3f} s before rank {self.last} began, "
                "so the server never met all ranks at once"
            )
        share = f"{max(0.0, inside):.3f} s of its {end - start:.3f} s"
        return f"all {self.ranks} ranks ran together in {share} only"


def overlap(timed: Iterable[tuple[Promised, Result]]) -> Overlap | None:
    """Return when all ranks ran, from successful requests with known times; None for a single rank."""
    spans: dict[int, tuple[float, float]] = {}
    plans: dict[int, tuple[float, float]] = {}
    times: list[tuple[float, float]] = []
    counts = Counter[int]()
    for row, result in timed:
        if result.success and result.start is not None and result.end is not None:
            times.append((result.start, result.end))
            counts[row.dp_rank] += 1
            _widen(spans, row.dp_rank, result.start, result.end)
            if row.timestamp_ms is not None:
                _widen(plans, row.dp_rank, row.timestamp_ms, row.timestamp_ms)
    if len(spans) <= 1:
        return None
    last = max(spans, key=lambda rank: spans[rank][0])
    first = min(spans, key=lambda rank: spans[rank][1])
    return Overlap(
        ranks=len(spans),
        since=spans[last][0],
        until=spans[first][1],
        last=last,
        first=first,
        whole=_whole(spans),
        planned=bool(plans) and _common(plans) < TOGETHER * _whole(plans),
        fewest=min(counts.values()),
        in_turn=all(end <= start for (_, end), (start, _) in pairwise(sorted(times))),
    )


def _widen(spans: dict[int, tuple[float, float]], rank: int, start: float, end: float) -> None:
    low, high = spans.get(rank, (math.inf, -math.inf))
    spans[rank] = min(low, start), max(high, end)


def _common(spans: Mapping[int, tuple[float, float]]) -> float:
    return min(end for _, end in spans.values()) - max(start for start, _ in spans.values())


def _whole(spans: Mapping[int, tuple[float, float]]) -> float:
    return max(end for _, end in spans.values()) - min(start for start, _ in spans.values())
