"""Shares: the parts of a build, of which each process writes one.

A share is all files of some ranks, since the gate replays a rank's requests in the order of sending, from
its seeds to its last formal row. With 16 ranks, two processes take eight ranks each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from wlgen.build.compose import Composed
from wlgen.build.evidence import Method
from wlgen.build.prove import Prover
from wlgen.build.ready import Blueprint
from wlgen.build.store import write_rows
from wlgen.plan.rows import File, Plan, RowPlan
from wlgen.workload.manifest import FileProof
from wlgen.workload.rows import row_file

SECONDS_A_ROW, SECONDS_A_TOKEN = 300e-6, 4e-8  # to compose a row, and besides for each token of its own part
SECONDS_A_JOB = 3.0  # work for less than this costs more to start a process for than the process saves

Tell: TypeAlias = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Files that one process writes below a folder, and how their rows are proved."""

    folder: Path
    files: tuple[File, ...]
    method: Method

    def write(self, ready: Blueprint, whole: Callable[[RowPlan], bool], tell: Tell) -> list[FileProof]:
        """Write the files. whole: says which rows to encode whole. tell: gets how many rows are done."""
        prover = Prover(ready.lexicon, self.method, crowded=ready.crowded)
        composer = ready.composer()

        def composed(file: File) -> Iterator[Composed]:
            for plan in ready.plan.rows(*file):
                row = composer.compose(plan)
                prover.add(row, whole=whole(plan))
                yield row
                tell(1)

        proofs = write_rows(self.folder, ((row_file(*file), composed(file)) for file in self.files))
        prover.finish()
        return proofs

    @property
    def ranks(self) -> list[int]:
        """The ranks whose files the share holds."""
        return sorted({rank for _, rank, _ in self.files})


def share_out(
    plan: Plan, folder: Path, files: Sequence[File], method: Method, jobs: int | None
) -> list[Share]:
    """Return at most `jobs` shares of about equal work.

    jobs: None: as many as make the build faster on this machine. Ranks are dealt from the longest to the
    shortest, each to the share with the least work so far.
    """
    work = {file: _seconds(plan, file) for file in files}
    of_rank: dict[int, float] = {}
    for (_, rank, _), seconds in work.items():
        of_rank[rank] = of_rank.get(rank, 0) + seconds
    if jobs is None:
        jobs = min(_cores(), int(sum(work.values()) / SECONDS_A_JOB))
    loads = [0.0] * max(1, min(jobs, len(of_rank)))
    taken: dict[int, int] = {}
    for rank in sorted(of_rank, key=of_rank.__getitem__, reverse=True):
        taken[rank] = loads.index(min(loads))
        loads[taken[rank]] += of_rank[rank]
    return [
        Share(folder=folder, files=tuple(f for f in files if taken[f[1]] == number), method=method)
        for number in range(len(loads))
    ]


def _seconds(plan: Plan, file: File) -> float:
    """Return about how many seconds a file takes: its number of rows times the seconds of its first row."""
    first = next(plan.rows(*file))
    own = sum(s.tokens for message in first.messages for s in message.segments if not s.kept)
    return plan.count(*file) * (SECONDS_A_ROW + own * SECONDS_A_TOKEN)


def _cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
