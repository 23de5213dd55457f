"""Build: spec -> plan -> compose -> prove -> store."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from wlgen.build.evidence import Evidence, Method, method_of
from wlgen.build.ready import Blueprint, blueprint, content_sha256, load_encoding
from wlgen.build.shares import share_out
from wlgen.build.store import Staging
from wlgen.encodings import Encoding
from wlgen.errors import WlgenError, error, regular
from wlgen.plan.ordinals import NUMBERING
from wlgen.plan.predict import gate
from wlgen.plan.rows import File, Plan
from wlgen.plan.solve import solve
from wlgen.spec import file as spec_file
from wlgen.spec.model import Spec
from wlgen.streams import FORMAT
from wlgen.workload.card import with_card
from wlgen.workload.manifest import MANIFEST, FileProof, Manifest
from wlgen.workload.opened import Workload, file_sha256, open_workload
from wlgen.workload.rows import row_file
from wlgen.workload.splits import SPLITS

JOURNAL, EXPORT_MARKER = "prepare.jsonl", "wlgen-export.json"  # files of wlgen prepare and wlgen export


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a build did.

    workload: the set. written: row files that the build wrote. taken: row files that it copied from another
    set. The rest was there already, with a valid proof. replaced: in words, the set of another spec that
    stood in the set's place, "" if there was none.
    """

    workload: Workload
    written: int
    taken: int
    replaced: str = ""


def build(
    spec: Spec,
    output: Path,
    *,
    ranks: Sequence[int] | None = None,
    rounds: Sequence[int] | None = None,
    take: Sequence[Path] = (),
    jobs: int | None = 1,
    replace: bool = False,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Built:
    """Build the set of a spec, or some of its ranks and rounds, into output/<name>; keep proved files.

    take: sets of the same spec, built elsewhere, whose proved files are copied and not built again.
    jobs: how many processes share the work; None: as many as make it faster. With more than one, a script
    that calls this needs the guard `if __name__ == "__main__"`, since each process imports the script.
    replace: whether to replace a set of another spec that was sent to a server or exported.
    progress: called with the rows composed and the rows to compose. A failure leaves an older set as it was.
    """
    wanted = _checked("--rank", "dp_ranks", spec.dp_ranks, ranks)
    asked = _checked("--round", "rounds", spec.rounds, rounds)
    if jobs is not None and jobs < 1:
        raise error("--jobs", expected="at least 1 process", found=str(jobs))
    encoding = load_encoding(spec)
    with Staging(output, spec.name) as staging:
        staging.check_place()
        replaced = _replaced(spec, staging.final)
        if replaced and not replace:
            _check_unsent(spec, staging.final, replaced)
        plan, old, others = _sources(spec, encoding, staging.final, take)
        kept = {path: (proof, each) for each in others for path, proof in _proved(each).items()}
        if old:
            kept |= {path: (proof, old) for path, proof in _proved(old).items()}
        taken = sum(source is not old for _, source in kept.values())
        if old and plan and not taken and not _missing(plan, wanted, asked, old, kept) and _others_stand(old):
            return Built(workload=old, written=0, taken=0)
        ready = blueprint(spec, encoding)
        missing = _missing(ready.plan, wanted, asked, old, kept)
        method = method_of(ready.lexicon, ready.tasks)
        written, evidence = _write(ready, staging.new, missing, method, jobs=jobs, progress=progress)
        if kept:  # the proof speaks of all files of the set, not only of those just written
            there = [file for file in ready.plan.files() if file in missing or _path(file) in kept]
            evidence = evidence_of(ready, there, method)[0]
        proof = proof_of(ready, evidence)
        inputs = [staging.add(path, content) for path, content in sorted(spec.inputs.items())]
        files = [*(staging.keep(proof, source.folder) for proof, source in kept.values()), *written, *inputs]
        staging.commit(manifest(ready.plan, encoding, files, proof))
    return Built(workload=open_workload(staging.final), written=len(written), taken=taken, replaced=replaced)


def _replaced(spec: Spec, folder: Path) -> str:
    """Return in words the set in a folder that this build would replace, "" if there is none."""
    try:
        found = open_workload(folder).manifest
    except WlgenError:
        return ""
    mine = spec_file.fingerprint(spec.content)
    if found.spec_sha256 == mine and spec.rounds > 1 and found.numbering != NUMBERING:
        return f"the set {found.name} of the same spec, whose later rounds were numbered in an older way"
    return "" if found.spec_sha256 == mine else f"the set {found.name} of the spec {found.spec_sha256[:12]}"


def _check_unsent(spec: Spec, folder: Path, replaced: str) -> None:
    """Raise WlgenError if a set was prepared on a server or exported: an audit of its results needs it."""
    sent = next((path for path in (folder / JOURNAL, *_exports(folder)) if path.exists()), None)
    if sent is None:
        return
    raise error(
        str(folder),
        expected=f"a set that nobody was sent, or --replace, before {spec.place} takes its place",
        found=f"{replaced}, which was sent: {sent}",
        remedy="Add --replace if its results are audited, or give another --output.",
    )


def _exports(folder: Path) -> Iterator[Path]:
    """Yield the markers of exports of a set, in its folder or beside it."""
    sha256 = open_workload(folder).manifest.spec_sha256
    for path in sorted([*folder.glob(f"*/{EXPORT_MARKER}"), *folder.parent.glob(f"*/{EXPORT_MARKER}")]):
        with suppress(OSError, ValueError):
            content = orjson.loads(regular(path).read_bytes())
            if isinstance(content, dict) and content.get("spec_sha256") == sha256:
                yield path


def _write(
    ready: Blueprint,
    folder: Path,
    files: Sequence[File],
    method: Method,
    *,
    jobs: int | None,
    progress: Callable[[int, int], None],
) -> tuple[list[FileProof], Evidence]:
    """Write files below a folder; return their proofs in order, and the evidence that proves their text."""
    plan = ready.plan
    done, total = 0, sum(plan.count(*file) for file in files)

    def tell(rows: int) -> None:
        nonlocal done
        done += rows
        progress(done, total)

    shares = share_out(plan, folder, files, method, jobs)
    if len(shares) == 1:
        # The gate takes rows rank by rank, the evidence split by split, so each row is planned twice. Of the
        # 22 s that 100,000 short rows take, the second time is 1.1 s; to hold 10,000,000 plans takes 7 GB.
        gate(plan, shares[0].ranks)
        evidence = Evidence(method)  # filled while rows are composed, so that none is planned a third time
        proofs = shares[0].write(ready, evidence.take, tell)
    else:
        from wlgen.build.processes import Jobs  # noqa: PLC0415 (most builds need no other process)

        with Jobs(ready, shares) as processes:
            evidence, whole = evidence_of(ready, files, method)
            proofs = processes.write(whole, tell)
    by_path = {proof.path: proof for proof in proofs}
    return [by_path[_path(file)] for file in files], evidence


def evidence_of(ready: Blueprint, files: Sequence[File], method: Method) -> tuple[Evidence, set[str]]:
    """Return the evidence for files, and the ids of the rows that the tokenizer encodes whole."""
    evidence = Evidence(method)
    return evidence, evidence.whole(row for file in files for row in ready.plan.rows(*file))


def proof_of(ready: Blueprint, evidence: Evidence) -> dict[str, Any]:
    """Return how exactness was proved, as the manifest keeps it."""
    proof = {**evidence.proof(), "rows_that_share_a_lead": ready.crowded}
    return proof if ready.content_sha256 is None else {**proof, "content_sha256": ready.content_sha256}


def manifest(
    plan: Plan, encoding: Encoding, files: Sequence[FileProof], proof: Mapping[str, Any]
) -> Manifest:
    """Return the manifest of a plan and its files, with the card that follows from it."""
    spec = plan.spec
    by_path = {file.path: file for file in files}
    there = [file for file in plan.files() if _path(file) in by_path]
    made = Manifest(
        format=FORMAT,
        name=spec.name,
        spec=spec.content,
        spec_sha256=spec_file.fingerprint(spec.content),
        encoding=encoding.proof(),
        cache=spec.cache,
        promises=plan.promises,
        splits=plan.counts(),
        ranks=sorted({rank for _, rank, _ in there}),
        rounds=sorted({round_ for split, _, round_ in there if split.each_round})
        if spec.rounds > 1
        else None,
        numbering=plan.numbering,
        files=tuple(by_path[path] for path in (*map(_path, there), *sorted(spec.inputs)) if path in by_path),
        proof=proof,
    )
    return with_card(made)


def _path(file: File) -> str:
    return row_file(*file)


def _checked(option: str, key: str, count: int, asked: Sequence[int] | None) -> Sequence[int]:
    """Return the numbers asked for, or all from 0 to count - 1 if none is asked for."""
    for number in asked or ():
        if not 0 <= number < count:
            raise error(
                option, expected=f"a {option[2:]} from 0 to {count - 1} ({key}: {count})", found=str(number)
            )
    return range(count) if not asked else sorted(set(asked))


def _sources(
    spec: Spec, encoding: Encoding, folder: Path, take: Sequence[Path]
) -> tuple[Plan | None, Workload | None, list[Workload]]:
    """Return the plan, the set in the folder if it has the same plan and content, and the sets to take from.

    The plan is None if there is no set to compare with it, or if the spec has none: then the build says why.
    """
    if not take and not (folder / MANIFEST).exists():
        return None, None, []
    try:
        plan = solve(spec, encoding, lambda _number, _output_len: 1)
    except WlgenError:
        return None, None, []
    try:
        old = open_workload(folder)
    except WlgenError:
        old = None
    others = [_taken(each, plan, encoding) for each in take]
    return plan, old if old and _alike(old, plan, encoding) else None, others


def _taken(folder: Path, plan: Plan, encoding: Encoding) -> Workload:
    """Return a set that was built elsewhere; WlgenError if its plan or content is not the same."""
    workload = open_workload(folder)
    if not _alike(workload, plan, encoding):
        raise error(
            f"--take {folder}",
            expected=f"a set of the same spec as {plan.spec.place}, with its tokenizer and its texts",
            found=f"the set {workload.manifest.name} of another spec, tokenizer or text",
            remedy="Build that set from this spec, or leave --take out.",
        )
    return workload


def _alike(workload: Workload, plan: Plan, encoding: Encoding) -> bool:
    found = workload.manifest
    expected = manifest(plan, encoding, found.files, found.proof)
    if plan.spec.rounds == 1:  # the plan alone does not know whether the vocabulary forces dense numbers
        expected = replace(expected, numbering=found.numbering)
    alike = replace(found, card=None) == replace(expected, card=None)
    return alike and found.proof.get("content_sha256") == content_sha256(plan.spec)


def _proved(workload: Workload) -> dict[str, FileProof]:
    """Return the proofs of the row files whose content has the manifest's hash, by path."""
    files = [file for file in workload.manifest.files if file.path.split("/")[0] in SPLITS]
    with ThreadPoolExecutor() as pool:
        hashes = pool.map(lambda file: file_sha256(workload.folder / file.path), files)
        return {file.path: file for file, sha256 in zip(files, hashes, strict=True) if sha256 == file.sha256}


def _others_stand(workload: Workload) -> bool:
    """Return whether the files that the spec names, and the card, are as the manifest says."""
    manifest = workload.manifest
    if manifest.card != with_card(manifest).card:  # a set older than cards gets a card
        return False
    files = [file for file in manifest.files if file.path.split("/")[0] not in SPLITS]
    return all(
        file_sha256(workload.folder / file.path) == file.sha256
        for file in [*files, *filter(None, [manifest.card])]
    )


def _missing(
    plan: Plan,
    ranks: Sequence[int],
    rounds: Sequence[int],
    old: Workload | None,
    kept: Container[str],
) -> list[File]:
    """Return the files to write: those asked for, and damaged files of the old set."""
    listed = {file.path for file in old.manifest.files} if old else set()
    missing = []
    for split, rank, round_ in plan.files():
        path = row_file(split, rank, round_)
        asked = rank in ranks and split.within(round_, rounds) and plan.count(split, rank, round_)
        if path not in kept and (path in listed or asked):
            missing.append((split, rank, round_))
    return missing
