"""A preparation under way: it flushes, sends seeds and checks, and stops at the first row that falls short.

It sends no formal row. It pins each row to its rank; with 16 ranks, 16 rows are under way at once, and the
rows of one rank follow each other. Before it sends a row it writes the row's id to the journal, so that a
kill leaves no row that the cache may hold and the journal does not name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from itertools import pairwise
from typing import TypeAlias

from wlgen.audit.as_seen import RowSeen
from wlgen.audit.findings import Promised, findings_of
from wlgen.encodings import Encoding
from wlgen.errors import WlgenError, error
from wlgen.readers import Result
from wlgen.server.api import Server, together, unusable
from wlgen.server.before import counters_now, kept, without_counters, write_before
from wlgen.server.causes import causes
from wlgen.server.counters import Look, fell, idle, look, settled
from wlgen.server.journal import Journal
from wlgen.server.outcome import Cost, Outcome, Wanted
from wlgen.server.pair import target_of
from wlgen.server.preflight import Preflight, row_prompt
from wlgen.server.replies import Reply, RequestError
from wlgen.server.trust import doubt_of, spans
from wlgen.workload.opened import Workload
from wlgen.workload.rows import Finding, Row
from wlgen.workload.splits import BEFORE, PRIMING, Split

Report: TypeAlias = Callable[[str], None]


class NotHeldError(Exception):
    """The server no longer holds the seeds that the journal says it answered."""


class Preparation:
    """One preparation of one server: call `begin`, then `run` (again to start over), then read `outcome`."""

    def __init__(
        self,
        *,
        server: Server,
        workload: Workload,
        encoding: Encoding,
        found: Preflight,
        wanted: Wanted,
        journal: Journal,
        report: Report,
    ) -> None:
        nothing = not workload.files(BEFORE)
        self.outcome = Outcome(
            proofs=found.proofs, omits_zero=found.omits_zero, nothing=nothing, unproved=list(found.unproved)
        )
        self._server = server
        self._workload = workload
        self._encoding = encoding
        self._pinned = found.pinned
        self._wanted = wanted
        self._journal = journal
        self._report = report
        self._bound_of = cache(workload.manifest.bound_of)
        self._warm = bool(workload.files(PRIMING))
        self._round = min(workload.manifest.rounds or (0,)) if wanted.round is None else wanted.round
        self._checks_alone = wanted.only == "check" or wanted.round is not None
        self._pairs: list[RowSeen] = []
        self._failures: list[WlgenError] = []
        self._before: frozenset[str] = frozenset()  # rows that the cache may hold since an earlier run
        self._done: frozenset[str] = frozenset()  # rows that this run need not send again
        self._looks: list[Look | None] = []  # the server's counts, look by look

    def begin(self, counts: Look | None) -> bool:
        """Write the target to the journal; return whether an earlier run's seeds and checks still count.

        counts: the server's counts before the preflight. Sets `outcome.refused` if starting over would empty
        ranks of an earlier run that this run was not asked to prepare.
        """
        history = self._journal.history
        closed, seen = history.closed, history.counts
        self._write("begin", **target_of(self._server, self._workload.manifest), counts=counts)
        self._looks = [counts]
        known = bool(history.seeded or history.passed)
        doubt = doubt_of(self._wanted, seen, counts, closed=closed) if known else ""
        if self._wanted.round is not None:
            self._require_seeds(restarted=fell(seen, counts))
            if not idle(seen, counts):
                self.outcome.unproved.append(f"that round {self._round} was not sent before")
            return not doubt
        if not known:
            return False
        if not doubt and not self._warm and history.sent != history.passed:
            doubt = "a check was under way when the last run ended"
        if not doubt and (failed := history.failed & set(self._wanted.ranks)):
            others = sorted(set(history.seeded.values()) - set(self._wanted.ranks))
            doubt = f"the last run ended with a finding on rank {min(failed)}"
            if others and self._wanted.flush is None and not self._checks_alone:
                self.outcome.refused = (
                    f"{doubt}, and to start over would empty rank {spans(others)}, too, whose seeds count. "
                    "--flush empties all ranks; then prepare all of them"
                )
                return False
        if doubt:
            self.note(f"the journal's seeds and checks do not count: {doubt}")
            if not self._checks_alone:
                self._write("void", reason=doubt)
            return False
        if not idle(seen, counts):
            self.outcome.unproved.append("that nothing was sent since the last run (--resume)")
        self.note("an earlier run's seeds count: one check a rank shows whether the server still holds them")
        return True

    def _require_seeds(self, *, restarted: bool) -> None:
        """Raise WlgenError unless the journal shows that the server holds the seeds of the wanted ranks."""
        history = self._journal.history
        seeds = [row.id for row in self._workload.rows(PRIMING, self._wanted.ranks)]
        missing = [name for name in seeds if name not in history.seeded]
        found = "the server restarted since" if restarted else ""
        found = "a finding in the last run" if history.failed & set(self._wanted.ranks) else found
        if missing:
            found = f"{len(seeds) - len(missing)} of {len(seeds)} answered by this server (not {missing[0]})"
        if found and seeds:
            remedy = "Run `wlgen prepare` without --round: it seeds, and checks the first round."
            place = f"--round {self._round} {self._journal.path}"
            raise error(place, expected="seeds that the server holds", found=found, remedy=remedy)

    async def run(self, *, resumed: bool) -> None:
        """Flush, seed and check, as far as wanted; NotHeldError if an earlier run's seeds are gone."""
        if self.outcome.refused:
            self._write("stopped", counts=await settled(self._server))
            return
        self._pairs.clear()
        if not self._checks_alone and not resumed:
            await self._flush()
        history = self._journal.history
        # A check may find more than planned only if an earlier run sent it, and its journal counts.
        self._before = frozenset(history.sent) if resumed else frozenset()
        self._done = frozenset([*history.seeded, *history.passed]) if resumed else frozenset()
        for split in BEFORE:
            unasked = self._checks_alone if split.primes else self.outcome.findings
            if unasked or self._wanted.only not in (None, split):
                continue
            await self._phase(split, self._seed if split.primes else self._check, self.outcome.steps[split])
            if split.primes:
                self._looks.append(await look(self._server))
        await self._end(resumed=resumed)

    async def _flush(self) -> None:
        if self._wanted.flush is False:
            self.note("not flushed, as --no-flush says")
            return
        started = time.monotonic()
        try:
            await self._server.flush(self._wanted.patience)
        except RequestError as failure:
            remedy = "End other requests, wait longer with --flush-timeout, or go on with --no-flush."
            if failure.status == HTTPStatus.NOT_FOUND:
                remedy = self._server.engine.no_flush_page
            place = f"{self._server.url} flush"
            raise unusable(place, failure, expected="an empty cache", remedy=remedy) from failure
        self.outcome.flush.seconds += time.monotonic() - started
        self.outcome.flush.requests += 1
        now = await counters_now(self._server)
        for words in without_counters(now):
            self.note(words)
        self._write("flush", seconds=self.outcome.flush.seconds, counters=kept(now))

    async def _phase(self, split: Split, send: Callable[[Row, Cost], Awaitable[None]], cost: Cost) -> None:
        """Send a split's rows, `concurrency` ranks at a time, until one falls short or fails."""
        started, gate = time.monotonic(), asyncio.Semaphore(self._wanted.concurrency)

        async def one_rank(rank: int) -> None:
            async with gate:
                for row in self._rows(split, rank):
                    if self.outcome.findings or self._failures:
                        return
                    await send(row, cost)

        await asyncio.gather(*(one_rank(rank) for rank in self._wanted.ranks))
        cost.seconds += time.monotonic() - started
        if self._failures:
            raise together(self._failures)

    def _rows(self, split: Split, rank: int) -> Sequence[Row]:
        """Return the rows that are still to be sent.

        If all checks of a rank passed earlier, its first is sent again: it shows whether the rank still holds
        the seeds.
        """
        rows = list(self._workload.rows((split,), (rank,), (self._round,)))
        left = [row for row in rows if row.id not in self._done]
        return rows[:1] if split is Split.CHECK and self._warm and not left else left

    async def _seed(self, row: Row, cost: Cost) -> None:
        result, promised = await self._sent(row, cost), Promised.of(row, self._bound_of(row.request_class))
        # A seed that finds more than planned does no harm, and if it finds less, its check will fall short.
        broken = [f for f in findings_of(promised, result) if not f.promise.startswith("cached")]
        if result.success and (result.cached_tokens or 0) > row.cached_len and not self._before:
            self.note(
                f"{row.id} found {result.cached_tokens} tokens of the server's cache, not {row.cached_len}"
            )
        if broken:
            self._pairs.append(RowSeen(row=promised, results=(result,), cached=result.cached_tokens))
        self._ended(row, result, broken)

    async def _check(self, row: Row, cost: Cost) -> None:
        result, promised = await self._sent(row, cost), Promised.of(row, self._bound_of(row.request_class))
        broken = findings_of(promised, result)
        if row.id in self._before and self._warm:  # the check also finds its own prompt of the earlier run
            most = self._workload.manifest.cache.most_cached(row.prompt_len)
            own = row.cached_len < (result.cached_tokens or 0) <= most
            broken = [f for f in broken if not (own and f.promise == "cached_len")]
        self._pairs.append(RowSeen(row=promised, results=(result,), cached=result.cached_tokens))
        self._ended(row, result, broken)

    async def _sent(self, row: Row, cost: Cost) -> Result:
        """Send a row and return what the server said; a failed request is raised when the split ends."""
        self._write("sent", id=row.id, split=row.split, dp_rank=row.dp_rank)
        started = time.monotonic()
        try:
            reply = await self._server.ask(
                row_prompt(row, self._encoding), max_tokens=row.output_len, dp_rank=row.dp_rank, name=row.id
            )
        except RequestError as failure:
            self._failures.append(unusable(f"{row.id} on rank {row.dp_rank}", failure))
            return Result(place=self._server.url, id=row.id, success=False, error=failure.message)
        except asyncio.CancelledError:
            self._ended(row, Result(place="", id=row.id, success=False, error="interrupted"), [])
            raise
        cost.requests += 1
        cost.computed += (reply.prompt_tokens or 0) - (reply.cached_tokens or 0)
        cost.reused += reply.cached_tokens or 0
        return self._result(row, reply, started)

    def _result(self, row: Row, reply: Reply, started: float) -> Result:
        cached = reply.cached_tokens
        if cached is None and self.outcome.omits_zero and reply.prompt_tokens is not None:
            cached = 0  # the preflight saw this server leave out a 0 and report a hit
        return Result(
            place=self._server.url,
            id=row.id,
            prompt_tokens=reply.prompt_tokens,
            cached_tokens=cached,
            output_tokens=reply.output_tokens,
            start=started,
            first_token=None if reply.first_token is None else started + reply.first_token,
            end=started + reply.end,
            finish_reason=reply.finish_reason,
        )

    def _ended(self, row: Row, result: Result, broken: list[Finding]) -> None:
        self._write(
            "ended",
            id=row.id,
            split=row.split,
            dp_rank=row.dp_rank,
            success=result.success,
            error=result.error,
            prompt_tokens=result.prompt_tokens,
            cached_tokens=result.cached_tokens,
            output_tokens=result.output_tokens,
            ttft=result.ttft,
            seconds=result.latency,
            findings=[{"promise": f.promise, "expected": f.expected, "got": f.got} for f in broken],
        )
        if result.success:
            self.outcome.findings += broken
        self._report(row.id)

    async def _end(self, *, resumed: bool) -> None:
        """Conclude from the rows sent: PREPARED, or the findings and their causes."""
        self._looks.append(await settled(self._server))
        prepared = not self.outcome.findings
        self._write("prepared" if prepared else "stopped", counts=self._looks[-1])
        if prepared:
            self.outcome.prepared = True
            self._say_unproved()
            await self._keep_counters(resumed=resumed)
            return
        only_cached = all(f.promise in ("cached_bound", "cached_len") for f in self.outcome.findings)
        others = set(self._journal.history.seeded.values()) - set(self._wanted.ranks)
        may_start_over = self._wanted.flush is not False and not others and not self._checks_alone
        if resumed and only_cached and self._warm and may_start_over:
            self.outcome.findings.clear()
            short = ", ".join(p.row.id for p in self._pairs)
            raise NotHeldError(f"the server no longer holds the seeds of the last run ({short})")
        self._pairs.sort(key=lambda pair: pair.row.dp_rank)
        self.outcome.diagnosis = causes(
            self._pairs,
            self._workload.manifest.cache,
            seeds=[Promised.of(row) for row in self._workload.rows(PRIMING)],
            answered=self._journal.history.seeded,
            pinned=self._pinned,
            restarted=any(fell(*pair) for pair in pairwise(self._looks)),
        )

    def _say_unproved(self) -> None:
        history, manifest = self._journal.history, self._workload.manifest
        if not history.flushed:
            self.outcome.unproved.append("that the cache was empty before the seeds")
        held = {*history.seeded.values(), *self._wanted.ranks}
        if missing := [rank for rank in manifest.ranks if rank not in held]:
            self.outcome.unproved.append(f"rank {spans(missing)}")

    async def _keep_counters(self, *, resumed: bool) -> None:
        """Write the counters by which a run may be proved, once everything asked for is checked.

        The counters equal what this preparation sent only if it flushed, seeded and checked in one go. A
        resumed preparation sent preflight prompts in between, and a later round follows earlier rounds' rows.
        """
        if self._wanted.only == "seed" or self._journal.history.counters is None:
            return
        path, strange = write_before(
            await counters_now(self._server),
            self._journal.history,
            set_sha256=self._workload.manifest.spec_sha256,
            beside=self._journal.path.parent,
        )
        self.outcome.counters = str(path)
        if not strange:
            return
        self.note(f"{path.name} proves no run: {'; '.join(strange)}")
        if not resumed and self._wanted.round is None:
            self.outcome.unproved.append("that nothing but its seeds and checks was served since the flush")

    def note(self, note: str) -> None:
        """Keep a remark for the summary, unless it is there already."""
        if note not in self.outcome.notes:
            self.outcome.notes.append(note)

    def _write(self, event: str, **fields: object) -> None:
        self._journal.write({"event": event, "time": datetime.now(UTC).isoformat(), **fields})
