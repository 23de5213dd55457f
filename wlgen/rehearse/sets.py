"""Named sets, from which a rehearsal takes the server's encoding and the rows that it will get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from wlgen.build.ready import load_encoding
from wlgen.build.recall import prompt_ids
from wlgen.encodings import Encoding, deepseek_v4
from wlgen.errors import Problem, WlgenError
from wlgen.rehearse.known import KnownRows
from wlgen.spec import file as spec_file
from wlgen.workload.opened import Workload, open_workload


def open_sets(folders: Sequence[Path]) -> list[Workload]:
    """Open built sets; WlgenError if they were built for servers that encode differently."""
    workloads = [open_workload(folder) for folder in folders]
    problems = [
        Problem(
            place=str(workload.folder),
            expected=f"the encoding of {workloads[0].folder}, {workloads[0].manifest.spec['encoding']}",
            found=str(workload.manifest.spec["encoding"]),
            remedy="One server has one encoding: rehearse them apart.",
        )
        for workload in workloads
        if workload.manifest.encoding != workloads[0].manifest.encoding
    ]
    if problems:
        raise WlgenError(*problems)
    return workloads


def set_encoding(workload: Workload) -> Encoding:
    """Return the encoding that a set was built with."""
    spec = spec_file.of_set(workload)
    return load_encoding(spec)


def know(known: KnownRows, workloads: Sequence[Workload], report: Callable[[int, int], None]) -> None:
    """Take the rows of the sets with their ids; call `report` with (done, total) rows."""
    total = sum(file.rows for workload in workloads for file in workload.manifest.files)
    for workload in workloads:
        for row, ids in prompt_ids(workload):
            known.add(row, ids)
            report(len(known), total)


def default_encoding() -> Encoding:
    """Return the encoding of a rehearsal without a set: DeepSeek V4 in chat mode."""
    return deepseek_v4.load(deepseek_v4.Options(), place="--set")
