"""Compose: from a row's plan to its text and its ids, put together from atoms without running the tokenizer.

A segment is the start of one stream: its lead, its second token, and then what the task writes, as in
" granite" ":" " Near the bridge ...".
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import orjson

from wlgen.build.openings import opening
from wlgen.encodings import Framing, Message
from wlgen.plan.rows import RowPlan, Segment
from wlgen.streams import text
from wlgen.tasks import Task
from wlgen.text.lexicon import Chunk, Ids, Lexicon

KEPT_TOKENS = 8_000_000  # tokens of shared segments that a composer holds; with their texts about 100 MB


class Piece:
    """One composed segment: its ids and its text."""

    def __init__(self, segment: Segment, chunk: Chunk) -> None:
        self.segment = segment
        self.ids = chunk.ids
        self.text = chunk.text

    @cached_property
    def escaped(self) -> memoryview:
        """The text as JSON writes it, without the quotes."""
        return memoryview(orjson.dumps(self.text))[1:-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """A composed row. pieces: the composed segments of each message. prompt_sha256: as in Row."""

    plan: RowPlan
    framing: Framing
    pieces: tuple[tuple[Piece, ...], ...]
    prompt_sha256: str

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages as a client sends them."""
        pairs = zip(self.plan.messages, self.pieces, strict=True)
        return tuple(Message(m.role, "".join(p.text for p in pieces)) for m, pieces in pairs)

    @property
    def prompt_ids(self) -> Ids:
        """The ids that the server must see, framing included: shape (prompt_len,)."""
        return np.concatenate(list(id_runs(self.framing, self.pieces)))


class Composer:
    """Composes the rows of one workload. It composes a segment that rows share once, and holds it."""

    def __init__(self, lexicon: Lexicon, tasks: Sequence[Task], random_seed: int) -> None:
        self._lexicon = lexicon
        self._tasks = tasks
        self._seed = random_seed
        self._shared: OrderedDict[tuple[Segment, bool], Piece] = OrderedDict()
        self._shared_tokens = 0
        self._hashes: OrderedDict[tuple[Piece, ...], hashlib._Hash] = OrderedDict()

    def compose(self, plan: RowPlan) -> Composed:
        """Return a row's text and ids."""
        framing = self._lexicon.encoding.frame(tuple(m.role for m in plan.messages))
        pieces = tuple(
            tuple(self._piece(s, plan, at_start=i == 0) for i, s in enumerate(m.segments))
            for m in plan.messages
        )
        digest = self._digest(framing, pieces)
        return Composed(plan=plan, framing=framing, pieces=pieces, prompt_sha256=digest)

    def _piece(self, segment: Segment, plan: RowPlan, *, at_start: bool) -> Piece:
        if not segment.kept:
            return Piece(segment, self._chunk(segment, plan, at_start=at_start))
        key = (segment, at_start)
        if key in self._shared:
            self._shared.move_to_end(key)
            return self._shared[key]
        piece = Piece(segment, self._chunk(segment, plan, at_start=at_start))
        self._shared[key] = piece
        self._shared_tokens += segment.tokens
        while self._shared_tokens > KEPT_TOKENS and len(self._shared) > 1:
            self._shared_tokens -= self._shared.popitem(last=False)[1].segment.tokens
        return piece

    def _chunk(self, segment: Segment, plan: RowPlan, *, at_start: bool) -> Chunk:
        task = self._tasks[plan.task]
        opened = opening(self._lexicon, segment, at_start=at_start)
        stream = text(self._seed, segment.stream)
        left = segment.tokens - len(opened)
        ids = np.array([atom.id for atom in opened], dtype=np.uint32)
        start = Chunk(ids=ids, text="".join([atom.text for atom in opened]))
        if left == 0:
            return start
        asks = segment.kind == "own" and left >= task.least_own(plan.passage_len)
        rest = task.own(stream, left, plan.passage_len) if asks else task.shared(stream, left)
        return start.append(rest)

    def _digest(self, framing: Framing, pieces: tuple[tuple[Piece, ...], ...]) -> str:
        """Return the sha256 of a prompt's ids.

        For rows of one prefix it copies the state of the hash behind the prefix: of the 131076 ids of a row
        of warm-128k it then hashes only 12292.
        """
        first = tuple(p for p in pieces[0] if p.segment.kind == "prefix")
        if not first or len(pieces) > 1:
            digest = hashlib.sha256()
            for run in id_runs(framing, pieces):
                digest.update(_little_endian(run))
            return digest.hexdigest()
        if first not in self._hashes:
            state = hashlib.sha256(_little_endian(gap_ids(framing.ids[0])))
            for piece in first:
                state.update(_little_endian(piece.ids))
            self._hashes[first] = state
            while len(self._hashes) > len(self._shared):
                self._hashes.popitem(last=False)
        digest = self._hashes[first].copy()
        for piece in pieces[0][len(first) :]:
            digest.update(_little_endian(piece.ids))
        digest.update(_little_endian(gap_ids(framing.ids[-1])))
        return digest.hexdigest()


def id_runs(framing: Framing, pieces: Sequence[Sequence[Piece]]) -> list[Ids]:
    """Return the runs of ids that make up the prompt, in order: gap, message, gap, ..., gap."""
    runs = [gap_ids(framing.ids[0])]
    for message, gap in zip(pieces, framing.ids[1:], strict=True):
        runs += [piece.ids for piece in message]
        runs.append(gap_ids(gap))
    return runs


@lru_cache(maxsize=256)
def gap_ids(gap: tuple[int, ...]) -> Ids:
    """Return a gap of the framing as an array, made once."""
    ids = np.array(gap, dtype=np.uint32)
    ids.flags.writeable = False
    return ids


_LITTLE = np.dtype("<u4")


def _little_endian(ids: Ids) -> memoryview:
    return np.ascontiguousarray(ids, dtype=_LITTLE).data
