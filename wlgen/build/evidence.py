"""Evidence: what the tokenizer must confirm of each planned row, chosen and counted before any text exists.

The choice depends on the plan alone, so that a set has the same proof however many processes build it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, Literal, TypeAlias

from wlgen.build.openings import Points, Siblings
from wlgen.plan.rows import RowPlan, Segment
from wlgen.streams import Coordinates
from wlgen.tasks import Task
from wlgen.text.lexicon import Lexicon
from wlgen.text.splits import splits_between_words

# The tokenizer encodes three rows of each split whole, or fewer if three have more than 150,000 tokens: three
# rows of zero-16k, one row of warm-128k. It also encodes the first row with each prefix whole.
WHOLE_ROWS = 3
WHOLE_TOKENS = 150_000

Method: TypeAlias = Literal["atoms", "own parts", "whole"]
"""How much of a row the tokenizer encodes once it has encoded the row's shared prefix.

"atoms": a window on each seam; "own parts": all that follows the prefix; "whole": the whole prompt.
"""
Join: TypeAlias = tuple[Segment | None, Segment | None]
"""Two neighbours in a prompt, such as (prefix of g0007, own part of row 3); None is a gap of the framing."""


class Evidence:
    """Takes planned rows in the order of the plan, and tells which of them to encode whole."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self._prefixes: dict[Coordinates, int] = {}
        self._joined: set[Join] = set()
        self._points = Points()
        self._siblings = Siblings()
        self._whole: Counter[str] = Counter()
        self._seams = 0

    def whole(self, rows: Iterable[RowPlan]) -> set[str]:
        """Return the ids of the rows to encode whole: the first with each prefix, and a few of each split."""
        return {row.id for row in rows if self.take(row)}

    def proof(self) -> dict[str, Any]:
        """Return how much the tokenizer encodes, in numbers, as the manifest keeps it."""
        return {
            "method": self._method,
            "prefixes": len(self._prefixes),
            "seams": self._seams,
            "whole_rows": self._whole.total(),
        }

    def take(self, row: RowPlan) -> bool:
        """Return whether to encode a row whole. Rows must come in the order of the plan."""
        self._check_ordinals(row)
        new = self._takes_prefix(row)
        done = self._whole[row.split]
        few = done == 0 or (done < WHOLE_ROWS and (done + 1) * row.prompt_len <= WHOLE_TOKENS)
        if new or few or self._method == "whole":
            self._whole[row.split] += 1
            self._joined.update(filter(shared, joins(row)))
            return True
        self._seams += self._new_seams(row) if self._method == "atoms" else 1
        return False

    def _check_ordinals(self, row: RowPlan) -> None:
        """Check that streams which begin at the same point, on any rank, have different ordinals."""
        for point, segment, _ in self._points.of(row):
            if not self._siblings.takes(point, segment.ordinal, segment):
                raise RuntimeError(f"row {row.id} begins as another does: ordinal {segment.ordinal}")

    def _takes_prefix(self, row: RowPlan) -> bool:
        """Return whether a row has a prefix that is new, or longer than in every row before it."""
        new = False
        for segment in (segment for message in row.messages for segment in message.segments if segment.kept):
            if segment.kind == "block" and self._method == "atoms":
                continue
            if self._prefixes.get(segment.stream, 0) < segment.tokens:
                self._prefixes[segment.stream] = segment.tokens
                new = True
        return new

    def _new_seams(self, row: RowPlan) -> int:
        """Return how many joins of a row are in no row before it."""
        count = 0
        for join in joins(row):
            if not shared(join):
                count += 1
            elif join not in self._joined:
                self._joined.add(join)
                count += 1
        return count


def joins(row: RowPlan) -> Iterator[Join]:
    """Return each pair of runs of a row that touch: gap, segments of a message, gap, ..., gap."""
    runs = chain.from_iterable((None, *message.segments) for message in row.messages)
    return pairwise((*runs, None))


def shared(join: Join) -> bool:
    """Return whether other rows may have the same seam, since neither side is a row's own part."""
    left, right = join
    return (left is None or left.kept) and (right is None or right.kept)


def method_of(lexicon: Lexicon, tasks: Sequence[Task]) -> Method:
    """Return how to prove the rows of a lexicon and tasks."""
    # An atom is one token between the words it was tested with. If the tokenizer splits at every join, it is
    # one token between any words.
    if not splits_between_words(lexicon.encoding.tokenizer):
        return "whole"
    return "atoms" if all(task.proved for task in tasks) else "own parts"
