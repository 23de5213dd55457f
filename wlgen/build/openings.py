"""Openings: the first two tokens of a stream, which tell it from every other that begins where it does."""

from __future__ import annotations

from wlgen.errors import WlgenError, error
from wlgen.plan.rows import Plan, RowPlan, Segment
from wlgen.text.lexicon import Atom, Lexicon


def opening(lexicon: Lexicon, segment: Segment, *, at_start: bool) -> tuple[Atom, ...]:
    """Return the first tokens of a segment: its lead and what follows it, as far as the segment reaches."""
    lead, turn = lexicon.leads(at_start=at_start).at(segment.ordinal)
    # Streams with one lead differ in the second token: even ones count from the front, odd from the back.
    seconds = lexicon.seconds
    return (lead, seconds[(2 * turn + (segment.ordinal < 0)) % len(seconds)])[: segment.tokens]


def crowded_rows(plan: Plan, lexicon: Lexicon) -> int:
    """Return how many rows begin their own part with a token that an earlier row of their group has there.

    It is 0 unless a group has about as many rows as the vocabulary has leads. WlgenError where the vocabulary
    is too small to tell two rows apart by two tokens, or two prefixes by one, or where one token more would
    be a page more.
    """
    least, most = plan.source.ordinals()
    places = (True, False) if plan.source.chained else (True,)
    if all(lexicon.leads(at_start=at_start).suffice(least, most) for at_start in places):
        return 0
    return _crowded_rows(plan, lexicon)


def _crowded_rows(plan: Plan, lexicon: Lexicon) -> int:
    rule = plan.spec.cache
    begun: dict[tuple[object, ...], object] = {}
    crowded = 0
    for row in (row for file in plan.files() for row in plan.rows(*file)):
        path: tuple[object, ...] = ()
        for message in row.messages:
            for number, segment in enumerate(message.segments):
                stream = segment.stream
                ids = [atom.id for atom in opening(lexicon, segment, at_start=number == 0)]
                one = begun.setdefault((path, ids[0]), stream) == stream
                two = begun.setdefault((path, *ids, "two"), stream) == stream
                cached, more = (rule.cached_len(row.shared_len + n, row.prompt_len) for n in (0, 1))
                spare = one or cached == more
                if not two or (segment.kind == "prefix" and not one) or not spare:
                    raise _too_small(row)
                crowded += not one
                path = (*path, stream, segment.tokens)
    return crowded


def _too_small(row: RowPlan) -> WlgenError:
    return error(
        "tokenizer vocabulary",
        expected="enough whole words that every two rows differ in the first tokens that are not shared",
        found=f"too few for row {row.id} of group {row.group}",
        remedy="Use a tokenizer with more whole words, or fewer rows, groups or seeds.",
    )
