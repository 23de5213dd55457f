"""Join: to which row each result belongs, by id, by text or by its place in the file that was sent."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from wlgen.audit.findings import Promised
from wlgen.audit.second_run import FilePart, parts_of
from wlgen.errors import MoreProblems, Problem, capped
from wlgen.readers import Result
from wlgen.workload.rows import Finding
from wlgen.workload.splits import BY_NAME, SPLITS, Split

LISTED_PROBLEMS = 5  # of one kind in one file
LARGEST_FRAMING = 4096  # tokens; a prompt that differs by more from its plan has not only another framing


class Rows:
    """The rows of a set, found by id, by text, and by place in a file that was exported."""

    def __init__(self, rows: Iterable[Promised]) -> None:
        self.all = tuple(rows)
        self.by_id = {row.id: row for row in self.all}
        self.by_text = {row.text_sha256: row for row in reversed(self.all)}
        self._alike: dict[str, list[Promised]] = {}  # rows with the same text, which a trace may have
        if len(self.by_text) < len(self.all):
            for row in self.exported(SPLITS):
                self._alike.setdefault(row.text_sha256, []).append(row)

    def exported(
        self, splits: Sequence[Split], rank: int | None = None, rounds: Sequence[int] | None = None
    ) -> list[Promised]:
        """Return the rows in the order of an export: the ranks in turn, or the order of one rank."""
        place: dict[tuple[Split, int, int], int] = defaultdict(int)
        ordered = []
        for row in self.all:
            turn = place[row.split, row.round, row.dp_rank]
            place[row.split, row.round, row.dp_rank] += 1
            in_round = rounds is None or row.split.within(row.round, rounds)
            if row.split in splits and rank in (None, row.dp_rank) and in_round:
                ordered.append((row.round, turn, row.dp_rank, row))
        ordered.sort(key=lambda found: found[:3])
        return [row for *_, row in ordered]

    def take(self, text_sha256: str | None, dp_rank: int | None = None) -> Promised | None:
        """Return the row of a text. Rows with the same text take turns, those of the rank first.

        When all were taken, the last one is returned again. Modifies which rows are still to be taken.
        """
        alike = self._alike.get(text_sha256 or "", [])
        if len(alike) <= 1:
            return alike[0] if alike else self.by_text.get(text_sha256 or "")
        return alike.pop(next((n for n, row in enumerate(alike) if row.dp_rank == dp_rank), 0))


@dataclass(kw_only=True, slots=True)
class Joined:
    """What joining found: results with their rows in the order read, foreign results, unreadable places.

    of_others: results in files that hold none of the set. parts: what each file holds, from which a second
    run is recognised.
    """

    pairs: list[tuple[Promised, Result]] = field(default_factory=list)
    foreign: list[Finding] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    of_others: int = 0
    parts: list[FilePart] = field(default_factory=list)


def join(
    rows: Rows,
    files: Iterable[tuple[str, Iterable[Result | Problem]]],
    splits: Sequence[Split],
    rounds: Sequence[int] = (0,),
) -> Joined:
    """Join the results of files, each (name, results), to rows; `splits` and `rounds` are under audit.

    A result's id decides. If it has none, its index decides if the file's texts are in the export's order, or
    if it has no text; otherwise its text decides. A file without any result of the set is a problem, and its
    results do not count.
    """
    joined = Joined()
    unnamed: set[tuple[Split, ...]] = set()
    for name, found in files:
        results, problems = _apart(found, name)
        joined.problems += problems
        if not results:
            continue
        if _is_blind(results):
            held, rank = _named(name)
            sent = (held,) if held else tuple(splits)
            if problem := _unplaceable(name, sent, unnamed if rank is None else set()):
                joined.problems.append(problem)
                continue
            unnamed.add(sent)
        pairs = list(_pairs(rows, results, name, splits, rounds))
        if problem := _of_another_set(name, pairs):
            joined.problems.append(problem)
            joined.of_others += len(pairs)
            continue
        joined.parts += parts_of(name, pairs)
        for row, result in pairs:
            if row is None:
                joined.foreign.append(_foreign(result))
            else:
                joined.pairs.append((row, result))
    return joined


def _apart(found: Iterable[Result | Problem], name: str) -> tuple[list[Result], list[Problem]]:
    results: list[Result] = []
    problems: list[Problem] = []
    alike: Counter[str] = Counter()
    for item in found:
        if isinstance(item, Result):
            results.append(item)
        else:
            alike[item.expected] += 1
            if alike[item.expected] <= LISTED_PROBLEMS:  # a wrong file may have millions of bad lines
                problems.append(item)
    for expected, count in alike.items():
        if (rest := count - LISTED_PROBLEMS) > 0:
            problems.append(MoreProblems(place=name, expected=expected, found="", rest=rest))
    if not results and not problems:
        remedy = "The client wrote no request into it: see why it stopped, and run it again"
        problems.append(Problem(place=name, expected="results", found="none", remedy=remedy))
    return results, capped(problems, LISTED_PROBLEMS)


def _is_blind(results: Sequence[Result]) -> bool:
    return all(r.id is None and r.text_sha256 is None for r in results)


def _unplaceable(name: str, sent: tuple[Split, ...], unnamed: set[tuple[Split, ...]]) -> Problem | None:
    """Return why results with neither ids nor texts cannot be placed, or None if they can."""
    remedy = "Name the file as the run card does, or audit one split at a time with --split."
    if len(sent) > 1:
        expected = "a name that holds its split, such as formal: its results have neither ids nor texts"
    elif sent in unnamed:
        expected = "a name that holds its rank, such as rank-03: its results have neither ids nor texts"
    else:
        return None
    return Problem(place=name, expected=expected, found=Path(name).name, remedy=remedy)


_Pairs: TypeAlias = list[tuple[Promised | None, Result]]


def _pairs(
    rows: Rows, results: Sequence[Result], name: str, splits: Sequence[Split], rounds: Sequence[int]
) -> Iterator[tuple[Promised | None, Result]]:
    order: Sequence[Promised] | None = None
    if all(result.start is not None for result in results):  # rows with the same text go in order of sending
        results = sorted(results, key=lambda result: result.start or 0.0)
    for result in results:
        if result.id is not None:
            yield rows.by_id.get(result.id) or rows.take(result.text_sha256, result.dp_rank), result
        elif result.index is None:
            yield rows.take(result.text_sha256, result.dp_rank), result
        else:
            if order is None:
                order = _order(rows, results, name, splits, rounds)
            here = order[result.index] if result.index < len(order) else None
            # `_order` returns no order if the texts contradict it: then each result's text decides.
            yield here or rows.take(result.text_sha256, result.dp_rank), result


def _order(
    rows: Rows, results: Sequence[Result], name: str, splits: Sequence[Split], rounds: Sequence[int]
) -> Sequence[Promised]:
    """Return the rows in the order of the file that was sent, empty where the texts show another order."""
    texts = [(r.index, r.text_sha256) for r in results if r.index is not None and r.text_sha256 is not None]
    known = [rows.by_text[text] for _, text in texts if text in rows.by_text]
    held, rank = _named(name)
    sent: Sequence[Split] = (held,) if held else splits
    if known:  # what was sent says which splits the file is of
        sent = tuple(split for split in SPLITS if any(row.split == split for row in known))
        rounds = tuple({row.round for row in known if row.split.each_round})
    in_turn = rows.exported(sent, rank, rounds)
    if not texts:
        return in_turn
    in_file_order = sorted(in_turn, key=lambda row: (row.round, SPLITS.index(row.split), row.dp_rank))
    best = max((in_turn, in_file_order), key=lambda order: _agreeing(order, texts))
    return best if _agreeing(best, texts) * 2 > len(texts) else ()


def _agreeing(order: Sequence[Promised], texts: Sequence[tuple[int | None, str | None]]) -> int:
    return sum(
        index is not None and index < len(order) and order[index].text_sha256 == text for index, text in texts
    )


def _named(name: str) -> tuple[Split | None, int | None]:
    # By the commands of RUN.md a result file's name holds the split and rank of its rows.
    stem = Path(name).name
    splits = re.findall(rf"(?<![a-z])({'|'.join(SPLITS)})(?![a-z])", stem)
    ranks = re.findall(r"rank-(\d+)", stem)
    return BY_NAME[splits[-1]] if splits else None, int(ranks[-1]) if ranks else None


def _of_another_set(name: str, pairs: _Pairs) -> Problem | None:
    own = [(row, result) for row, result in pairs if row is not None]
    remedy = "Give the folder of the set that was sent."
    if not own:
        found = f"{len(pairs)} results, none of them of a row of this set (first: {_shown(pairs[0][1])})"
        return Problem(place=name, expected="results of this set, text unchanged", found=found, remedy=remedy)
    counted = [(row.prompt_len, r.prompt_tokens) for row, r in own if r.prompt_tokens is not None]
    blind = _is_blind([r for _, r in own])
    if blind and counted and all(abs(got - planned) > LARGEST_FRAMING for planned, got in counted):
        found = f"prompts of {counted[0][1]} tokens"
        expected = f"results of this set, whose prompts have {counted[0][0]} tokens"
        return Problem(place=name, expected=expected, found=found, remedy=remedy)
    return None


def _foreign(result: Result) -> Finding:
    return Finding(id=result.place, promise="of_the_set", expected="a row of the set", got=_shown(result))


def _shown(result: Result) -> str:
    if result.id is not None:
        return f"id {result.id}"
    if result.text_sha256 is not None:
        return f"a text with sha256 {result.text_sha256[:16]}"
    return f"index {result.index}"
