"""Prove: what a build checks of every row that it composed, before it writes the manifest.

The tokenizer encodes what is not proved otherwise: the rows that `evidence` names, whole, and a window on
each seam of the other rows. If a task's text is no chain of atoms, it encodes each row's own part; if its
pre-tokenizer does not split every join of atoms, each row whole.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple

import numpy as np

from wlgen.build.compose import Composed, gap_ids
from wlgen.build.evidence import Join, Method, joins, shared
from wlgen.build.openings import Points, Siblings
from wlgen.errors import WlgenError, error
from wlgen.plan.rows import Segment
from wlgen.text.lexicon import Ids, Lexicon
from wlgen.workload.safe_text import Hygiene

MARGIN = 40  # characters on each side of a seam that a window holds, about 8 tokens
OWN_MARGIN = 512  # characters before a row's own part that a window holds; it may begin inside a word
AGREED = 16  # the last tokens of those 512 characters, which must be as planned
BATCH_CHARACTERS = 200_000  # characters of windows and rows that the tokenizer gets at a time


class _Expected(NamedTuple):
    """The ids that a queued text must have.

    before None, row None: the ids are `after`. before given: the text is a window on a seam, and its ids are
    the last of `before` and then the first of `after`. row given: the ids end with `after`; if they do not,
    the row is encoded whole, since a window that begins inside a run of digits may have other tokens there.
    """

    row_id: str
    before: Ids | None
    after: Ids
    row: Composed | None = None


class _Run(NamedTuple):
    """A segment of a row, or a gap of its framing, which has none: its text and ids."""

    segment: Segment | None
    text: str
    ids: Ids


class _Known(NamedTuple):
    """What the tokenizer made of a window that many rows have, on both sides of its seam: ids as bytes."""

    before: bytes
    after: bytes

    def agrees(self, before: Ids, after: Ids) -> bool:
        """Whether a row's ids around the seam are these."""
        return before.tobytes().endswith(self.before) and after.tobytes().startswith(self.after)


class Prover:
    """Takes composed rows one by one; `add` or `finish` raises if a row is not as planned.

    crowded: how many rows the plan gives the lead of another row.
    """

    def __init__(self, lexicon: Lexicon, method: Method, *, crowded: int) -> None:
        self._crowded = crowded
        self._encoding = lexicon.encoding
        self._hygiene = Hygiene(lexicon.encoding)
        self._method = method
        self._points = Points()
        self._siblings = Siblings()
        self._clean: set[Segment] = set()
        self._joined: set[Join] = set()
        self._queue: defaultdict[str, list[_Expected]] = defaultdict(list)
        self._queued = 0
        self._known: dict[str, _Known] = {}
        self._pool = ThreadPoolExecutor(1)
        self._running: list[Future[None]] = []

    def add(self, row: Composed, *, whole: bool) -> None:
        """Check a row's bound, first tokens and text, and queue what the tokenizer must confirm."""
        self._check_bound(row)
        self._check_leads(row)
        self._check_text(row)
        if whole:
            self._joined.update(filter(shared, joins(row.plan)))
            self._ask(self._encoding.render(row.messages), _Expected(row.plan.id, None, row.prompt_ids))
        elif self._method == "atoms":
            self._ask_seams(row)
        else:
            self._ask_own(row)

    def finish(self) -> None:
        """Wait for the tokenizer; WlgenError if a text has other ids than planned."""
        self._flush()
        for running in self._running:
            running.result()
        self._pool.shutdown()

    def _check_bound(self, row: Composed) -> None:
        plan, bound = row.plan, row.plan.bound
        least, most = bound.least(plan.prompt_len), bound.most(plan.prompt_len)
        if not plan.split.primes and not least <= plan.cached_len <= most:
            expected = f"{least} to {most} cached tokens of {plan.prompt_len}"
            raise error(f"row {plan.id}", expected=expected, found=str(plan.cached_len))

    def _check_leads(self, row: Composed) -> None:
        """Check that streams which begin at the same point differ in their first token."""
        pieces = chain.from_iterable(row.pieces)
        for piece, (point, segment, _) in zip(pieces, self._points.of(row.plan), strict=True):
            first = int.from_bytes(piece.ids[: 2 if self._crowded else 1].tobytes())
            if not self._siblings.takes(point, first, segment):
                expected = "first tokens that no other row has behind the same prefix"
                raise error(f"row {row.plan.id}", expected=expected, found=repr(piece.text[:40]))

    def _check_text(self, row: Composed) -> None:
        for pieces in row.pieces:
            new = [piece for piece in pieces if piece.segment not in self._clean]
            self._clean.update(piece.segment for piece in new if piece.segment.kept)
            ends = pieces[0].text[:1] + pieces[-1].text[-1:]
            faults = (self._hygiene.fault(text) for text in (ends, *(p.text.strip() for p in new)))
            fault = next(filter(None, faults), None)
            if fault:
                remedy = "Use the task words, or another tokenizer."
                raise error(f"row {row.plan.id}", expected="safe text", found=fault, remedy=remedy)

    def _ask_seams(self, row: Composed) -> None:
        """Queue a window on each seam of a row that is in no row before it."""
        runs = _runs(row)
        for (segment, text, ids), follower, beyond in zip(runs, runs[1:], [*runs[2:], None], strict=False):
            join = segment, follower.segment
            if shared(join):
                if join in self._joined:
                    continue  # the tokenizer confirms it in another row
                self._joined.add(join)
            left, right, after = _end_of(text), follower.text, follower.ids
            right = _start_of(right) if len(right) > MARGIN or not beyond else right + _start_of(beyond.text)
            # A token has at least one byte, a character at most four: 40 characters are 160 ids or fewer.
            before = ids[max(0, len(ids) - 4 * len(left)) :]
            after = after[: 4 * len(right)]
            if beyond and len(after) < 4 * len(right):
                after = np.concatenate((after, beyond.ids[: 4 * len(right)]))
            known = self._known.get(left + right)
            if known is None or not known.agrees(before, after):
                self._ask(left + right, _Expected(row.plan.id, before.copy(), after.copy()))

    def _ask_own(self, row: Composed) -> None:
        """Queue the prefix's end and what follows; a row encoded whole proves the rest of the prefix."""
        runs = _runs(row)
        first = next((i for i, join in enumerate(joins(row.plan), 1) if not shared(join)), len(runs) - 1)
        margin, rest = runs[first - 1], runs[first:]
        text = margin.text[-OWN_MARGIN:] + "".join(run.text for run in rest)
        after = np.concatenate([margin.ids[-AGREED:], *(run.ids for run in rest)])
        self._ask(text, _Expected(row.plan.id, None, after, row))

    def _ask(self, text: str, expected: _Expected) -> None:
        self._queue[text].append(expected)
        self._queued += len(text)
        if self._queued > BATCH_CHARACTERS:
            self._flush()

    def _flush(self) -> None:
        batch, self._queue, self._queued = self._queue, defaultdict(list), 0
        if batch:
            self._running = [r for r in self._running if not r.done() or r.result() is not None]
            while len(self._running) > 1:  # at most two batches are in memory
                self._running.pop(0).result()
            self._running.append(self._pool.submit(self._confirm, batch))

    def _confirm(self, batch: dict[str, list[_Expected]]) -> None:
        encoded = self._encoding.tokenizer.encode_batch_fast(list(batch), add_special_tokens=False)
        for (text, all_expected), encoding in zip(batch.items(), encoded, strict=True):
            found = encoding.ids
            for expected in all_expected:
                seam = _seam(found, expected)
                if seam is None and not self._agrees_whole(expected.row):
                    raise self._drifted(expected.row_id, text)
            recurs = len(all_expected) > 1 and all_expected[0].before is not None
            if recurs and seam is not None:  # such as the end of every row's last instruction
                self._known[text] = _Known(_bytes_of(found[1:seam]), _bytes_of(found[seam:]))

    def _drifted(self, row_id: str, text: str) -> WlgenError:
        """Return the error of a text with other ids. Under the method "atoms" that is a mistake of wlgen."""
        merges = "this tokenizer joins words that stand side by side"
        remedy = "please report this tokenizer" if self._method == "atoms" else merges
        return error(
            f"row {row_id}",
            expected=f"a text that the tokenizer of {self._encoding.name} encodes to the planned ids",
            found=f"other ids for {text[:60]!r}... ({len(text)} characters)",
            remedy=f"Use the task words, another random_seed or another tokenizer: {remedy}.",
        )

    def _agrees_whole(self, row: Composed | None) -> bool:
        """Return whether a row whose window had other ids has the planned ids as a whole."""
        return row is not None and self._encoding.prompt_ids(row.messages) == row.prompt_ids.tolist()


def _runs(row: Composed) -> list[_Run]:
    """Return the runs that make up the prompt, in order: gap, segments of a message, gap, ..., gap."""
    texts, ids = row.framing.texts, row.framing.ids
    runs = [_Run(None, texts[0], gap_ids(ids[0]))]
    for number, pieces in enumerate(row.pieces, 1):
        runs += [_Run(piece.segment, piece.text, piece.ids) for piece in pieces]
        runs.append(_Run(None, texts[number], gap_ids(ids[number])))
    return runs


def _seam(found: list[int], expected: _Expected) -> int | None:
    """Return where in the ids found the ids of `after` begin, None where they are not as expected."""
    after: list[int] = expected.after.tolist()
    if expected.before is None:
        start = max(0, len(found) - len(after)) if expected.row else 0
        return start if found[start:] == after else None
    # A window starts where its text was cut, so its first token proves nothing. The seam stands where the
    # rest of the window is the start of `after`: at its end where nothing follows (a raw prompt's tail).
    before = expected.before.tolist()
    seams = [i for i, token in enumerate(found) if token == after[0]] if after else [len(found)]
    for seam in seams:
        left, right = found[1:seam], found[seam:]
        if right == after[: len(right)] and left == before[len(before) - len(left) :]:
            return seam
    return None


def _bytes_of(ids: list[int]) -> bytes:
    return np.array(ids, dtype=np.uint32).tobytes()


def _end_of(text: str) -> str:
    """Return the last MARGIN characters, or a few less so that they begin with a space."""
    start = text.find(" ", len(text) - MARGIN) if len(text) > MARGIN else 0
    return text[max(0, start) :]


def _start_of(text: str) -> str:
    """Return the first MARGIN characters, or a few less so that they end before a space."""
    stop = text.rfind(" ", 0, MARGIN) if len(text) > MARGIN else len(text)
    return text[:stop] if stop > 0 else text
