"""Explain: tries what could have happened, by replay, and names what explains every row that deviates.

Each fault of faults/ proposes parameters from the rows that deviate. A proposal predicts the figures of the
rows that it touches. It explains a row that deviates and has a predicted figure; it is dropped where a row
is as planned and could not be, had the fault acted. Of the proposals left, the one that explains most rows
is the cause; of equals the one with the fewest parameters, then the one that concerns the least of a run.
What it leaves is explained by a second cause acting with it, and a third. A clean run replays nothing.

Example: 40 rows of rank 3 found 0. "Rank 3 keeps nothing" predicts 0 for each of them and touches no other,
so it explains 40 of 40. "The requests were not pinned" predicts 0 for rows that found 118784.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from wlgen.audit.model import Diagnosis, Explained, OneRow, Prediction, Rival
from wlgen.errors import WlgenError
from wlgen.faults import Aspect, Fault, Figure, Parameters, Run, SeenRow, View
from wlgen.faults._names import every_fault
from wlgen.faults._replay import figures

MOST_CAUSES = 3
MOST_PROPOSALS = 200
OF_ONE_FAULT = 40
TRIAL = 1 << 20  # tokens of the run's first requests, which are tried before everything is replayed
ENOUGH = 32  # deviating rows of a trial, of which a cause explains at least one
_ASPECTS: tuple[Aspect, ...] = get_args(Aspect)
_CACHED, _ABSENT = _ASPECTS.index("cached"), _ASPECTS.index("absent")
_Marks: TypeAlias = NDArray[np.bool_]
"""Shape (rows, aspects): whether a row deviates in a respect. A byte each, since a set of pairs took 100."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tried:
    """A proposal that contradicts nothing. asked_of: what it predicts of the row that somebody asks about."""

    fault: Fault
    parameters: Parameters
    marks: _Marks
    asked_of: frozenset[Figure]
    vague: int

    @property
    def key(self) -> tuple[int, int, int]:
        """Most rows first, then the fewest parameters, then the smallest part of a run."""
        return (-int(np.count_nonzero(self.marks)), self.count, self.fault.scope)

    @property
    def count(self) -> int:
        """How many parameters it takes; a row that may also be as planned proves less, and counts as one."""
        return self.vague + sum(len(v) if isinstance(v, list) else 1 for v in self.parameters.values())

    @property
    def words(self) -> str:
        return self.fault.words(self.parameters)


def explain(view: View, *, row_id: str | None = None) -> Explained:
    """Return the causes of the rows that deviate, at most three, and the rows that nothing explains.

    row_id: a row of which every proposal that no row contradicts says what it predicts.
    """
    left = _marks(view.rows)
    everything, run, rows = left, view.run, list(view.rows)
    told: dict[int, SeenRow] = {}  # rows that a cause explains, as they were seen
    causes: list[Diagnosis] = []
    row = next((each for each in view.rows if each.id == row_id), None)
    one = _one_row(row, ())
    while left.any() and len(causes) < MOST_CAUSES:
        now = replace(view, run=run, rows=rows)
        tried = sorted(_Trial(now, left, told, row).tried(), key=lambda each: each.key)
        if not tried:
            break
        best = tried[0]
        if not causes:
            one = _one_row(row, tried)
        causes.append(_diagnosis(best, tuple(_rivals(best, tried)), everything, view))
        left = left & ~best.marks
        if not left.any():
            break
        for number in np.flatnonzero(best.marks.any(axis=1)).tolist():
            told[number] = view.rows[number]
            rows[number] = _without(rows[number], _of_row(best.marks, number))
        run = best.fault.act(run, best.parameters) if best.fault.act is not None else run
    unexplained = tuple(view.rows[number].id for number in np.flatnonzero(left.any(axis=1)).tolist())
    assumed = view.assumed if everything.any() else ()
    return Explained(causes=tuple(causes), unexplained=unexplained, assumed=assumed, row=one)


def _marks(rows: Sequence[SeenRow]) -> _Marks:
    marks = np.zeros((len(rows), len(_ASPECTS)), dtype=np.bool_)
    for row in rows:
        for aspect in row.deviates:
            marks[row.number, _ASPECTS.index(aspect)] = True
    return marks


def _of_row(marks: _Marks, number: int) -> set[Aspect]:
    return {aspect for aspect, marked in zip(_ASPECTS, marks[number], strict=True) if marked}


def _one_row(row: SeenRow | None, tried: Sequence[_Tried]) -> OneRow | None:
    if row is None:
        return None
    predictions = [
        Prediction(
            cause=each.fault.name,
            words=each.words,
            figures=tuple(sorted(each.asked_of, key=lambda figure: -1 if figure is None else figure)),
            explains=bool(each.marks[row.number].any()),
        )
        for each in tried
    ]
    return OneRow(
        id=row.id,
        planned=row.planned,
        cached=row.cached,
        deviates=tuple(sorted(row.deviates)),
        predictions=tuple(predictions),
    )


def _rivals(best: _Tried, tried: Sequence[_Tried]) -> Iterator[_Tried]:
    """Yield what explains the same rows as well, and one of each other fault with one parameter more.

    A flush before a run's last row and a cache that keeps nothing from there on leave the same figures: one
    row of 0. Which it was only another observation can tell.
    """
    names = {best.fault.name}
    for each in tried:
        equal = each.key == best.key and each is not best  # such as a quantum of 256, or of 512
        other = each.count <= best.count + 1 and each.fault.name not in names
        if (equal or other) and np.array_equal(each.marks, best.marks):
            names.add(each.fault.name)
            yield each


class _Trial:
    """All proposals held against the rows that are still to be explained.

    row: the row that somebody asks about, of which every proposal says what it predicts. Without one a
    proposal is dropped as soon as it can explain fewer rows than the best one so far: of 100,000 results 16
    found 0, a flush explains 16, and whatever misses one of them need not be replayed to the end.
    """

    def __init__(self, view: View, left: _Marks, told: Mapping[int, SeenRow], row: SeenRow | None) -> None:
        self._view = view
        self._left = left
        self._told = told
        self._row = row
        self._most = 0  # marks of the best proposal so far
        self._off = Counter(view.rows[number].rank for number in np.flatnonzero(left[:, _CACHED]).tolist())

    def tried(self) -> Iterator[_Tried]:
        """Yield the proposals that explain something and that no row contradicts."""
        proposals = (
            (fault, parameters)
            for fault in every_fault()
            for parameters in islice(fault.propose(self._view), OF_ONE_FAULT)
        )
        for fault, parameters in islice(proposals, MOST_PROPOSALS):
            try:
                found = self._try(fault, parameters)
            except WlgenError:  # such as a capacity in which a prompt alone has no room
                continue
            if found is not None and found.marks.any():
                self._most = max(self._most, int(np.count_nonzero(found.marks)))
                yield found

    def _try(self, fault: Fault, parameters: Parameters) -> _Tried | None:
        """Return a proposal with the rows that it explains, None where a row contradicts it."""
        marks = np.zeros_like(self._left)
        if fault.says is not None:
            for number, aspects in fault.says(self._view, parameters).items():
                for aspect in aspects:
                    marks[number, _ASPECTS.index(aspect)] = True
            marks &= self._left
        asked_of, vague = frozenset[Figure](), 0
        if fault.act is not None:
            touched = fault.touches(self._view, parameters)
            if not fault.looks_ahead and touched is None and self._refuted(fault, parameters):
                return None
            replayed = self._replayed(fault.act(self._view.run, parameters), touched, marks)
            if replayed is None:
                return None
            asked_of, vague = replayed
        return _Tried(fault=fault, parameters=parameters, marks=marks, asked_of=asked_of, vague=vague)

    def _replayed(
        self, run: Run, touched: Collection[int] | None, marks: _Marks
    ) -> tuple[frozenset[Figure], int] | None:
        """Add what a run explains to marks; return what it predicts of the row, and how many rows vaguely.

        None where a row contradicts it, or where it cannot explain as many rows as the best one.
        """
        asked_of, vague, missed = frozenset[Figure](), 0, 0
        most_missed = np.count_nonzero(self._left) - self._most
        for number, told in figures(run, touched, first=self._off):
            row = self._view.rows[number]
            if self._contradicts(row, told):
                return None
            if self._row is not None and number == self._row.number:
                asked_of = told
            aspect = _ABSENT if row.cached is None else _CACHED
            if not self._left[number, aspect]:
                continue
            if row.cached in told:
                marks[number, aspect] = True
                vague += run.reported is not None and any(map(row.as_planned, told))
            elif not marks[number, aspect]:
                missed += 1
                if self._row is None and missed > most_missed:
                    return None
        return asked_of, vague

    def _contradicts(self, row: SeenRow, told: frozenset[Figure]) -> bool:
        """Return whether a row is otherwise than predicted: as planned, or as a cause has explained it."""
        before = self._told.get(row.number)
        if before is not None and "cached" in before.deviates:
            return before.cached not in told
        seen = row.results and row.success and row.cached is not None
        return bool(seen) and "cached" not in row.deviates and not any(map(row.as_planned, told))

    def _refuted(self, fault: Fault, parameters: Parameters) -> bool:
        """Return whether the first requests of a large run already speak against a proposal.

        100,000 rows of 2,052 tokens take seconds to replay, and most proposals fail within the first 500: a
        row there is as planned and should not be, or none of many deviating rows has the predicted figure.
        """
        whole = self._view.run
        tokens, end = 0, 0
        while end < len(whole.asked) and tokens < TRIAL:
            tokens += whole.asked[end].prompt_len
            end += 1
        if end * 2 > len(whole.asked) or fault.act is None:
            return False
        off = hits = 0
        for number, told in figures(fault.act(replace(whole, asked=whole.asked[:end]), parameters)):
            row = self._view.rows[number]
            if self._contradicts(row, told):
                return True
            off += "cached" in row.deviates
            hits += "cached" in row.deviates and row.cached in told
        return off >= ENOUGH and not hits


def _without(row: SeenRow, aspects: set[Aspect]) -> SeenRow:
    """Return a row as it would have been seen without what a cause explains."""
    changes: dict[str, Any] = {}
    if "missing" in aspects:
        changes |= {"results": 1, "success": True, "cached": row.planned}
    if "failed" in aspects:
        changes |= {"success": True, "cached": row.planned}
    if aspects & {"cached", "absent"}:
        changes["cached"] = row.planned
    plain = {
        "prompt": row.prompt_len,
        "output": row.output_len,
        "doubled": 1,
        "text": False,
        "late": 0.0,
        "apart": False,
        "rank": None,
    }
    names = {"doubled": "results", "text": "text_changed", "rank": "served_by"}
    changes |= {names.get(a, a): plain[a] for a in aspects if a in plain}
    return replace(row, **changes)


def _diagnosis(best: _Tried, rivals: Sequence[_Tried], everything: _Marks, view: View) -> Diagnosis:
    alike = everything[:, best.marks.any(axis=0)].any(axis=1)
    return Diagnosis(
        cause=best.fault.name,
        parameters=dict(best.parameters),
        rows=int(np.count_nonzero(best.marks.any(axis=1))),
        of=int(np.count_nonzero(alike)),
        explains=best.words,
        remedy=f"{best.fault.remedy(view)}.",
        rivals=tuple(_rival(rival, best) for rival in rivals),
    )


def _rival(rival: _Tried, best: _Tried) -> Rival:
    return Rival(
        cause=rival.fault.name,
        parameters=dict(rival.parameters),
        explains=rival.words,
        apart=rival.fault.apart or best.fault.apart,
    )
