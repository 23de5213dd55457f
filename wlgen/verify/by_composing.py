"""The first level: each row is, byte for byte, what the spec composes to, and hits what the rule promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

from wlgen.encodings import Encoding
from wlgen.errors import WlgenError, regular
from wlgen.plan.rows import File, Plan, RowPlan
from wlgen.verify.manifest import check_card, check_manifest
from wlgen.verify.model import Verification
from wlgen.verify.replay import RankReplay
from wlgen.verify.rows import check_promises, differences, other_bytes, unreadable
from wlgen.workload.manifest import MANIFEST
from wlgen.workload.opened import Workload
from wlgen.workload.rows import Finding, parse_row, row_file

Ids = NDArray[np.uint32]


class Composition(Protocol):
    """What the spec of a set composes to. The caller passes it in, so that this room imports no build."""

    plan: Plan
    encoding: Encoding

    def manifest_bytes(self) -> bytes:
        """Return the bytes of the manifest that a build of the set's files writes."""
        ...

    def rows(self, file: File) -> Iterator[tuple[RowPlan, bytes, Ids]]:
        """Yield each row of a file: its plan, its JSONL line, and its prompt ids, shape (prompt_len,)."""
        ...


def verify_composed(
    workload: Workload,
    composition: Composition,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Verification:
    """Compare a set with what its spec composes to, and replay the composed ids rank by rank.

    progress: called with the rows compared and the rows of the set. Memory holds the cache of one rank.
    """
    plan, manifest = composition.plan, workload.manifest
    checked = Verification(composed=0)
    checked.note_missing(workload, plan)
    checked.findings += check_manifest(workload, plan, composition.encoding)
    if not checked.findings:
        checked.findings += _manifest_differs(workload, composition.manifest_bytes())
    listed = {proof.path for proof in manifest.files}
    total = sum(proof.rows for proof in manifest.files)
    for rank in range(plan.spec.dp_ranks):
        replay = RankReplay(plan.spec.cache)
        for file in (f for f in plan.files() if f[1] == rank and row_file(*f) in listed):
            for planned, line, ids in _compared(workload, composition, file, checked):
                checked.findings += replay.check(planned, ids)
                checked.rows += line is not None
                checked.tokens += len(ids)
                progress(checked.rows, total)
    checked.findings += check_promises(workload, plan)
    if not checked.findings:
        checked.findings += check_card(workload)
    return checked


def _compared(
    workload: Workload, composition: Composition, file: File, checked: Verification
) -> Iterator[tuple[RowPlan, bytes | None, Ids]]:
    """Yield each composed row of a file with the file's line for it, and note what differs."""
    path = row_file(*file)
    composed = composition.rows(file)
    try:
        lines = regular(workload.folder / path).open("rb")
    except OSError:
        return  # `check_manifest` reports the missing file
    with lines:
        for number, (line, wanted) in enumerate(zip_longest(lines, composed), 1):
            if wanted is None:
                got = f"{number} or more"
                checked.findings.append(Finding(id=path, promise="rows", expected=number - 1, got=got))
                return
            planned, bytes_, ids = wanted
            if line is None:
                expected = composition.plan.count(*file)
                checked.findings.append(Finding(id=path, promise="rows", expected=expected, got=number - 1))
                return
            if line == bytes_:
                checked.composed = (checked.composed or 0) + 1
            else:
                checked.findings += _line_differs(planned, line, bytes_, f"{path}:{number}")
            yield planned, line, ids


def _line_differs(planned: RowPlan, line: bytes, composed: bytes, place: str) -> Iterator[Finding]:
    """Yield each key in which a line differs from the composed line."""
    try:
        row = parse_row(line, place=place)
    except WlgenError as failure:
        yield from (unreadable(problem) for problem in failure.problems)
        return
    wanted = parse_row(composed, place=place)
    found = list(differences(planned, row))
    if row.messages != wanted.messages and not any(finding.promise == "messages" for finding in found):
        expected, got = f"a text of sha256 {wanted.text_sha256}", f"a text of sha256 {row.text_sha256}"
        found.append(Finding(id=planned.id, promise="text", expected=expected, got=got))
    if row.prompt_sha256 != wanted.prompt_sha256:
        expected, got = wanted.prompt_sha256, row.prompt_sha256
        found.append(Finding(id=planned.id, promise="prompt_sha256", expected=expected, got=got))
    if not found:
        found.append(other_bytes(planned.id))
    yield from found


def _manifest_differs(workload: Workload, composed: bytes) -> Iterator[Finding]:
    """Yield each key of manifest.json whose value is not the one that a build writes."""
    wanted, found = orjson.loads(composed), orjson.loads((workload.folder / MANIFEST).read_bytes())
    for key in (key for key in {**wanted, **found} if wanted.get(key) != found.get(key)):
        expected, got = str(wanted.get(key)), str(found.get(key))
        yield Finding(id=MANIFEST, promise=key, expected=expected, got=got)
