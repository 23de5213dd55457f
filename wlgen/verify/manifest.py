"""The manifest of a set, compared with the plan of its spec and with the files on the disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson

from wlgen.encodings import Encoding
from wlgen.plan.rows import Plan
from wlgen.spec import file as spec_file
from wlgen.verify.rows import other_bytes
from wlgen.workload.card import CARD, with_card
from wlgen.workload.manifest import MANIFEST
from wlgen.workload.opened import Workload, file_sha256
from wlgen.workload.rows import Finding, row_file
from wlgen.workload.splits import SPLITS

METHODS = ("atoms", "own parts", "whole")
COUNTS = ("prefixes", "seams", "whole_rows", "rows_that_share_a_lead")


def check_manifest(workload: Workload, plan: Plan, encoding: Encoding) -> Iterator[Finding]:
    """Yield each contradiction between the manifest and its spec, its encoding, its plan or its files."""
    manifest, spec = workload.manifest, plan.spec
    yield from _doubled_keys(workload)
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
            yield _of_manifest(promise, str(expected), str(got))
    yield from _check_files(workload, plan)
    yield from _check_proof(workload, plan)


def _of_manifest(promise: str, expected: str, got: str) -> Finding:
    return Finding(id=MANIFEST, promise=promise, expected=expected, got=got)


def _doubled_keys(workload: Workload) -> Iterator[Finding]:
    """Yield a finding if manifest.json has a key twice (readers take the last), or a key that is null."""
    written = (workload.folder / MANIFEST).read_bytes()
    content = {key: value for key, value in orjson.loads(written).items() if value is not None}
    plain = orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    if written != plain:
        yield other_bytes(MANIFEST)


def _check_files(workload: Workload, plan: Plan) -> Iterator[Finding]:
    """Yield each difference between the listed files, the files on the disk and the files of the plan."""
    manifest, spec = workload.manifest, plan.spec
    counted = Counter(proof.path for proof in manifest.files)
    for path in (path for path, count in counted.items() if count > 1):
        yield Finding(id=path, promise="files", expected="listed once", got=f"listed {counted[path]} times")
    listed = set(counted)
    files = {row_file(*file): file for file in plan.files() if plan.count(*file)}
    there = [files[path] for path in files if path in listed]
    ranks, rounds = sorted({r for _, r, _ in there}), sorted({k for s, _, k in there if s.each_round})
    for promise, expected, got in (
        ("ranks", ranks, manifest.ranks),
        ("rounds", rounds if spec.rounds > 1 else None, manifest.rounds),
    ):
        if expected != got:
            yield _of_manifest(promise, str(expected), str(got))
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


def check_card(workload: Workload) -> Iterator[Finding]:
    """Yield a finding if the set's card is not the one that follows from its manifest.

    A set older than cards has no card.
    """
    listed, wanted = workload.manifest.card, with_card(workload.manifest).card
    if listed is None or wanted is None:
        return
    if listed != wanted:
        yield _of_manifest("card", str(wanted), str(listed))
    found = file_sha256(workload.folder / CARD) or "no readable file"
    if found != wanted.sha256:
        yield Finding(id=CARD, promise="sha256", expected=wanted.sha256, got=found)


def _check_proof(workload: Workload, plan: Plan) -> Iterator[Finding]:
    """Yield a finding if the proof lacks a key, or has a number that no set of this plan can have."""
    proof, rows = workload.manifest.proof, sum(plan.count(*file) for file in plan.files())
    keys = {"method", *COUNTS} | ({"content_sha256"} & set(proof))
    if set(proof) != keys:
        yield _of_manifest("proof", f"the keys {', '.join(sorted(keys))}", ", ".join(sorted(proof)) or "none")
        return
    if proof["method"] not in METHODS:
        yield _of_manifest("proof method", f"one of {', '.join(METHODS)}", repr(proof["method"]))
    for key in COUNTS:
        count: Any = proof[key]
        most = rows if key in ("whole_rows", "rows_that_share_a_lead") else None
        if type(count) is not int or count < 0 or (most is not None and count > most):
            expected = "a count" if most is None else f"a count from 0 to {most}, the rows of the whole plan"
            yield _of_manifest(f"proof {key}", expected, repr(count))
