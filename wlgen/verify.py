"""Verify: a set proved from its files alone, sharing nothing with compose but types and page arithmetic."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from wlgen import encodings, registry, spec_file
from wlgen.encodings import Encoding
from wlgen.errors import Problem, WlgenError
from wlgen.hygiene import Hygiene
from wlgen.plan import Plan, RowPlan
from wlgen.reencode import Reencoder
from wlgen.sharing import Sharing
from wlgen.solve import solve
from wlgen.workload import (
    MANIFEST,
    SPLITS,
    FileProof,
    Finding,
    Promises,
    Row,
    Split,
    Workload,
    file_sha256,
    parse_row,
    row_file,
)

Ids = NDArray[np.uint32]


@dataclass(slots=True, kw_only=True)
class Verification:
    """What was found: every finding, and how many rows and tokens were read."""

    findings: list[Finding] = field(default_factory=list)
    rows: int = 0
    tokens: int = 0


def verify(
    workload: Workload, *, full: bool, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> Verification:
    """Prove a set: hashes, schema, ids, sharing of every two rows, safe text, cached tokens, counts a rank.

    full: encode every row whole; else a beginning that a group's rows have in common is encoded once.
    WlgenError only where the manifest's spec cannot be read or its encoding cannot be loaded.
    """
    manifest = workload.manifest
    spec = spec_file.from_content(manifest.spec, str(workload.folder / MANIFEST))
    module = registry.load(encodings, spec.encoding.name, place=spec.place)
    encoding: Encoding = module.load(spec.encoding.options, place=spec.place)
    plan = solve(spec, encoding, 1)
    checked = Verification()
    checked.findings += _check_manifest(workload, plan, encoding)
    rows = _Rows(workload, plan, encoding, checked.findings)
    total = sum(proof.rows for proof in manifest.files)
    for row, ids in Reencoder(encoding, whole=full).ids(rows):
        checked.rows += 1
        checked.tokens += len(ids)
        checked.findings += rows.check(row, ids)
        progress(checked.rows, total)
    if manifest.promises != rows.promises():
        expected, got = str(rows.promises()), str(manifest.promises)
        checked.findings.append(Finding(id=MANIFEST, promise="promises", expected=expected, got=got))
    return checked


def _check_manifest(workload: Workload, plan: Plan, encoding: Encoding) -> Iterator[Finding]:
    """Yield where the manifest contradicts its spec, its encoding or its files."""
    manifest, spec = workload.manifest, plan.spec
    counts = {s: [plan.count(s, r) for r in range(spec.dp_ranks)] for s in SPLITS}
    splits = {s: {"rows": sum(per_rank), "per_rank": per_rank} for s, per_rank in counts.items()}
    equals: tuple[tuple[str, object, object], ...] = (
        ("spec_sha256", spec_file.fingerprint(manifest.spec), manifest.spec_sha256),
        ("spec", spec.content, manifest.spec),
        ("name", spec.name, manifest.name),
        ("cache", spec.cache, manifest.cache),
        ("encoding", encoding.proof(), manifest.encoding),
        ("splits", splits, manifest.splits),
    )
    for promise, expected, got in equals:
        if expected != got:
            yield Finding(id=MANIFEST, promise=promise, expected=str(expected), got=str(got))
    listed = {proof.path for proof in manifest.files}
    there = [r for r in range(spec.dp_ranks) if any(row_file(s, r) in listed for s in SPLITS)]
    if there != manifest.ranks:
        yield Finding(id=MANIFEST, promise="ranks", expected=str(there), got=str(manifest.ranks))
    expected_files = {row_file(s, r) for s in SPLITS for r in there if counts[s][r]}
    on_disk = {
        p.relative_to(workload.folder).as_posix() for s in SPLITS for p in workload.folder.glob(f"{s}/*")
    }
    for name in sorted(expected_files ^ listed | listed ^ on_disk):
        missing = name in expected_files
        yield Finding(
            id=name,
            promise="files",
            expected="a file" if missing else "no file",
            got="none" if name not in on_disk else "none in the manifest" if name not in listed else "a file",
        )
    for proof in manifest.files:
        found = file_sha256(workload.folder / proof.path) or "no readable file"
        if found != proof.sha256 and proof.path in on_disk:
            yield Finding(id=proof.path, promise="sha256", expected=proof.sha256, got=found)


class _Rows:
    """The rows of the set in the manifest's order, each checked by itself and beside the others."""

    def __init__(self, workload: Workload, plan: Plan, encoding: Encoding, findings: list[Finding]) -> None:
        self._workload = workload
        self._plan = plan
        self._framing = encoding.frame(("user",))
        self._hygiene = Hygiene(encoding)
        self._findings = findings
        crowded = workload.manifest.proof.get("rows_that_share_a_lead", 0)
        self._sharing = Sharing(plan.head_len, crowded if type(crowded) is int else 0)
        self._ratios: list[float] = []
        self._cached = self._prompt = 0

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows that can be read and rendered, and find the lines that cannot."""
        listed = {proof.path: proof for proof in self._workload.manifest.files}
        for split in SPLITS:
            for rank in range(self._plan.spec.dp_ranks):
                proof = listed.get(row_file(split, rank))
                if proof is not None:
                    yield from self._rows_of(proof, split, rank)

    def _rows_of(self, proof: FileProof, split: Split, rank: int) -> Iterator[Row]:
        planned = self._plan.rows(split, rank)
        count = 0
        try:
            file = (self._workload.folder / proof.path).open("rb")
        except OSError:
            return  # found with the hashes
        with file as lines:
            for count, line in enumerate(lines, 1):
                plan = next(planned, None)
                try:
                    row = parse_row(line, place=f"{proof.path}:{count}")
                except WlgenError as failure:
                    self._findings += (_unreadable(problem) for problem in failure.problems)
                    continue
                self._findings += _differences(plan, row, proof.path)
                if [m.role for m in row.messages] == ["user"]:
                    yield row
        expected = self._plan.count(split, rank)
        for promise, got in (("rows", count), ("rows of the manifest", proof.rows)):
            if got != expected:
                self._findings.append(Finding(id=proof.path, promise=promise, expected=expected, got=got))

    def check(self, row: Row, ids: Ids) -> Iterator[Finding]:
        """Yield what is wrong with a row, given the server's ids of its text."""
        head, tail, rule = list(self._framing.ids[0]), list(self._framing.ids[-1]), self._plan.spec.cache
        measured: list[tuple[str, int | str, int | str]] = [
            ("prompt_len", row.prompt_len, len(ids)),
            ("body_len", row.body_len, len(ids) - self._framing.tokens),
            (
                "framing",
                str((head, tail)),
                str((ids[: len(head)].tolist(), ids[len(ids) - len(tail) :].tolist())),
            ),
            ("prompt_sha256", row.prompt_sha256, hashlib.sha256(ids.astype("<u4").tobytes()).hexdigest()),
        ]
        if row.split != "seed":
            cached = rule.cached_len(row.shared_len, row.prompt_len)
            least, most = self._plan.bound.least(row.prompt_len), self._plan.bound.most(row.prompt_len)
            measured.append(("cached_len", cached, row.cached_len))
            measured.append(("cached_bound", min(max(cached, least), most), cached))
        for promise, expected, got in measured:
            if expected != got:
                yield Finding(id=row.id, promise=promise, expected=expected, got=got)
        for message in row.messages:
            fault = self._hygiene.fault(message.content)
            if fault:
                yield Finding(id=row.id, promise="safe text", expected="no such text", got=fault)
        yield from self._sharing.add(row, ids)
        if row.split == "formal":
            self._cached, self._prompt = self._cached + row.cached_len, self._prompt + len(ids)
            self._ratios.append(row.cached_len / max(1, len(ids)))

    def promises(self) -> Promises:
        """Return the three promises as the formal rows keep them; as planned where none is here."""
        if not self._prompt:
            return self._plan.promises
        aggregate, least = self._cached / self._prompt, min(self._ratios)
        return Promises(configured=self._plan.configured, aggregate=aggregate, per_request_min=least)


def _unreadable(problem: Problem) -> Finding:
    return Finding(id=problem.place, promise="row", expected=problem.expected, got=problem.found)


def _differences(planned: RowPlan | None, row: Row, path: str) -> Iterator[Finding]:
    """Yield where a row is not the one that the spec puts in its place."""
    if planned is None:
        yield Finding(id=row.id, promise="rows", expected=f"no further row in {path}", got=row.id)
        return
    for name in (f.name for f in fields(Row) if f.name not in ("messages", "prompt_sha256")):
        expected, got = getattr(planned, name), getattr(row, name)
        if expected != got:
            yield Finding(id=row.id, promise=name, expected=expected, got=got)
    roles = [m.role for m in planned.messages], [m.role for m in row.messages]
    if roles[0] != roles[1]:
        yield Finding(id=row.id, promise="messages", expected=str(roles[0]), got=str(roles[1]))
