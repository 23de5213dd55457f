"""A second run among the result files: told by its times, and never added to the first.

`wlgen audit SET out/*/performances/*/*_details.jsonl` matches the files of yesterday's run too. Each row then
has two results, the throughput is that of neither run, and half of the requests hit what the first run left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wlgen.audit.findings import Promised
from wlgen.errors import Problem, counted
from wlgen.readers import Result

ALIKE = 0.5  # of the smaller part's rows, the share that a second run repeats; less is a request sent twice


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """The requests of one run in one file: their rows, and when they ran.

    number: the run's number in its file, from 0. start, end: None if no result says when it started.
    """

    name: str
    number: int
    rows: frozenset[str]
    start: float | None
    end: float | None

    def repeats(self, other: FilePart) -> bool:
        """Return whether this part sends the rows of another part again, after that part had ended."""
        shared = len(self.rows & other.rows)
        if not shared or shared < ALIKE * min(len(self.rows), len(other.rows)):
            return False
        if self.start is not None and other.end is not None:
            return self.start > other.end
        return self.name == other.name and self.number > other.number


def parts_of(name: str, pairs: Iterable[tuple[Promised | None, Result]]) -> list[FilePart]:
    """Return the parts of one file, one for each run in it."""
    runs: dict[int, list[tuple[Promised, Result]]] = {}
    for row, result in pairs:
        if row is not None:
            runs.setdefault(result.run, []).append((row, result))
    return [_part(name, number, held) for number, held in sorted(runs.items())]


def _part(name: str, number: int, held: Sequence[tuple[Promised, Result]]) -> FilePart:
    starts = [result.start for _, result in held if result.start is not None]
    ends = [result.end for _, result in held if result.start is not None and result.end is not None]
    return FilePart(
        name=name,
        number=number,
        rows=frozenset(row.id for row, _ in held),
        start=min(starts, default=None),
        end=max([*starts, *ends], default=None),
    )


def second_runs(parts: Iterable[FilePart]) -> list[Problem]:
    """Return a problem, which names the files, for each run but the first."""
    runs: list[list[FilePart]] = []
    for part in sorted(parts, key=lambda part: (part.start or 0.0, part.name, part.number)):
        fitting = [run for run in runs if not any(part.repeats(other) for other in run)]
        if fitting:
            fitting[0].append(part)
        else:
            runs.append([part])
    return [_problem(run, runs[0], number) for number, run in enumerate(runs[1:], 2)]


def _problem(run: Sequence[FilePart], first: Sequence[FilePart], number: int) -> Problem:
    again = len(frozenset().union(*(part.rows for part in run)) & frozenset().union(*(p.rows for p in first)))
    ended = max((part.end for part in first if part.end is not None), default=None)
    began = min((part.start for part in run if part.start is not None), default=None)
    when = (
        "" if ended is None or began is None else f", begun {began - ended:.3f} s after the first had ended"
    )
    return Problem(
        place=_names(run),
        expected="the results of one run",
        found=f"run {number}, which sends {counted(again, 'row')} of {_names(first)} again{when}",
        remedy="Audit each run by itself: give only its files. A later run counts only if `wlgen prepare` "
        "flushed and seeded the server before it",
    )


def _names(run: Sequence[FilePart]) -> str:
    names = list(dict.fromkeys(part.name for part in run))
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
