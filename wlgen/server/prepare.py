"""Prepare a live server with a set's seeds and checks: preflight, journal and preparation put together."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wlgen.build.ready import load_encoding
from wlgen.engines import engine
from wlgen.errors import counted, error
from wlgen.server.counters import look
from wlgen.server.door import KEY_VARIABLE
from wlgen.server.journal import JOURNAL, Journal
from wlgen.server.outcome import Outcome, Wanted
from wlgen.server.pair import check_roles, open_server
from wlgen.server.preflight import choose_engine, choose_model, preflight
from wlgen.server.preparation import NotHeldError, Preparation
from wlgen.spec import file as spec_file
from wlgen.workload.manifest import FileProof
from wlgen.workload.opened import Workload
from wlgen.workload.splits import BEFORE

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimedServer:
    """The server to prime, and its journal. timeout: seconds for a whole answer.

    prefill, decode: the servers of a pair, whose router is `url`.
    """

    url: str
    engine: str | None = None
    model: str | None = None
    prefill: tuple[str, ...] = ()
    decode: tuple[str, ...] = ()
    timeout: float = 600.0
    journal: Path | None = None


async def prepare_set(
    workload: Workload, target: PrimedServer, wanted: Wanted, progress: Progress = lambda _done, _total: None
) -> Outcome:
    """Prepare a server, and return what was found and what it cost.

    WlgenError if the server cannot be used or a request fails. The API key comes from the environment and
    goes into the header of each request, and nowhere else.
    """
    spec = spec_file.of_set(workload)
    encoding = load_encoding(spec)
    total = sum(file.rows for file in _files(workload, wanted))
    done = 0

    def report(_: str) -> None:
        nonlocal done
        done += 1
        progress(done, total)

    planned = engine(workload.manifest.cache.engine)
    given = None if target.engine is None else engine(target.engine, place="--engine")
    key = os.environ.get(KEY_VARIABLE)
    journal_path = target.journal or workload.folder / JOURNAL
    server = await open_server(
        target.url, prefill=target.prefill, decode=target.decode, api_key=key, patience=target.timeout
    )
    async with server:
        with Journal(journal_path) as journal:
            server.model = await choose_model(server, target.model)
            server.engine, told = await choose_engine(server, given, planned)
            pair = await check_roles(server, workload.manifest.dp_ranks)
            counts = await look(server)
            model = f"model: {server.model} at {server.url}"
            found = await preflight(server, workload, encoding, wanted.ranks)
            work = Preparation(
                server=server,
                workload=workload,
                encoding=encoding,
                found=replace(found, proofs=(model, told, *pair, *found.proofs)),
                wanted=wanted,
                journal=journal,
                report=report,
            )
            resumed = work.begin(counts)
            try:
                await work.run(resumed=resumed)
            except NotHeldError as reason:
                work.note(f"{reason}: starting over")
                await work.run(resumed=False)
            return work.outcome


def _files(workload: Workload, wanted: Wanted) -> list[FileProof]:
    """Return the files whose rows a preparation may send."""
    if wanted.round is not None:
        checks = [split for split in BEFORE if not split.primes]
        return workload.files(checks, wanted.ranks, (wanted.round,))
    first = min(workload.manifest.rounds or (0,))
    return workload.files(BEFORE, wanted.ranks, (first,))


def parse_ranks(text: str | None, built: Sequence[int]) -> tuple[int, ...]:
    """Return the ranks of "0,3,8-11", or all built ranks for None; WlgenError if one is not built."""
    if text is None:
        return tuple(built)
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)):
            raise error("--ranks", expected="ranks such as 0,3,8-11", found=repr(text))
        found.update(range(int(first), int(last or first) + 1))
    missing = sorted(found - set(built))
    if missing or not found:
        shown = str(missing[0]) if missing else repr(text)
        expected = f"some of the {counted(len(built), 'rank')} that are built, {min(built)} to {max(built)}"
        raise error("--ranks", expected=expected, found=shown)
    return tuple(sorted(found))
