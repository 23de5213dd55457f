"""Jobs: processes that each do a share of a build: they gate it, compose it, prove it and write it.

A ProcessPoolExecutor of concurrent.futures is as fast: for 100,000 rows of 2048 tokens it took 28.3 and 29.3
seconds of processor time, and these processes 29.1 and 29.6, by turns. But when one share fails, a pool waits
for the others to end, which may take minutes. Here `terminate` ends them at once; a pool can do that from
Python 3.14 on.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Self, TypeAlias

from wlgen.build.ready import Blueprint, Crowding, blueprint
from wlgen.build.shares import Share, Tell
from wlgen.errors import WlgenError, error
from wlgen.plan.predict import gate
from wlgen.spec.model import Spec
from wlgen.workload.manifest import FileProof

_GUARD = 'Its own output says why. A script that builds with jobs needs `if __name__ == "__main__":`.'
ROWS_A_WORD = 256  # rows that a process composes before it reports them to its parent

Word: TypeAlias = int | Exception | list[FileProof]
"""What a process reports: rows that it composed, what failed, or at its end the proofs of its files."""


class Jobs:
    """Processes that gate their shares when they start, and write them when `write` is called.

    All of them end with the `with` block, whether they are done or not.
    """

    def __init__(self, ready: Blueprint, shares: Sequence[Share]) -> None:
        self._ready = ready
        self._shares = shares
        self._lines: dict[Connection, BaseProcess] = {}

    def __enter__(self) -> Self:
        context = get_context("spawn")  # a copy of this process would share the threads of its tokenizer
        try:
            with _uninterrupted():
                for share in self._shares:
                    here, there = context.Pipe()
                    work = (there, self._ready.spec, self._ready.crowding, self._ready.content_sha256, share)
                    process = context.Process(target=_work, args=work, daemon=True)
                    process.start()
                    there.close()
                    self._lines[here] = process
        except OSError as failure:
            self.__exit__(type(failure), failure, None)
            expected = f"that {len(self._shares)} processes can start"
            remedy = "Give a smaller --jobs."
            raise error("--jobs", expected=expected, found=str(failure), remedy=remedy) from failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        for line, process in self._lines.items():
            if failure is not None:
                process.terminate()
            process.join()
            line.close()

    def write(self, whole: set[str], tell: Tell) -> list[FileProof]:
        """Have every process write its share; raise the first failure."""
        for line in self._lines:
            with suppress(ConnectionError):  # `_next` raises this process's failure
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
            raise _ended_early(self._lines[line]) from None
        return word


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Start processes that ignore a person's Ctrl-C: their parent gets it, and ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _ended_early(process: BaseProcess) -> WlgenError:
    process.join()
    killed = (process.exitcode or 0) < 0
    return error(
        "--jobs",
        expected="processes that write their files to the end",
        found=f"one that ended with code {process.exitcode}",
        remedy="Give fewer --jobs, which need less memory." if killed else _GUARD,
    )


def _end_with_parent() -> None:
    """End this process as soon as its parent has ended, even if the parent was killed."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(line: Connection, spec: Spec, crowding: Crowding, content_sha256: str | None, share: Share) -> None:
    """Do a share in this process, and send its result or its failure."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        line.send(_done(line, blueprint(spec, crowding=crowding), content_sha256, share))
    except (BrokenPipeError, EOFError):
        return  # the parent has ended
    except WlgenError as failure:
        line.send(failure)
    except Exception as failure:  # noqa: BLE001 (the parent raises it again)
        failure.add_note(traceback.format_exc())
        line.send(failure)


def _done(line: Connection, ready: Blueprint, content_sha256: str | None, share: Share) -> list[FileProof]:
    """Gate the share, wait for the names of the rows to encode whole, and write."""
    if ready.content_sha256 != content_sha256:
        raise error(
            ready.spec.place,
            expected="texts that stay as they are during a build",
            found="a change",
            remedy="Build again.",
        )
    gate(ready.plan, share.ranks)
    whole, untold = line.recv(), 0

    def tell(rows: int) -> None:
        nonlocal untold
        untold += rows
        if untold >= ROWS_A_WORD:
            line.send(untold)
            untold = 0

    proofs = share.write(ready, lambda row: row.id in whole, tell)
    line.send(untold)
    return proofs
