"""Openings: the first two tokens of a stream, which tell it from all streams that begin at its point."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import takewhile

from wlgen.cache.rule import CacheRule
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
            marks.setdefault(mark, None)
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
    """Return how many rows go on, behind what they share, with a first token that an earlier row has there.

    It is 0 unless a group has about as many rows, or the set as many prefixes, as the vocabulary has leads.
    DeepSeek's has 19,538 leads at the start of a body, of which prefixes take every sixth: of 10,000 prefixes
    the last 231 take a lead a second time, and differ in their second token. WlgenError where the vocabulary
    is too small to tell streams apart by two tokens, or where one token more would be a page more.
    """
    least, most = plan.source.ordinals()
    places = (True, False) if plan.source.chained else (True,)
    if all(lexicon.leads(at_start=at_start).suffice(least, most) for at_start in places):
        return 0
    return _crowded_rows(plan, lexicon)


def surely_crowded(plan: Plan, lexicon: Lexicon) -> bool:
    """Return whether more formal rows begin at one point than there are leads, so that no numbering helps."""
    _, most = plan.source.ordinals()
    places = (True, False) if plan.source.chained else (True,)
    alone = plan.spec.trace is None and plan.spec.requests[0].session is None
    return alone and not any(lexicon.leads(at_start=at_start).suffice(0, most) for at_start in places)


def _crowded_rows(plan: Plan, lexicon: Lexicon) -> int:
    rule = plan.spec.cache
    firsts, pairs, points, crowded = Siblings(), Siblings(), Points(), 0
    for row in (row for file in plan.files() for row in plan.rows(*file)):
        alone = True
        for point, segment, at_start in points.of(row):
            first, *second = (atom.id for atom in opening(lexicon, segment, at_start=at_start))
            one = firsts.takes(point, first, segment)
            two = pairs.takes(point, _pair(first, *second), segment)
            if not two or not (one or _is_spare(rule, plan, row, segment)):
                raise _too_small(row)
            alone = alone and one
        crowded += not alone
    return crowded


def _pair(first: int, second: int = -1) -> int:
    return (first << 32) + second + 1


def _is_spare(rule: CacheRule, plan: Plan, row: RowPlan, segment: Segment) -> bool:
    """Whether a row may share the first token of a segment too: what it finds cached is the same."""
    shared_len = row.shared_len
    if segment.kind == "prefix":
        head = plan.frame(tuple(m.role for m in row.messages)).ids[0]
        above = takewhile(lambda s: s != segment, row.messages[0].segments)  # where all prefixes stand
        shared_len = len(head) + sum(s.tokens for s in above)
    return rule.cached_len(shared_len, row.prompt_len) == rule.cached_len(shared_len + 1, row.prompt_len)


def _too_small(row: RowPlan) -> WlgenError:
    return error(
        "tokenizer vocabulary",
        expected="so many whole words that any two rows differ in the first tokens behind what they share",
        found=f"too few words for row {row.id} of group {row.group}",
        remedy="Use a tokenizer with more whole words, or fewer rows, groups or seeds.",
    )
