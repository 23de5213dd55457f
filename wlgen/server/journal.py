"""The journal of a preparation: one JSON object a line, on the disk before wlgen sends the next request.

It says what was sent to which server and what came back, so that an interrupted preparation can go on where
it stopped. It holds no prompt text and no secret.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from wlgen.errors import error, regular
from wlgen.workload.splits import PRIMING

JOURNAL = "prepare.jsonl"
_CHANGING = (
    "event",
    "time",
    "requests",
    "counts",
)  # keys of "begin" that differ between two runs on the same target
_NEEDED: Mapping[str, Mapping[str, type]] = {
    "sent": {"id": str},
    "ended": {"id": str, "split": str, "dp_rank": int, "success": bool, "findings": list},
}
Event = Mapping[str, Any]


@dataclass(kw_only=True, slots=True)
class History:
    """What the server's cache holds, as far as the journal tells. A flush or a new target empties it.

    target: the set and server of the last "begin". seeded: the seeds that succeeded, with their ranks. sent:
    ids of all rows sent. passed: ids of checks that kept their promises. failed: ranks with a row that broke
    a promise. closed: whether the last run ended in order, not by an interrupt or an error. flushed: whether
    the cache was empty before the first of these rows. counts: the server's counts of its work at the last
    run's orderly end, or at its begin if it had none; None if the server does not count. counters: the
    server's counters right after the flush, as in a scrape file. served: the prompt and cached tokens of each
    answer since then.
    """

    target: dict[str, Any] = field(default_factory=dict)
    seeded: dict[str, int] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    closed: bool = False
    flushed: bool = False
    counts: dict[str, int] | None = None
    counters: dict[str, Any] | None = None
    served: list[tuple[int, int]] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Take the next event."""
        kind = event["event"]
        if kind == "begin":
            target = {key: value for key, value in event.items() if key not in _CHANGING}
            if target != self.target:
                self._forget(flushed=False)
            self.target = target
            self.closed = False
            self.counts = event.get("counts")
        elif kind == "flush":
            self._forget(flushed=True)
            self.counters = event.get("counters")
        elif kind == "void":
            self._forget(flushed=False)
        elif kind == "sent":
            self.sent.add(event["id"])
        elif kind == "ended":
            self._ended(event)
        elif kind in ("prepared", "stopped"):
            self.closed = True
            self.counts = event.get("counts")

    def _ended(self, event: Event) -> None:
        if event["success"]:
            self.served.append((event.get("prompt_tokens") or 0, event.get("cached_tokens") or 0))
        if event["findings"] or not event["success"]:
            self.failed |= {event["dp_rank"]} if event["findings"] else set()
        elif event["split"] in PRIMING:
            self.seeded[event["id"]] = event["dp_rank"]
        else:
            self.passed.add(event["id"])

    def _forget(self, *, flushed: bool) -> None:
        self.seeded, self.sent, self.passed, self.failed = {}, set(), set(), set()
        self.flushed = flushed
        self.counters, self.served = None, []


class Journal:
    """An open journal, which this process alone may write: `with Journal(path) as journal`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.history = History()

    def __enter__(self) -> Self:
        try:
            if self.path.exists():
                regular(self.path)
            self._file = self.path.open("a+b")
        except OSError as failure:
            found = failure.strerror or str(failure)
            remedy = "Give a writable place with --journal FILE."
            raise error(
                str(self.path), expected="a writable journal", found=found, remedy=remedy
            ) from failure
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failure:
            self._file.close()
            found = "another preparation that is writing it"
            raise error(str(self.path), expected="a journal of this process", found=found) from failure
        try:
            for event in self._events():
                self.history.take(event)
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, event: Event) -> None:
        """Append one event, and return once it is on the disk."""
        try:
            self._file.write(orjson.dumps(event) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except (OSError, ValueError) as failure:  # a ValueError of a file that another rank's failure closed
            with suppress(OSError):
                self._file.close()
            found = (isinstance(failure, OSError) and failure.strerror) or "a line before this one failed"
            raise error(str(self.path), expected="a journal with room for a line", found=found) from failure
        self.history.take(event)

    def _events(self) -> Iterator[Event]:
        """Yield the events of the file, and cut off a last line that was only partly written."""
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                self._file.truncate(whole)
                return
            whole += len(line)
            yield _parse(line, f"{self.path}:{number}")


def _parse(line: bytes, place: str) -> Event:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError:
        event = None
    if isinstance(event, dict) and type(event.get("event")) is str and _counts_fit(event.get("counts")):
        needed = _NEEDED.get(event["event"], {})
        if all(type(event.get(key)) is kind for key, kind in needed.items()):
            return event
    shown = repr(line[:60].decode(errors="replace"))
    remedy = "Move it away, or give another with --journal FILE."
    raise error(place, expected="an event of a preparation", found=shown, remedy=remedy)


def _counts_fit(counts: object) -> bool:
    return counts is None or (isinstance(counts, dict) and all(type(n) is int for n in counts.values()))
