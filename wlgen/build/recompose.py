"""Recompose: what the spec of a built set composes to, for `wlgen verify` to compare the set with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wlgen.build.build import evidence_of, manifest, proof_of
from wlgen.build.evidence import method_of
from wlgen.build.ready import blueprint
from wlgen.build.store import manifest_bytes, row_line
from wlgen.errors import WlgenError
from wlgen.plan.rows import File, RowPlan
from wlgen.spec import file as spec_file
from wlgen.workload.opened import Workload
from wlgen.workload.rows import row_file

Ids = NDArray[np.uint32]
_REMEDY = (
    "To compose a set again, its tokenizer and texts must be where its spec says, seen from the current "
    "folder; `wlgen verify --full` needs the set alone."
)


class Recomposed:
    """The rows and the manifest that a build of the set's spec writes, for the files that the set lists.

    WlgenError if the spec cannot be read, or if a tokenizer or corpus that it names is not here.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        try:
            ready = blueprint(spec_file.of_set(workload))
        except WlgenError as failure:
            problems = (replace(p, remedy=f"{p.remedy} {_REMEDY}".strip()) for p in failure.problems)
            raise WlgenError(*problems) from failure
        self._ready = ready
        self._composer = ready.composer()
        self.plan = ready.plan
        self.encoding = ready.encoding

    def manifest_bytes(self) -> bytes:
        """Return manifest.json as a build writes it, with the file hashes and row counts of the set's own."""
        listed = self._workload.manifest.files
        there = [file for file in self.plan.files() if row_file(*file) in {proof.path for proof in listed}]
        method = method_of(self._ready.lexicon, self._ready.tasks)
        proof = proof_of(self._ready, evidence_of(self._ready, there, method)[0])
        made = manifest(self.plan, self.encoding, listed, proof)
        # A set older than cards is whole without a card.
        return manifest_bytes(made if self._workload.manifest.card else replace(made, card=None))

    def rows(self, file: File) -> Iterator[tuple[RowPlan, bytes, Ids]]:
        """Yield each row of a file: its plan, its JSONL line, and its prompt ids, shape (prompt_len,)."""
        for plan in self.plan.rows(*file):
            row = self._composer.compose(plan)
            yield plan, b"".join(row_line(row)), row.prompt_ids
