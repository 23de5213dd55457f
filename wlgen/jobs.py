"""Jobs: the files of a build gated, composed, proved and written, by this process or shared out to several.

Ranks depend on nothing of one another, so a share is all files of some ranks.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from wlgen.blueprint import Blueprint, blueprint
from wlgen.compose import Composed
from wlgen.errors import WlgenError, error
from wlgen.evidence import Method
from wlgen.plan import File, Plan
from wlgen.predict import gate
from wlgen.prove import Prover
from wlgen.spec import Spec
from wlgen.store import write_rows
from wlgen.workload import FileProof, row_file

SECONDS_A_ROW, SECONDS_A_TOKEN = 300e-6, 4e-8  # of composing: a row, and a token of its own
SECONDS_A_JOB = 3.0  # of work below which a process of its own is not worth its start
ROWS_A_WORD = 256  # composed between two words to the process that waits

Tell: TypeAlias = Callable[[int], None]
Word: TypeAlias = int | Exception | list[FileProof]
"""What a process says: rows that it composed, what failed, or at its end the proofs of its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Files that one process writes below a folder, and how their rows are proved."""

    folder: Path
    files: tuple[File, ...]
    method: Method

    def write(self, ready: Blueprint, whole: set[str], tell: Tell) -> list[FileProof]:
        """Write the files. whole: ids of the rows to encode whole. tell: called with the rows done since."""
        prover = Prover(ready.lexicon, self.method, crowded=ready.crowded)
        composer = ready.composer()

        def composed(file: File) -> Iterator[Composed]:
            for plan in ready.plan.rows(*file):
                row = composer.compose(plan)
                prover.add(row, whole=plan.id in whole)
                yield row
                tell(1)

        proofs = write_rows(self.folder, ((row_file(*file), composed(file)) for file in self.files))
        prover.finish()
        return proofs

    @property
    def ranks(self) -> list[int]:
        """The ranks whose files these are."""
        return sorted({rank for _, rank, _ in self.files})


class Jobs:
    """Processes that gate their shares as soon as they have started, and write them when they are told how.

    They end with the context, whether they are done or not.
    """

    def __init__(self, ready: Blueprint, shares: Sequence[Share]) -> None:
        self._ready = ready
        self._shares = shares
        self._lines: dict[Connection, BaseProcess] = {}

    def __enter__(self) -> Self:
        context = get_context("spawn")  # a copy of this process would share the threads of its tokenizer
        for share in self._shares:
            here, there = context.Pipe()
            work = (there, self._ready.spec, self._ready.content_sha256, share)
            process = context.Process(target=_work, args=work, daemon=True)
            process.start()
            there.close()
            self._lines[here] = process
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line, process in self._lines.items():
            process.terminate()
            process.join()
            line.close()

    def write(self, whole: set[str], tell: Tell) -> list[FileProof]:
        """Let every share be written; the first failure of any is raised."""
        for line in self._lines:
            with suppress(ConnectionError):  # its failure is read below
                line.send(whole)
        proofs: list[FileProof] = []
        waiting = set(self._lines)
        while waiting:
            for line in waiting.intersection(wait(waiting)):
                word = self._next(line)
                if isinstance(word, int):
                    tell(word)
                elif isinstance(word, Exception):
                    raise word
                else:
                    proofs += word
                    waiting.remove(line)
        return proofs

    def _next(self, line: Connection) -> Word:
        try:
            word: Word = line.recv()
        except (EOFError, ConnectionResetError):
            process = self._lines[line]
            process.join()
            raise error(
                "--jobs",
                expected="processes that write their files to the end",
                found=f"one that ended with code {process.exitcode}",
                remedy="Give fewer --jobs, which need less memory.",
            ) from None
        return word


def _work(line: Connection, spec: Spec, content_sha256: str | None, share: Share) -> None:
    """Do a share in a process of its own, and send what becomes of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits ends this one
    try:
        line.send(_done(line, spec, content_sha256, share))
    except (BrokenPipeError, EOFError):
        return  # nobody waits any more
    except WlgenError as failure:
        line.send(failure)
    except Exception as failure:  # noqa: BLE001 (raised again by the process that waits)
        failure.add_note(traceback.format_exc())
        line.send(failure)


def _done(line: Connection, spec: Spec, content_sha256: str | None, share: Share) -> list[FileProof]:
    """Make a spec ready again, gate the share, wait for the rows to encode whole, and write."""
    ready = blueprint(spec)
    if ready.content_sha256 != content_sha256:
        raise error(spec.place, expected="texts that stay as they are during a build", found="a change")
    gate(ready.plan, share.ranks)
    whole, untold = line.recv(), 0

    def tell(rows: int) -> None:
        nonlocal untold
        untold += rows
        if untold >= ROWS_A_WORD:
            line.send(untold)
            untold = 0

    proofs = share.write(ready, whole, tell)
    line.send(untold)
    return proofs


def share_out(
    plan: Plan, folder: Path, files: Sequence[File], method: Method, jobs: int | None
) -> list[Share]:
    """Return shares of about the same work, at most `jobs`; None: as many as this machine can use at once."""
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
    """Return about how long a file takes, judged by its first row."""
    first = next(plan.rows(*file))
    own = sum(s.tokens for message in first.messages for s in message.segments if not s.kept)
    return plan.count(*file) * (SECONDS_A_ROW + own * SECONDS_A_TOKEN)


def _cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
