"""Recall: the prompt ids of a built set, composed again from its manifest.

Composing a row takes a hundredth of the time of encoding its text, and the row's prompt_sha256 proves that
the ids are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from wlgen.build.ready import Blueprint, blueprint, load_encoding
from wlgen.errors import WlgenError, error
from wlgen.plan.rows import RowPlan
from wlgen.spec import file as spec_file
from wlgen.workload.opened import Workload
from wlgen.workload.rows import Row
from wlgen.workload.splits import SPLITS, Split

Ids = NDArray[np.uint32]


class Recall:
    """Gives the ids of a set's rows. Ranks may take turns, but each file's rows must come in their order.

    If the manifest's spec composes to another row than the file has, Recall encodes the file's text.
    """

    def __init__(self, workload: Workload, rounds: Sequence[int] | None = None) -> None:
        spec = spec_file.of_set(workload)
        self._encoding = load_encoding(spec)
        self._rounds = rounds or workload.manifest.rounds or (0,)
        self._plans: dict[tuple[Split, int], Iterator[RowPlan]] = {}
        self._ready: Blueprint | None = None
        try:
            ready = blueprint(spec, self._encoding)
        except WlgenError:
            pass  # a corpus that is no longer here, for example; the text of the rows is in the set
        else:
            if ready.content_sha256 == workload.manifest.proof.get("content_sha256"):
                self._ready = ready
        self._composer = self._ready.composer() if self._ready else None

    def ids(self, row: Row) -> Ids:
        """Return the row's prompt ids, shape (prompt_len,); WlgenError if they lack its prompt_sha256."""
        composed = self.composed(row.split, row.dp_rank, row.prompt_sha256)
        return self.encoded(row) if composed is None else composed

    def composed(self, split: Split, dp_rank: int, prompt_sha256: str) -> Ids | None:
        """Compose the next row of a file; return its ids if they have this sha256, else None."""
        plan = self._plan(split, dp_rank)
        composed = self._composer.compose(plan) if self._composer and plan else None
        return composed.prompt_ids if composed and composed.prompt_sha256 == prompt_sha256 else None

    def encoded(self, row: Row) -> Ids:
        """Encode the row's text and return its ids; WlgenError if they lack its prompt_sha256."""
        ids = np.array(self._encoding.prompt_ids(row.messages), dtype=np.uint32)
        if hashlib.sha256(ids.astype("<u4").tobytes()).hexdigest() != row.prompt_sha256:
            raise error(
                f"row {row.id}",
                expected=f"prompt ids of sha256 {row.prompt_sha256}",
                found="a text with other ids",
                remedy="Run `wlgen verify` on the set.",
            )
        return ids

    def _plan(self, split: Split, dp_rank: int) -> RowPlan | None:
        file = (split, dp_rank)
        if file not in self._plans:
            rounds = self._rounds if split.each_round else (0,)
            self._plans[file] = (
                chain.from_iterable(self._ready.plan.rows(*file, round_) for round_ in rounds)
                if self._ready
                else iter(())
            )
        return next(self._plans[file], None)


def prompt_ids(
    workload: Workload, splits: Sequence[Split] = SPLITS, ranks: Sequence[int] | None = None
) -> Iterator[tuple[Row, Ids]]:
    """Yield each row with its prompt ids, shape (prompt_len,), in file order."""
    recall = Recall(workload)
    for row in workload.rows(splits, ranks):
        yield row, recall.ids(row)
