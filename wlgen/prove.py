"""Prove: what a build checks of every row that it composed, before the manifest is written.

The tokenizer is run where something is left to prove: once over each shared prefix, over a window on each
seam, and over a few whole rows a split. Where a task's text is no chain of atoms, it is run over each row's
own part; where its pre-tokenizer does not split every join of atoms, over each row whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from wlgen.compose import Composed, id_runs
from wlgen.errors import WlgenError, error
from wlgen.hygiene import Hygiene
from wlgen.lexicon import Ids, Lexicon
from wlgen.plan import Segment
from wlgen.streams import Coordinates
from wlgen.tasks import Task

MARGIN = 80  # characters on each side of a seam, about 16 tokens
OWN_MARGIN = 512  # characters before a row's own part, of any text: there may be no space to cut at
AGREED = 16  # tokens of them that must be as planned
WHOLE_ROWS = 3  # of each split, beside the first with each prefix, as long as they have at most
WHOLE_TOKENS = 150_000
BATCH_CHARACTERS = 4_000_000  # handed to the tokenizer at a time


class _Expected(NamedTuple):
    """The ids of a queued text: `after`, or with `before` a suffix of it and a prefix of `after`.

    ends: the text's ids end with `after`.
    """

    row: Composed
    before: Ids | None
    after: Ids
    ends: bool = False


class Prover:
    """Takes composed rows one by one; `finish` raises, or returns the proof that the manifest keeps.

    crowded: rows that are planned to share a lead.
    """

    def __init__(self, lexicon: Lexicon, tasks: Sequence[Task], *, crowded: int) -> None:
        self._crowded = crowded
        self._encoding = lexicon.encoding
        self._hygiene = Hygiene(lexicon.encoding)
        self._isolated = isolates(lexicon)
        self._by_atoms = all(task.proved for task in tasks) and self._isolated
        self._siblings: dict[tuple[object, ...], object] = {}
        self._clean: set[Segment] = set()
        self._prefixes: dict[Coordinates, int] = {}
        self._joined: set[tuple[Segment | None, Segment | None]] = set()
        self._counts: Counter[str] = Counter()
        self._queue: list[tuple[str, _Expected]] = []
        self._queued = 0
        self._pool = ThreadPoolExecutor(1)
        self._running: list[Future[None]] = []

    def add(self, row: Composed) -> None:
        """Check one row's bound, first tokens and text, and queue what the tokenizer must confirm."""
        self._check_bound(row)
        self._check_leads(row)
        self._check_text(row)
        if self._wants_whole(row):
            self._counts["whole rows"] += 1
            self._joined.update(pairwise(segment for _, segment in _text_runs(row)))
            self._ask(self._encoding.render(row.messages), _Expected(row, None, row.prompt_ids))
        elif self._by_atoms:
            self._ask_seams(row)
        else:
            self._ask_own(row)

    def finish(self) -> dict[str, Any]:
        """Wait for the tokenizer and return the proof; WlgenError where a text has other ids than planned."""
        self._flush()
        for running in self._running:
            running.result()
        self._pool.shutdown()
        return {
            "method": "atoms" if self._by_atoms else "own parts" if self._isolated else "whole",
            "prefixes": len(self._prefixes),
            "seams": self._counts["seams"],
            "whole_rows": self._counts["whole rows"],
            "rows_that_share_a_lead": self._crowded,
        }

    def _check_bound(self, row: Composed) -> None:
        plan, bound = row.plan, row.plan.bound
        least, most = bound.least(plan.prompt_len), bound.most(plan.prompt_len)
        if plan.split != "seed" and not least <= plan.cached_len <= most:
            expected = f"{least} to {most} cached tokens of {plan.prompt_len}"
            raise error(f"row {plan.id}", expected=expected, found=str(plan.cached_len))

    def _check_leads(self, row: Composed) -> None:
        """Check that streams which begin at one point differ there: so no pair of rows shares more."""
        path: tuple[object, ...] = ()
        for message in row.pieces:
            for piece in message:
                stream = piece.segment.stream
                opening = piece.ids[: 2 if self._crowded else 1].tolist()
                if self._siblings.setdefault((path, *opening), stream) != stream:
                    expected = "first tokens that no other row has behind the same prefix"
                    raise error(f"row {row.plan.id}", expected=expected, found=repr(piece.text[:40]))
                path = (*path, stream, piece.segment.tokens)
            path = (*path, "next message")

    def _check_text(self, row: Composed) -> None:
        for message, composed in zip(row.messages, row.pieces, strict=True):
            new = [piece for piece in composed if piece.segment not in self._clean]
            self._clean.update(piece.segment for piece in new if piece.segment.kept)
            ends = message.content[:1] + message.content[-1:]
            faults = (self._hygiene.fault(text) for text in (ends, *(p.text.strip() for p in new)))
            fault = next(filter(None, faults), None)
            if fault:
                remedy = "Use the task words, or another tokenizer."
                raise error(f"row {row.plan.id}", expected="safe text", found=fault, remedy=remedy)

    def _wants_whole(self, row: Composed) -> bool:
        """Whether a row is re-encoded whole: the first with each prefix, and a few of each split."""
        segments = [p.segment for m in row.pieces for p in m]
        prefixes = [s for s in segments if s.kind == "prefix" or (s.kept and not self._by_atoms)]
        new = [s for s in prefixes if self._prefixes.get(s.stream, 0) < s.tokens]
        self._prefixes.update((s.stream, s.tokens) for s in new)
        done = self._counts[row.plan.split]
        few = done == 0 or (done < WHOLE_ROWS and (done + 1) * row.plan.prompt_len <= WHOLE_TOKENS)
        if new or few or not self._isolated:
            self._counts[row.plan.split] += 1
            return True
        return False

    def _ask_seams(self, row: Composed) -> None:
        """Queue a window over each join of two runs in which this row's own tokens take part."""
        runs, ids = _text_runs(row), id_runs(row.framing, row.pieces)
        for i, ((left, one), (right, other)) in enumerate(pairwise(runs)):
            if all(segment is None or segment.kept for segment in (one, other)):
                if (one, other) in self._joined:
                    continue  # another row has the very same seam
                self._joined.add((one, other))
            beyond = "".join(text for text, _ in runs[i + 2 : i + 3])
            self._counts["seams"] += 1
            window = _end_of(left) + (_start_of(right) if len(right) > MARGIN else right + _start_of(beyond))
            after = np.concatenate([run[:MARGIN] for run in ids[i + 1 : i + 3]])
            self._ask(window, _Expected(row, ids[i][-MARGIN:], after))

    def _ask_own(self, row: Composed) -> None:
        """Queue what follows the shared prefix, with the prefix's end: its whole row has proved the rest."""
        runs, ids = _text_runs(row), id_runs(row.framing, row.pieces)
        first = next(
            (i for i, (_, segment) in enumerate(runs) if segment and not segment.kept), len(runs) - 1
        )
        text = runs[first - 1][0][-OWN_MARGIN:] + "".join(text for text, _ in runs[first:])
        after = np.concatenate([ids[first - 1][-AGREED:], *ids[first:]])
        self._counts["seams"] += 1
        self._ask(text, _Expected(row, None, after, ends=True))

    def _ask(self, text: str, expected: _Expected) -> None:
        self._queue.append((text, expected))
        self._queued += len(text)
        if self._queued > BATCH_CHARACTERS:
            self._flush()

    def _flush(self) -> None:
        batch, self._queue, self._queued = self._queue, [], 0
        if batch:
            self._running = [r for r in self._running if not r.done() or r.result() is not None]
            while len(self._running) > 1:  # memory stays flat: two batches at most
                self._running.pop(0).result()
            self._running.append(self._pool.submit(self._confirm, batch))

    def _confirm(self, batch: list[tuple[str, _Expected]]) -> None:
        encoded = self._encoding.tokenizer.encode_batch_fast([t for t, _ in batch], add_special_tokens=False)
        for (text, expected), found in zip(batch, encoded, strict=True):
            if _agrees(np.array(found.ids, dtype=np.uint32), expected):
                continue
            # Where a margin begins inside a long run of digits, say, its tokens are others than in the text.
            row = expected.row
            if not (expected.ends and self._encoding.prompt_ids(row.messages) == row.prompt_ids.tolist()):
                raise _drifted(row.plan.id, text, self._encoding.name)


def _text_runs(row: Composed) -> list[tuple[str, Segment | None]]:
    """Return the texts whose ids `id_runs` gives, each with its segment; a gap has none."""
    gaps = row.framing.texts
    runs: list[tuple[str, Segment | None]] = [(gaps[0], None)]
    for message, gap in zip(row.pieces, gaps[1:], strict=True):
        runs += [*((p.text, p.segment) for p in message), (gap, None)]
    return runs


def isolates(lexicon: Lexicon) -> bool:
    """Return whether the pre-tokenizer splits every join of atoms, so that each is encoded alone.

    Judged on the atoms themselves, each beside a word, a mark and a lead, after the normalizer: Gemma's
    splits at spaces that its normalizer has already replaced, so it never splits.
    """
    tokenizer = lexicon.encoding.tokenizer
    if tokenizer.pre_tokenizer is None:
        return False

    def pieces(text: str) -> list[str]:
        normal = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
        return [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal)]

    lead = lexicon.inner_leads.at(0)[0]
    marks = list(lexicon.marks.values())
    chain = [a.text for word in lexicon.words for a in (word, *marks[:1], word, word, lead)]
    chain += [a.text for mark in marks for a in (mark, lead, mark, lexicon.words[0])]
    alone = {text: pieces(text) for text in set(chain)}
    return all(len(p) == 1 for p in alone.values()) and pieces("".join(chain)) == [alone[t][0] for t in chain]


def _agrees(found: Ids, expected: _Expected) -> bool:
    if expected.before is None:
        return bool(np.array_equal(found[-len(expected.after) :] if expected.ends else found, expected.after))
    # A window starts where its text was cut, so its first token proves nothing. The seam stands where the
    # rest of the window is the start of `after`: at its end where nothing follows (a raw prompt's tail).
    seams = np.flatnonzero(found == expected.after[0]).tolist() if len(expected.after) else [len(found)]
    for seam in seams:
        left, right = found[1:seam], found[seam:]
        before = expected.before[len(expected.before) - len(left) :] if len(left) else left
        if np.array_equal(right, expected.after[: len(right)]) and np.array_equal(left, before):
            return True
    return False


def _end_of(text: str) -> str:
    """Return the last MARGIN characters or a few less, from a space on."""
    start = text.find(" ", len(text) - MARGIN) if len(text) > MARGIN else 0
    return text[max(0, start) :]


def _start_of(text: str) -> str:
    """Return the first MARGIN characters or a few less, up to a space."""
    stop = text.rfind(" ", 0, MARGIN) if len(text) > MARGIN else len(text)
    return text[:stop] if stop > 0 else text


def _drifted(row_id: str, text: str, encoding: str) -> WlgenError:
    return error(
        f"row {row_id}",
        expected=f"a text that the tokenizer of {encoding} encodes to the planned ids",
        found=f"other ids for {text[:60]!r}... ({len(text)} characters)",
        remedy="Use the task words, or another tokenizer; please report this tokenizer.",
    )
