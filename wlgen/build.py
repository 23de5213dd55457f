"""Build: spec -> plan -> compose -> prove -> store, and back from a set to the ids it was composed of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wlgen import encodings, registry, spec_file, tasks
from wlgen.compose import Composed, Composer
from wlgen.encodings import Encoding
from wlgen.errors import WlgenError, error
from wlgen.lexicon import Lexicon
from wlgen.openings import crowded_rows
from wlgen.plan import LEAD, Plan
from wlgen.prove import Prover
from wlgen.solve import solve
from wlgen.spec import Spec
from wlgen.store import Staging
from wlgen.tasks import Task
from wlgen.workload import (
    FORMAT,
    SPLITS,
    FileProof,
    Manifest,
    Split,
    Workload,
    file_sha256,
    open_workload,
    row_file,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """A spec made ready: its encoding, lexicon, task and plan. crowded: rows that share their first token."""

    spec: Spec
    encoding: Encoding
    lexicon: Lexicon
    task: Task
    plan: Plan
    crowded: int

    def composer(self) -> Composer:
        """Return a composer of the plan's rows."""
        return Composer(self.lexicon, self.task, self.spec.random_seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a build did: the set, and how many of its files were written (the others had a valid proof)."""

    workload: Workload
    written: int


def blueprint(spec: Spec, encoding: Encoding | None = None) -> Blueprint:
    """Load what a spec names and solve its plan; WlgenError where either is impossible."""
    encoding = encoding or load_encoding(spec)
    lexicon = Lexicon(encoding, spec.random_seed)
    module = registry.load(tasks, spec.requests.task.name, place=spec.place)
    task: Task = module.make(spec.requests.task.options, lexicon, place=spec.place)
    plan = solve(spec, encoding, LEAD + task.least_own(spec.requests.output_len))
    crowded = crowded_rows(plan, lexicon)
    return Blueprint(spec=spec, encoding=encoding, lexicon=lexicon, task=task, plan=plan, crowded=crowded)


def load_encoding(spec: Spec) -> Encoding:
    """Load the spec's encoding."""
    module = registry.load(encodings, spec.encoding.name, place=spec.place)
    encoding: Encoding = module.load(spec.encoding.options, place=spec.place)
    return encoding


def build(
    spec: Spec,
    output: Path,
    *,
    ranks: Sequence[int] | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Built:
    """Build the set of a spec into output/<name>, or only some ranks' files; what has a valid proof is kept.

    progress: called with the rows composed and the rows to compose. A failure leaves an older set as it was.
    """
    wanted = _checked_ranks(spec, ranks)
    encoding = load_encoding(spec)
    with Staging(output, spec.name) as staging:
        staging.check_place()
        old = _reusable(staging.final, spec, encoding)
        kept = _proved(old) if old else {}
        if old and not _missing(old.manifest, wanted, kept):
            return Built(workload=old, written=0)
        ready = blueprint(spec, encoding)
        planned = old.manifest if old else manifest(ready.plan, encoding, (), {})
        missing = _missing(planned, wanted, kept)
        prover = Prover(ready.plan, ready.lexicon, ready.task, crowded=ready.crowded)
        rows = _Rows(ready, prover, sum(ready.plan.count(s, r) for s, r in missing), progress)
        written = [staging.write(split, rank, rows.of(split, rank)) for split, rank in missing]
        proof = _added(prover.finish(), old.manifest.proof if old and kept else {})
        if ready.task.content_sha256 is not None:
            proof["content_sha256"] = ready.task.content_sha256
        files = [*map(staging.keep, kept.values()), *written]
        staging.commit(manifest(ready.plan, encoding, files, proof))
    return Built(workload=open_workload(staging.final), written=len(written))


def manifest(
    plan: Plan, encoding: Encoding, files: Sequence[FileProof], proof: Mapping[str, Any]
) -> Manifest:
    """Return the manifest of a plan and its files."""
    spec = plan.spec
    by_path = {file.path: file for file in files}
    there = [(s, r) for s, r in _files(range(spec.dp_ranks)) if row_file(s, r) in by_path]
    per_rank = {s: [plan.count(s, r) for r in range(spec.dp_ranks)] for s in SPLITS}
    return Manifest(
        format=FORMAT,
        name=spec.name,
        spec=spec.content,
        spec_sha256=spec_file.fingerprint(spec.content),
        encoding=encoding.proof(),
        cache=spec.cache,
        promises=plan.promises,
        splits={s: {"rows": sum(counts), "per_rank": counts} for s, counts in per_rank.items()},
        ranks=sorted({r for _, r in there}),
        files=tuple(by_path[row_file(s, r)] for s, r in there),
        proof=proof,
    )


class _Rows:
    """Composes the rows of one file after another, proves each, and tells the progress."""

    def __init__(
        self, ready: Blueprint, prover: Prover, total: int, progress: Callable[[int, int], None]
    ) -> None:
        self._plan = ready.plan
        self._composer = ready.composer()
        self._prover = prover
        self._progress = progress
        self._done, self._total = 0, total

    def of(self, split: Split, rank: int) -> Iterator[Composed]:
        for plan in self._plan.rows(split, rank):
            row = self._composer.compose(plan)
            self._prover.add(row)
            yield row
            self._done += 1
            self._progress(self._done, self._total)


def _files(ranks: Iterable[int]) -> list[tuple[Split, int]]:
    """Return (split, rank) in the order of a manifest's files."""
    return [(split, rank) for split in SPLITS for rank in ranks]


def _checked_ranks(spec: Spec, ranks: Sequence[int] | None) -> Sequence[int]:
    for rank in ranks or ():
        if not 0 <= rank < spec.dp_ranks:
            expected = f"a rank from 0 to {spec.dp_ranks - 1} (dp_ranks: {spec.dp_ranks})"
            raise error("--rank", expected=expected, found=str(rank))
    return range(spec.dp_ranks) if not ranks else sorted(set(ranks))


def _reusable(folder: Path, spec: Spec, encoding: Encoding) -> Workload | None:
    """Return the set in the folder if it is of this very spec and content, whether or not it is whole."""
    try:
        old = open_workload(folder)
        plan = solve(spec, encoding, 1)
    except WlgenError:
        return None
    found = old.manifest
    if found != manifest(plan, encoding, found.files, found.proof):
        return None
    return old if found.proof.get("content_sha256") == _content_sha256(spec) else None


def _content_sha256(spec: Spec) -> str | None:
    """Return the hash of the text that the spec's task reads from outside of the spec, as it is now."""
    module = registry.load(tasks, spec.requests.task.name, place=spec.place)
    if not hasattr(module, "content_sha256"):
        return None
    sha256: str = module.content_sha256(spec.requests.task.options, place=spec.place)
    return sha256


def _proved(old: Workload) -> dict[str, FileProof]:
    """Return the files whose content has the hash of the manifest, by path."""
    with ThreadPoolExecutor() as pool:
        proved = pool.map(
            lambda proof: file_sha256(old.folder / proof.path) == proof.sha256, old.manifest.files
        )
        return {proof.path: proof for proof, good in zip(old.manifest.files, proved, strict=True) if good}


def _missing(
    planned: Manifest, wanted: Sequence[int], kept: Mapping[str, FileProof]
) -> list[tuple[Split, int]]:
    """Return the files to write: of the ranks asked for, and those that the set has with a wrong hash."""
    listed = {file.path for file in planned.files}
    return [
        (split, rank)
        for split, rank in _files(range(planned.dp_ranks))
        if (path := row_file(split, rank)) not in kept
        and (path in listed or (rank in wanted and planned.splits[split]["per_rank"][rank]))
    ]


def _added(proof: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return a proof with what an earlier build of the kept files counted."""
    counted = (name for name in ("prefixes", "seams", "whole_rows") if type(old.get(name)) is int)
    return {**proof, **{name: proof[name] + old[name] for name in counted}}
