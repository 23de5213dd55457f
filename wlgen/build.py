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
from wlgen.predict import gate
from wlgen.prove import Prover
from wlgen.solve import solve
from wlgen.spec import Kind, Spec
from wlgen.store import Staging
from wlgen.tasks import Task
from wlgen.workload import (
    FORMAT,
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
    """A spec made ready: its encoding, lexicon, plan, and the task of each class.

    crowded: rows that share their first token.
    """

    spec: Spec
    encoding: Encoding
    lexicon: Lexicon
    tasks: tuple[Task, ...]
    plan: Plan
    crowded: int

    @property
    def content_sha256(self) -> str | None:
        """The hash of the text that the tasks read from outside of the spec, None where they read none."""
        return _together(task.content_sha256 for task in self.tasks)

    def composer(self) -> Composer:
        """Return a composer of the plan's rows."""
        return Composer(self.lexicon, self.tasks, self.spec.random_seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a build did: the set, and how many of its files were written (the others had a valid proof)."""

    workload: Workload
    written: int


def blueprint(spec: Spec, encoding: Encoding | None = None) -> Blueprint:
    """Load what a spec names and solve its plan; WlgenError where either is impossible."""
    encoding = encoding or load_encoding(spec)
    lexicon = Lexicon(encoding, spec.random_seed)
    made = tuple(_task(of.task, lexicon, spec.place) for of in spec.requests)
    plan = solve(spec, encoding, lambda number, output_len: LEAD + made[number].least_own(output_len))
    crowded = crowded_rows(plan, lexicon)
    return Blueprint(spec=spec, encoding=encoding, lexicon=lexicon, tasks=made, plan=plan, crowded=crowded)


def _task(kind: Kind, lexicon: Lexicon, place: str) -> Task:
    task: Task = registry.load(tasks, kind.name, place=place).make(kind.options, lexicon, place=place)
    return task


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
    rounds: Sequence[int] | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Built:
    """Build the set of a spec into output/<name>, or some ranks and rounds of it; what is proved is kept.

    progress: called with the rows composed and the rows to compose. A failure leaves an older set as it was.
    """
    wanted = _checked("--rank", "dp_ranks", spec.dp_ranks, ranks)
    asked = _checked("--round", "rounds", spec.rounds, rounds)
    encoding = load_encoding(spec)
    with Staging(output, spec.name) as staging:
        staging.check_place()
        old, plan = _reusable(staging.final, spec, encoding)
        kept = _proved(old, spec) if old else {}
        if old and plan and not _missing(plan, wanted, asked, old, kept):
            return Built(workload=old, written=0)
        ready = blueprint(spec, encoding)
        gate(ready.plan)
        missing = _missing(ready.plan, wanted, asked, old, kept)
        prover = Prover(ready.lexicon, ready.tasks, crowded=ready.crowded)
        rows = _Rows(ready, prover, sum(ready.plan.count(*file) for file in missing), progress)
        written = [staging.write(_path(file), rows.of(*file)) for file in missing]
        proof = _added(prover.finish(), old.manifest.proof if old and kept else {})
        if ready.content_sha256 is not None:
            proof["content_sha256"] = ready.content_sha256
        inputs = [staging.add(path, content) for path, content in sorted(spec.inputs.items())]
        files = [*map(staging.keep, kept.values()), *written, *inputs]
        staging.commit(manifest(ready.plan, encoding, files, proof))
    return Built(workload=open_workload(staging.final), written=len(written))


def manifest(
    plan: Plan, encoding: Encoding, files: Sequence[FileProof], proof: Mapping[str, Any]
) -> Manifest:
    """Return the manifest of a plan and its files."""
    spec = plan.spec
    by_path = {file.path: file for file in files}
    there = [file for file in plan.files() if _path(file) in by_path]
    return Manifest(
        format=FORMAT,
        name=spec.name,
        spec=spec.content,
        spec_sha256=spec_file.fingerprint(spec.content),
        encoding=encoding.proof(),
        cache=spec.cache,
        promises=plan.promises,
        splits=plan.counts(),
        ranks=sorted({rank for _, rank, _ in there}),
        rounds=sorted({round_ for split, _, round_ in there if split != "seed"}) if spec.rounds > 1 else None,
        files=tuple(by_path[path] for path in (*map(_path, there), *sorted(spec.inputs)) if path in by_path),
        proof=proof,
    )


def _path(file: tuple[Split, int, int]) -> str:
    return row_file(*file)


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

    def of(self, split: Split, rank: int, round_: int) -> Iterator[Composed]:
        for plan in self._plan.rows(split, rank, round_):
            row = self._composer.compose(plan)
            self._prover.add(row)
            yield row
            self._done += 1
            self._progress(self._done, self._total)


def _checked(option: str, key: str, count: int, asked: Sequence[int] | None) -> Sequence[int]:
    """Return the numbers asked for, all `count` of them where none is."""
    for number in asked or ():
        if not 0 <= number < count:
            raise error(
                option, expected=f"a {option[2:]} from 0 to {count - 1} ({key}: {count})", found=str(number)
            )
    return range(count) if not asked else sorted(set(asked))


def _reusable(folder: Path, spec: Spec, encoding: Encoding) -> tuple[Workload | None, Plan | None]:
    """Return the set in the folder if it is of this very spec and content, whole or not, and its plan."""
    try:
        old = open_workload(folder)
        plan = solve(spec, encoding, lambda _number, _output_len: 1)
    except WlgenError:
        return None, None
    found = old.manifest
    if found != manifest(plan, encoding, found.files, found.proof):
        return None, None
    return (old, plan) if found.proof.get("content_sha256") == _content_sha256(spec) else (None, None)


def _content_sha256(spec: Spec) -> str | None:
    """Return the hash of the text that the spec's tasks read from outside of the spec, as it is now."""
    kinds = [of.task for of in spec.requests]
    modules = [registry.load(tasks, kind.name, place=spec.place) for kind in kinds]
    return _together(
        module.content_sha256(kind.options, place=spec.place)
        for kind, module in zip(kinds, modules, strict=True)
        if hasattr(module, "content_sha256")
    )


def _together(hashes: Iterable[str | None]) -> str | None:
    return ",".join(h for h in hashes if h) or None


def _proved(old: Workload, spec: Spec) -> dict[str, FileProof]:
    """Return the files whose content has the hash of the manifest, by path."""
    with ThreadPoolExecutor() as pool:
        proved = pool.map(
            lambda proof: file_sha256(old.folder / proof.path) == proof.sha256, old.manifest.files
        )
        return {
            proof.path: proof
            for proof, good in zip(old.manifest.files, proved, strict=True)
            if good and proof.path not in spec.inputs
        }


def _missing(
    plan: Plan,
    ranks: Sequence[int],
    rounds: Sequence[int],
    old: Workload | None,
    kept: Mapping[str, FileProof],
) -> list[tuple[Split, int, int]]:
    """Return the files to write: those asked for, and those of the old set where their hash is wrong."""
    listed = {file.path for file in old.manifest.files} if old else set()
    missing = []
    for split, rank, round_ in plan.files():
        path = row_file(split, rank, round_)
        asked = rank in ranks and (split == "seed" or round_ in rounds) and plan.count(split, rank, round_)
        if path not in kept and (path in listed or asked):
            missing.append((split, rank, round_))
    return missing


def _added(proof: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return a proof with what an earlier build of the kept files counted."""
    counted = (name for name in ("prefixes", "seams", "whole_rows") if type(old.get(name)) is int)
    return {**proof, **{name: proof[name] + old[name] for name in counted}}
