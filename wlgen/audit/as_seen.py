"""As seen: a run that can be replayed, and what was seen of its rows, from rows and results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from wlgen.audit.findings import Promised
from wlgen.audit.sending import Overlap
from wlgen.cache.rule import CacheRule
from wlgen.faults import Asked, Chain, Run, SeenRow, View
from wlgen.readers import Result
from wlgen.workload.splits import SPLITS, Split

Chains = Callable[[], Mapping[str, Chain]]
"""Returns the chain of each row by its id, planned again; asked for only where a row deviates."""

NO_STARTS = "the results say nothing of starts: rows are taken in the set's order, and order is not judged"
NO_ENDS = "the results say nothing of ends: requests are taken one after another on each rank"
NO_RANKS = "the results say nothing of ranks: each row is taken to have reached its planned rank"
PLANNED = "seeds and checks are taken as planned"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSeen:
    """An audited row with its results, the first of which counts. late: as in SeenRow."""

    row: Promised
    results: Sequence[Result]
    cached: int | None
    late: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All that an explanation starts from.

    before: rows of the set that were sent before the audited ones: seeds, and checks that are not audited.
    chains: of each row, where the plan tells; without it a row is its group's prefix and a part of its own.
    together: when all ranks ran. answered, foreign, blind: as in View.
    """

    rule: CacheRule
    audited: Sequence[RowSeen]
    before: Sequence[Promised] = ()
    chains: Chains | None = None
    ranks: tuple[int, ...] = ()
    answered: frozenset[int] = frozenset()
    together: Overlap | None = None
    foreign: int = 0
    blind: tuple[str, ...] = ()

    def deviates(self) -> bool:
        """Return whether any row deviates; one row at a time, so that a kept run of 100,000 costs no view."""
        return any(self._seen(number).deviates for number in range(len(self.audited)))

    def view(self) -> View:
        """Return the view of the run; the results' order where each has a start, else the set's."""
        results = [seen.results[0] for seen in self.audited if seen.results]
        ordered = bool(results) and all(result.start is not None for result in results)
        rows = [self._seen(number) for number in range(len(self.audited))]
        chains = self.chains() if self.chains is not None and any(row.deviates for row in rows) else {}
        planned = _as_sent([seen.row for seen in self.audited])
        sent = sorted(planned, key=_starts(planned, self.audited).__getitem__) if ordered else planned
        asked = [_asked(self.before[n], None, chains) for n in _as_sent(self.before)]
        asked += [_asked(self.audited[n].row, (n, self.audited[n]), chains) for n in sent]
        ranks = self.ranks or tuple(sorted({row.rank for row in rows}))
        return View(
            run=Run(rule=self.rule, asked=tuple(asked), overlapping=ordered and _overlap(asked)),
            rows=rows,
            ranks=ranks,
            reordered=_by_rank(planned, rows) != _by_rank(sent, rows),
            answered=self.answered,
            apart=self._apart.parameters if self._apart else None,
            foreign=self.foreign,
            blind=self.blind,
            assumed=tuple(_assumed(results, ordered=ordered)),
        )

    @property
    def _apart(self) -> Overlap | None:
        return self.together if self.together and self.together.apart else None

    def _seen(self, number: int) -> SeenRow:
        seen = self.audited[number]
        row = seen.row
        result = seen.results[0] if seen.results else None
        return SeenRow(
            number=number,
            id=row.id,
            group=row.group,
            rank=row.dp_rank,
            planned=row.cached_len,
            also_planned=row.cached_len_recorded,
            most_planned=row.cached_len if row.bound.max_tokens is not None else None,
            prompt_len=row.prompt_len,
            output_len=row.output_len,
            results=len(seen.results),
            success=result.success if result else True,
            error=result.error if result else "",
            cached=seen.cached if result and result.success else None,
            prompt=result.prompt_tokens if result else None,
            output=result.output_tokens if result else None,
            served_by=result.dp_rank if result else None,
            text_changed=bool(result and result.text_sha256 and result.text_sha256 != row.text_sha256),
            late=seen.late,
            apart=bool(self._apart and result and self._apart.outside(result)),
            files=tuple(each.place.rpartition(":")[0] for each in seen.results)
            if len(seen.results) > 1
            else (),
        )


def _assumed(results: Sequence[Result], *, ordered: bool) -> Iterator[str]:
    if not ordered:
        yield NO_STARTS
    if any(result.end is None for result in results):
        yield NO_ENDS
    if all(result.dp_rank is None for result in results):
        yield NO_RANKS
    yield PLANNED


def _by_rank(sent: Sequence[int], rows: Sequence[SeenRow]) -> dict[int, list[int]]:
    """Return the numbers of each rank's rows, in their order."""
    found: dict[int, list[int]] = {}
    for number in sent:
        found.setdefault(rows[number].rank, []).append(number)
    return found


def _overlap(asked: Sequence[Asked]) -> bool:
    """Return whether any request started before an earlier one of its rank had ended."""
    ends: dict[int, float] = {}
    for each in asked:
        if each.start is not None and each.end is not None:
            if each.start < ends.get(each.rank, float("-inf")):
                return True
            ends[each.rank] = max(each.end, ends.get(each.rank, each.end))
    return False


def _starts(planned: Sequence[int], audited: Sequence[RowSeen]) -> dict[int, float]:
    """Return when each row was sent, by its number; a row without a result right after the one before it."""
    starts: dict[int, float] = {}
    last = float("-inf")
    for number in planned:
        results = audited[number].results
        if results and results[0].start is not None:
            last = results[0].start
        starts[number] = last
    return starts


def _as_sent(rows: Sequence[Promised]) -> list[int]:
    """Return the places of rows in the order in which a server meets them, which is that of `in_order`.

    Seeds come first, then the checks and formal rows of each round, and the ranks take turns.
    """
    turns = Counter[tuple[Split, int, int]]()
    placed = []
    for n, row in enumerate(rows):
        round_ = row.round if row.split.each_round else 0
        lane = (row.split, round_, row.dp_rank)
        placed.append((row.split.each_round, round_, SPLITS.index(row.split), turns[lane], row.dp_rank, n))
        turns[lane] += 1
    return [n for *_, n in sorted(placed)]


def _asked(row: Promised, seen: tuple[int, RowSeen] | None, chains: Mapping[str, Chain]) -> Asked:
    result = seen[1].results[0] if seen and seen[1].results else None
    return Asked(
        row=None if seen is None else seen[0],
        id=row.id,
        chain=chains.get(row.id) or _own_chain(row),
        prompt_len=row.prompt_len,
        output_len=row.output_len,
        rank=row.dp_rank,
        group=row.group,
        split=row.split.value,
        served=result.dp_rank if result else None,
        start=result.start if result else None,
        end=result.end if result else None,
    )


def _own_chain(row: Promised) -> Chain:
    return _prefix(row.group, row.shared_len), (row.id, row.prompt_len - row.shared_len)


@lru_cache(maxsize=4096)
def _prefix(group: str, tokens: int) -> tuple[object, int]:
    """Return the same run for all rows of a group: 100,000 rows then hold it once."""
    return ("prefix", group), tokens
