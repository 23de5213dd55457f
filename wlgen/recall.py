"""Recall: the prompt ids of a built set, composed again from its manifest and proved by prompt_sha256.

Composing is some hundred times faster than encoding, and the hash says that the ids are the very same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from wlgen import spec_file
from wlgen.build import blueprint, load_encoding
from wlgen.errors import WlgenError, error
from wlgen.workload import MANIFEST, SPLITS, Row, Split, Workload, read_rows

Ids = NDArray[np.uint32]


def prompt_ids(
    workload: Workload, splits: Sequence[Split] = SPLITS, ranks: Sequence[int] | None = None
) -> Iterator[tuple[Row, Ids]]:
    """Yield each row with its prompt ids, shape (prompt_len,), in file order.

    A row that the manifest's spec does not compose to is encoded. WlgenError where neither gives ids of the
    row's prompt_sha256.
    """
    spec = spec_file.from_content(workload.manifest.spec, str(workload.folder / MANIFEST))
    encoding = load_encoding(spec)
    try:
        ready = blueprint(spec, encoding)
    except WlgenError:  # a corpus that is not here any more: the rows' text still is
        ready = None
    composer = ready.composer() if ready else None
    for split in SPLITS:
        for proof in workload.files([split], ranks) if split in splits else ():
            rank = int(proof.path.rsplit("-", 1)[1].removesuffix(".jsonl"))
            plans = ready.plan.rows(split, rank) if ready else iter(())
            for row in read_rows(workload.folder / proof.path):
                plan = next(plans, None)
                composed = composer.compose(plan) if composer and plan else None
                if composed and composed.prompt_sha256 == row.prompt_sha256:
                    yield row, composed.prompt_ids
                    continue
                ids = np.array(encoding.prompt_ids(row.messages), dtype=np.uint32)
                if hashlib.sha256(ids.astype("<u4").tobytes()).hexdigest() != row.prompt_sha256:
                    raise error(
                        f"row {row.id}",
                        expected=f"prompt ids of sha256 {row.prompt_sha256}",
                        found="a text with other ids",
                        remedy="Run `wlgen verify` on the set.",
                    )
                yield row, ids
