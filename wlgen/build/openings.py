"""Openings: the first two tokens of a stream, which tell it from all streams that begin at its point."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from wlgen.errors import WlgenError, error
from wlgen.plan.rows import Plan, RowPlan, Segment
from wlgen.streams import Coordinates
from wlgen.text.lexicon import Atom, Lexicon


class Points:
    """Numbers the points of prompts at which streams begin. Rows that are equal up to a point share it.

    head | prefix of g0007 | own part of row 1      Point 0 stands behind the head, where prefixes begin;
                           | own part of row 2      point 1 behind the prefix of g0007, where its rows part.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}

    def of(self, row: RowPlan) -> Iterator[tuple[int, Segment, bool]]:
        """Yield each segment of a row with its point, and whether it is the first of a message."""
        path: tuple[object, ...] = ()
        for message in row.messages:
            at_start = True
            for segment in message.segments:
                point = self._numbers.setdefault(path, len(self._numbers))
                yield point, segment, at_start
                path = (point, segment.stream, segment.tokens)
                at_start = False
            path = (path, "next message")


class Siblings:
    """Streams that begin at one point, each known there by a mark: its ordinal, or its first token."""

    def __init__(self) -> None:
        self._marks: defaultdict[int, dict[int, Coordinates | None]] = defaultdict(dict)

    def takes(self, point: int, mark: int, segment: Segment) -> bool:
        """Let a stream take a mark at a point; return whether no other stream has it.

        A row's own part is seen once, so its name need not be kept: 60 bytes a row, and not 300.
        """
        marks = self._marks[point]
        if segment.kind == "own":
            free = mark not in marks
            marks[mark] = None
            return free
        return marks.setdefault(mark, segment.stream) == segment.stream


def opening(lexicon: Lexicon, segment: Segment, *, at_start: bool) -> tuple[Atom, ...]:
    """Return a segment's lead and second token; only the lead if the segment is one token long."""
    lead, turn = lexicon.leads(at_start=at_start).at(segment.ordinal)
    # Streams with the same lead differ in the second token. Those counted from the front take the second
    # tokens number 0, 2, 4 ... (turn 0 takes 0, turn 1 takes 2); those from the back take 1, 3, 5 ...
    seconds = lexicon.seconds
    return (lead, seconds[(2 * turn + (segment.ordinal < 0)) % len(seconds)])[: segment.tokens]


def crowded_rows(plan: Plan, lexicon: Lexicon) -> int:
    """Return how many rows begin their own part with the same token as an earlier row of their group.

    It is 0 unless a group has about as many rows as the vocabulary has leads. WlgenError if the vocabulary is
    so small that two rows have the same first two tokens, or two prefixes the same first token, or if that
    one more shared token would make one more page cached.
    """
    least, most = plan.source.ordinals()
    places = (True, False) if plan.source.chained else (True,)
    if all(lexicon.leads(at_start=at_start).suffice(least, most) for at_start in places):
        return 0
    return _crowded_rows(plan, lexicon)


def _crowded_rows(plan: Plan, lexicon: Lexicon) -> int:
    rule = plan.spec.cache
    begun: dict[tuple[object, ...], object] = {}
    points, crowded = Points(), 0
    for row in (row for file in plan.files() for row in plan.rows(*file)):
        for point, segment, at_start in points.of(row):
            stream = segment.stream
            ids = [atom.id for atom in opening(lexicon, segment, at_start=at_start)]
            one = begun.setdefault((point, ids[0]), stream) == stream
            two = begun.setdefault((point, *ids, "two"), stream) == stream
            cached, more = (rule.cached_len(row.shared_len + n, row.prompt_len) for n in (0, 1))
            spare = one or cached == more
            if not two or (segment.kind == "prefix" and not one) or not spare:
                raise _too_small(row)
            crowded += not one
    return crowded


def _too_small(row: RowPlan) -> WlgenError:
    return error(
        "tokenizer vocabulary",
        expected="so many whole words that any two rows differ in the first tokens behind what they share",
        found=f"too few words for row {row.id} of group {row.group}",
        remedy="Use a tokenizer with more whole words, or fewer rows, groups or seeds.",
    )
