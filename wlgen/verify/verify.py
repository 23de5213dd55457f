"""Verify: a set proved from its files alone, sharing nothing with compose but types and page arithmetic."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from wlgen import encodings, registry
from wlgen.encodings import Encoding
from wlgen.errors import Problem, WlgenError, regular
from wlgen.plan.rows import Plan, RowPlan
from wlgen.plan.solve import solve
from wlgen.spec import file as spec_file
from wlgen.verify.reencode import Reencoder
from wlgen.verify.sharing import Sharing
from wlgen.workload.manifest import MANIFEST, FileProof, Promises
from wlgen.workload.opened import Workload, file_sha256
from wlgen.workload.rows import Finding, Row, parse_row, row_file
from wlgen.workload.safe_text import Hygiene
from wlgen.workload.splits import SPLITS, Split

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
    module = registry.load(encodings, spec.encoding.name, place=spec.at("encoding"))
    encoding: Encoding = module.load(spec.encoding.options, place=spec.at("encoding"))
    plan = solve(spec, encoding, lambda _number, _output_len: 1)
    checked = Verification()
    checked.findings += _check_manifest(workload, plan, encoding)
    rows = _Rows(workload, plan, encoding, checked.findings)
    total = sum(proof.rows for proof in manifest.files)
    for row, ids in Reencoder(encoding, whole=full).ids(rows):
        checked.rows += 1
        checked.tokens += len(ids)
        checked.findings += rows.check(row, ids)
        progress(checked.rows, total)
    promises = rows.promises()
    if manifest.promises != promises:
        expected, got = str(promises), str(manifest.promises)
        checked.findings.append(Finding(id=MANIFEST, promise="promises", expected=expected, got=got))
    return checked


def _check_manifest(workload: Workload, plan: Plan, encoding: Encoding) -> Iterator[Finding]:
    """Yield where the manifest contradicts its spec, its encoding or its files."""
    manifest, spec = workload.manifest, plan.spec
    equals: tuple[tuple[str, object, object], ...] = (
        ("spec_sha256", spec_file.fingerprint(manifest.spec), manifest.spec_sha256),
        ("spec", spec.content, manifest.spec),
        ("name", spec.name, manifest.name),
        ("cache", spec.cache, manifest.cache),
        ("encoding", encoding.proof(), manifest.encoding),
        ("splits", plan.counts(), manifest.splits),
    )
    for promise, expected, got in equals:
        if expected != got:
            yield Finding(id=MANIFEST, promise=promise, expected=str(expected), got=str(got))
    listed = {proof.path for proof in manifest.files}
    files = {row_file(*file): file for file in plan.files() if plan.count(*file)}
    there = [files[path] for path in files if path in listed]
    ranks, rounds = sorted({r for _, r, _ in there}), sorted({k for s, _, k in there if s.each_round})
    for promise, expected, got in (
        ("ranks", ranks, manifest.ranks),
        ("rounds", rounds if spec.rounds > 1 else None, manifest.rounds),
    ):
        if expected != got:
            yield Finding(id=MANIFEST, promise=promise, expected=str(expected), got=str(got))
    expected_files = {p for p, (s, r, k) in files.items() if r in ranks and s.within(k, rounds)}
    on_disk = {
        p.relative_to(workload.folder).as_posix()
        for split in SPLITS
        for p in (workload.folder / split).rglob("*")
        if not p.is_dir()
    }
    expected_files |= set(spec.inputs)
    on_disk |= {path for path in spec.inputs if (workload.folder / path).is_file()}
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
    """The rows of the set in the order they are sent, each checked by itself and beside the others."""

    def __init__(self, workload: Workload, plan: Plan, encoding: Encoding, findings: list[Finding]) -> None:
        self._workload = workload
        self._plan = plan
        self._frame = encoding.frame
        self._hygiene = Hygiene(encoding)
        self._findings = findings
        crowded = workload.manifest.proof.get("rows_that_share_a_lead", 0)
        self._sharing = Sharing(crowded if type(crowded) is int else 0)
        self._read: deque[RowPlan] = deque()
        self._files: set[tuple[Split, int, int]] = set()
        self._least = 1.0
        self._cached = self._prompt = 0

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows that can be read and rendered, and find the lines that cannot."""
        listed = {proof.path: proof for proof in self._workload.manifest.files}
        for file in self._plan.files():
            if row_file(*file) in listed:
                yield from self._rows_of(listed[row_file(*file)], *file)

    def _rows_of(self, proof: FileProof, split: Split, rank: int, round_: int) -> Iterator[Row]:
        planned = self._plan.rows(split, rank, round_)
        count = 0
        try:
            file = regular(self._workload.folder / proof.path).open("rb")
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
                if plan and [m.role for m in row.messages] == [m.role for m in plan.messages]:
                    self._read.append(plan)
                    yield row
        self._files.add((split, rank, round_))
        expected = self._plan.count(split, rank, round_)
        for promise, got in (("rows", count), ("rows of the manifest", proof.rows)):
            if got != expected:
                self._findings.append(Finding(id=proof.path, promise=promise, expected=expected, got=got))

    def check(self, row: Row, ids: Ids) -> Iterator[Finding]:
        """Yield what is wrong with the next row that was read, given the server's ids of its text."""
        plan = self._read.popleft()
        framing = self._frame(tuple(m.role for m in row.messages))
        head, tail = list(framing.ids[0]), list(framing.ids[-1])
        found = ids[: len(head)].tolist(), ids[len(ids) - len(tail) :].tolist()
        measured: list[tuple[str, int | str, int | str]] = [
            ("prompt_len", row.prompt_len, len(ids)),
            ("body_len", row.body_len, len(ids) - framing.tokens),
            ("framing", str((head, tail)), str(found)),
            ("prompt_sha256", row.prompt_sha256, hashlib.sha256(ids.astype("<u4").tobytes()).hexdigest()),
            *(self._cached_promises(row, plan) if not row.split.primes else ()),
        ]
        for promise, expected, got in measured:
            if expected != got:
                yield Finding(id=row.id, promise=promise, expected=expected, got=got)
        for message in row.messages:
            fault = self._hygiene.fault(message.content)
            if fault:
                yield Finding(id=row.id, promise="safe text", expected="no such text", got=fault)
        yield from self._sharing.add(row, plan, ids, framing)
        if row.split.measured and row.round == 0:
            self._cached, self._prompt = self._cached + row.cached_len, self._prompt + len(ids)
            self._least = min(self._least, row.cached_len / max(1, len(ids)))

    def _cached_promises(self, row: Row, plan: RowPlan) -> Iterator[tuple[str, int | str, int | str]]:
        """Yield what the rule says beside what the row says: all of its prefix, once that is held."""
        spec = self._plan.spec
        cached = spec.cache.cached_len(row.shared_len, row.prompt_len)
        primed = spec.trace is None and not any(of.cached.cold or of.session for of in spec.requests)
        cached = cached if primed else min(cached, row.cached_len)
        least, most = plan.bound.least(row.prompt_len), plan.bound.most(row.prompt_len)
        yield "cached_len", cached, row.cached_len
        yield "cached_bound", min(max(cached, least), most), cached

    def promises(self) -> Promises:
        """Return the three promises as the formal rows keep them; as planned where not all are here."""
        ranks = range(self._plan.spec.dp_ranks)
        if not all(
            (Split.FORMAL, r, 0) in self._files or not self._plan.count(Split.FORMAL, r) for r in ranks
        ):
            return self._plan.promises
        aggregate = self._cached / max(1, self._prompt)
        return replace(self._plan.promises, aggregate=aggregate, per_request_min=self._least)


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
