"""The second level: the reference tokenizer encodes each text whole, and the rule's caches replay those ids.

This module uses nothing that composes text. It shares types, the plan's integers and page arithmetic with
the build, and no more.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
import orjson
from numpy.typing import NDArray

from wlgen import encodings, registry
from wlgen.encodings import Encoding, Framing
from wlgen.errors import WlgenError, regular
from wlgen.plan.rows import File, Plan, RowPlan
from wlgen.plan.solve import solve
from wlgen.spec import file as spec_file
from wlgen.verify.manifest import check_card, check_manifest
from wlgen.verify.model import Verification
from wlgen.verify.reencode import encoded_rows
from wlgen.verify.replay import RankReplay
from wlgen.verify.rows import check_promises, differences, other_bytes, unreadable
from wlgen.verify.sharing import Sharing
from wlgen.workload.manifest import FileProof
from wlgen.workload.opened import Workload
from wlgen.workload.rows import Finding, Row, parse_row, row_file
from wlgen.workload.safe_text import Hygiene

Ids = NDArray[np.uint32]
ONE_IN = 64  # of this many tokens of a vocabulary, at least one can begin a row


def verify_encoded(
    workload: Workload, *, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> Verification:
    """Prove a set from its texts: ids, lengths, sharing of every two rows, safe text, cached tokens, counts.

    WlgenError only if the manifest's spec cannot be read or its encoding cannot be loaded. Memory holds the
    cache of one rank, and the first tokens of all rows.
    """
    manifest = workload.manifest
    spec = spec_file.of_set(workload)
    module = registry.load(encodings, spec.encoding.name, place=spec.at("encoding"))
    encoding: Encoding = module.load(spec.encoding.options, place=spec.at("encoding"))
    plan = solve(spec, encoding, lambda _number, _output_len: 1)
    checked = Verification()
    checked.note_missing(workload, plan)
    checked.findings += check_manifest(workload, plan, encoding)
    rows = _Rows(workload, plan, encoding, checked.findings)
    total = sum(proof.rows for proof in manifest.files)
    for row, ids in encoded_rows(encoding, rows):
        checked.rows += 1
        checked.tokens += len(ids)
        checked.findings += rows.check(row, ids)
        progress(checked.rows, total)
    checked.findings += check_promises(workload, plan)
    if not checked.findings:
        checked.findings += check_card(workload)
    return checked


class _Rows:
    """The rows of the set in the order of sending, each checked alone and against the rows before it."""

    def __init__(self, workload: Workload, plan: Plan, encoding: Encoding, findings: list[Finding]) -> None:
        self._workload = workload
        self._plan = plan
        self._frame = encoding.frame
        self._hygiene = Hygiene(encoding)
        self._findings = findings
        crowded = workload.manifest.proof.get("rows_that_share_a_lead")
        rows = sum(file.rows for file in workload.manifest.files)
        enough = rows * ONE_IN >= encoding.tokenizer.get_vocab_size()  # fewer rows all have their own lead
        rule = plan.spec.cache
        self._sharing = Sharing(
            crowded if enough and isinstance(crowded, int) else 0,
            lambda shared_len, row: rule.cached_len(shared_len, row.prompt_len),
        )
        self._replay = RankReplay(plan.spec.cache)
        self._rank = 0
        self._broken: set[int] = set()
        self._read: deque[RowPlan] = deque()

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows that can be read and rendered, rank by rank; note a finding for each other line."""
        listed = {proof.path: proof for proof in self._workload.manifest.files}
        for file in sorted(self._plan.files(), key=lambda file: file[1]):
            if row_file(*file) not in listed:
                self._broken.add(file[1])
            else:
                yield from self._rows_of(listed[row_file(*file)], file)

    def _rows_of(self, proof: FileProof, file: File) -> Iterator[Row]:
        planned = self._plan.rows(*file)
        count = 0
        try:
            lines = regular(self._workload.folder / proof.path).open("rb")
        except OSError:
            self._broken.add(file[1])
            return  # found with the hashes
        with lines:
            for count, line in enumerate(lines, 1):
                plan = next(planned, None)
                try:
                    row = parse_row(line, place=f"{proof.path}:{count}")
                except WlgenError as failure:
                    self._findings += (unreadable(problem) for problem in failure.problems)
                    continue
                if plan is None:
                    none = f"no further row in {proof.path}"
                    self._findings.append(Finding(id=row.id, promise="rows", expected=none, got=row.id))
                    continue
                self._findings += differences(plan, row)
                if orjson.dumps(orjson.loads(line)) + b"\n" != line:
                    self._findings.append(other_bytes(row.id))
                if [m.role for m in row.messages] == [m.role for m in plan.messages]:
                    self._read.append(plan)
                    yield row
        expected = self._plan.count(*file)
        for promise, counted in (("rows", count), ("rows of the manifest", proof.rows)):
            if counted != expected:
                finding = Finding(id=proof.path, promise=promise, expected=expected, got=counted)
                self._findings.append(finding)

    def check(self, row: Row, ids: Ids) -> Iterator[Finding]:
        """Yield what is wrong with the next row that was read, given the server's ids of its text.

        Once a rank has a broken row, the replay of its later rows proves nothing and is not reported: a seed
        with another prefix would make every row behind it miss.
        """
        plan = self._read.popleft()
        if plan.dp_rank != self._rank:
            self._rank, self._replay = plan.dp_rank, RankReplay(self._plan.spec.cache)
        found = [*self._alone(row, plan, ids), *self._sharing.add(row, plan, ids, self._framing(row))]
        if found:
            self._broken.add(plan.dp_rank)
        replayed = list(self._replay.check(row, ids))
        yield from found
        yield from replayed if plan.dp_rank not in self._broken else ()

    def _framing(self, row: Row) -> Framing:
        return self._frame(tuple(m.role for m in row.messages))

    def _alone(self, row: Row, plan: RowPlan, ids: Ids) -> Iterator[Finding]:
        """Yield what is wrong with a row by itself: lengths, framing, the hash of its ids, unsafe text."""
        framing = self._framing(row)
        head, tail = list(framing.ids[0]), list(framing.ids[-1])
        ends = ids[: len(head)].tolist(), ids[len(ids) - len(tail) :].tolist()
        measured: list[tuple[str, int | str, int | str]] = [
            ("prompt_len", row.prompt_len, len(ids)),
            ("body_len", row.body_len, len(ids) - framing.tokens),
            ("framing", str((head, tail)), str(ends)),
            ("prompt_sha256", row.prompt_sha256, hashlib.sha256(ids.astype("<u4").tobytes()).hexdigest()),
        ]
        if not row.split.primes:
            # A row may state fewer tokens than its held prefix would give (a cold row does), but not more.
            cached = min(row.cached_len, self._plan.spec.cache.cached_len(row.shared_len, row.prompt_len))
            least, most = plan.bound.least(row.prompt_len), plan.bound.most(row.prompt_len)
            measured.append(("cached_bound", min(max(cached, least), most), cached))
        for promise, expected, got in measured:
            if expected != got:
                yield Finding(id=row.id, promise=promise, expected=expected, got=got)
        for message in row.messages:
            fault = self._hygiene.fault(message.content)
            if fault:
                yield Finding(id=row.id, promise="safe text", expected="no such text", got=fault)
