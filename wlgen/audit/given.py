"""What a person gives an audit besides the client's results, and the servers' own records of each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from wlgen.audit.join import Rows
from wlgen.errors import Problem
from wlgen.readers import Result
from wlgen.witnesses import PrefillBatch, Scrape, ServedRequest

EPOCH = 1e9  # seconds: a greater time counts from 1970, a smaller one from a machine's or a client's start
CLOCKS = 5.0  # seconds by which the clocks of two machines may differ


class Span(NamedTuple):
    """A time from `first` to `last`, in seconds since 1970."""

    first: float
    last: float

    def holds(self, time: float) -> bool:
        """Return whether a time lies within, give or take CLOCKS."""
        return self.first - CLOCKS <= time <= self.last + CLOCKS

    def __str__(self) -> str:
        """Return both ends, "2026-12-01 12:21:46 to 12:21:52 UTC"."""
        first, last = (datetime.fromtimestamp(time, UTC) for time in self)
        return (
            f"{first:%Y-%m-%d %H:%M:%S} to {last:{'%H:%M:%S' if first.date() == last.date() else '%c'}} UTC"
        )


def span_of(results: Iterable[Result]) -> Span | None:
    """Return from when to when results were sent; None if their client keeps no times since 1970."""
    times = [time for r in results for time in (r.start, r.end) if time is not None and time > EPOCH]
    return Span(min(times), max(times)) if times else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a person gives besides the results. Files are (name, their values), to be read once.

    before, after: scrapes of counters before and after the run. pair: whether the person says that the run
    went through a prefill/decode pair; the roles in the scrapes say it too.
    """

    before: Scrape | None = None
    after: Scrape | None = None
    requests: Iterable[tuple[str, Iterable[ServedRequest | Problem]]] = ()
    logs: Iterable[tuple[str, Iterable[PrefillBatch | Problem]]] = ()
    pair: bool = False

    @property
    def is_pair(self) -> bool:
        """Whether the run went through a prefill/decode pair."""
        scrapes = [scrape for scrape in (self.before, self.after) if scrape is not None]
        return self.pair or any(s.role != "plain" for scrape in scrapes for s in scrape.servers)

    @property
    def servers(self) -> list[str]:
        """The addresses of the servers that the scrapes are of, each with its role if it is one of a pair."""
        scrapes = [scrape for scrape in (self.before, self.after) if scrape is not None]
        return [s.url if s.role == "plain" else f"{s.url} ({s.role})" for of in scrapes for s in of.servers]

    @property
    def span(self) -> Span | None:
        """From the first scrape to the second one; None without two scrapes."""
        if self.before is None or self.after is None:
            return None
        try:
            times = [datetime.fromisoformat(scrape.time).timestamp() for scrape in (self.before, self.after)]
        except ValueError:
            return None
        return Span(*times)


@dataclass(kw_only=True, slots=True)
class RequestFiles:
    """What request files say. by_row: each row's records. others: requests that are no row of the set.

    elsewhen: when the server received records that do not count, since the run was at another time.
    """

    by_row: dict[str, list[ServedRequest]] = field(default_factory=dict)
    others: int = 0
    elsewhen: list[float] = field(default_factory=list)
    sums: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    read: bool = False


def read_requests(rows: Rows, given: Given, sent: Span | None = None) -> RequestFiles:
    """Read the request files and assign each record to its row, by the row's id, else by the text or ids.

    sent: from when to when the results were sent. A server appends all runs of an hour to one file, and the
    same rows stand in it once a run. So where the scrapes or the results tell when this run was, a record
    of another time does not count, unless it is of a seed or a check, which came before.
    """
    spans = [span for span in (given.span, sent) if span is not None]
    found = RequestFiles()
    by_prompt = {row.prompt_sha256: row for row in reversed(rows.all) if row.prompt_sha256}
    for _, records in given.requests:
        found.read = True
        for record in records:
            if isinstance(record, Problem):
                found.problems.append(record)
                continue
            row = rows.by_id.get(record.id or "")
            row = (
                row or by_prompt.get(record.prompt_sha256 or "") or rows.by_text.get(record.text_sha256 or "")
            )
            primed = row is not None and not row.split.measured
            if not primed and not _is_of(spans, record):
                found.elsewhen.append(record.received or 0.0)
                continue
            found.sums.update(_summed(record))
            if row is None:
                found.others += 1
            else:
                found.by_row.setdefault(row.id, []).append(record)
    return found


def _is_of(spans: Sequence[Span], record: ServedRequest) -> bool:
    return record.received is None or all(span.holds(record.received) for span in spans)


def as_results(found: RequestFiles) -> list[Result]:
    """Return the rows' records as results, for an audit without a client's file."""
    return [
        Result(
            place=record.place,
            id=row_id,
            text_sha256=record.text_sha256,
            success=record.success,
            error=record.error,
            prompt_tokens=record.prompt_tokens,
            cached_tokens=record.cached_tokens,
            output_tokens=record.output_tokens,
            finish_reason=record.finish_reason,
        )
        for row_id, records in found.by_row.items()
        for record in records
    ]


def _summed(record: ServedRequest) -> Mapping[str, int]:
    return {
        "requests": 1,
        "prompt_tokens": record.prompt_tokens or 0,
        "cached_tokens": record.cached_tokens or 0,
        "cached_told": int(record.cached_tokens is not None),
    }
