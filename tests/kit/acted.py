"""Runs with a known fault, acted by hand on token ids: nothing here knows the faults of wlgen.

A run is a list of requests (row, rank, ids). Each fault changes what is sent or what the cache is, the way it
happens on a server, and the caches of `wlgen.cache` say what each request finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from kit.shaped import plan_of

from wlgen.audit.as_seen import RowSeen, Scene
from wlgen.audit.findings import Promised
from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.engines import cache_rule, new_cache
from wlgen.plan.chains import chain
from wlgen.readers import Result
from wlgen.workload.splits import PRIMING, SPLITS

INSIDE = 1 << 13  # tokens of a stream that have ids of their own


@dataclass
class Sent:
    """A request on its way to a cache. row: its number among the formal rows, None for seeds and checks."""

    row: int | None
    rank: int
    ids: Any
    keeps: bool = True
    flush_before: tuple[int, ...] = ()


@dataclass
class World:
    """A planned set and its ids, made anew for each run."""

    plan: Any
    rule: CacheRule
    rows: list[Any]
    before: list[Any]
    streams: dict[Any, int]

    @classmethod
    def of(cls, **spec: Any) -> World:
        plan = plan_of(**spec)
        ranks = range(plan.spec.dp_ranks)
        every = {s: {r: list(plan.rows(s, r)) for r in ranks} for s in SPLITS}
        in_turn = {s: _in_turn(list(by_rank.values())) for s, by_rank in every.items()}
        before = [row for s in SPLITS if not s.measured for row in in_turn[s]]
        formal = [row for s in SPLITS if s.measured for row in in_turn[s]]
        return cls(plan=plan, rule=plan.spec.cache, rows=formal, before=before, streams={})

    def ids(self, row: Any, length: int | None = None) -> Any:
        """Return a row's ids; a longer prompt goes on with its own part."""
        parts = []
        for stream, tokens in chain(self.plan, row):
            number = self.streams.setdefault(stream, len(self.streams))
            parts.append(np.arange(tokens, dtype=np.uint32) + np.uint32(number * INSIDE))
        ids = np.concatenate(parts)
        if length is not None and length > len(ids):
            number = self.streams.setdefault(("longer", row.id), len(self.streams))
            more = np.arange(length - len(ids), dtype=np.uint32) + np.uint32(number * INSIDE)
            ids = np.concatenate([ids[: row.shared_len + 1], more, ids[row.shared_len + 1 :]])
        return ids

    def sent(self) -> list[Sent]:
        """Return the requests of a run in which nothing goes wrong."""
        early = [Sent(None, row.dp_rank, self.ids(row)) for row in self.before]
        return [*early, *(Sent(n, row.dp_rank, self.ids(row)) for n, row in enumerate(self.rows))]

    def serve(
        self, sent: list[Sent], *, rule: CacheRule | None = None, capacity: int | None = None, flight: int = 1
    ) -> dict[int, int]:
        """Send requests and return what each formal row found; `flight` requests of all ranks at a time."""
        caches: dict[int, Any] = {}
        found: dict[int, int] = {}
        together: list[tuple[Any, Any]] = []

        def end() -> None:
            for cache, match in together:
                if cache is not None:
                    cache.insert(match, np.array([(1 << 32) - 1], dtype=np.uint32))
            together.clear()

        for each in sent:
            if each.row is not None and each.row % flight == 0:
                end()
            for rank in each.flush_before:  # what runs goes on, and leaves nothing
                together[:] = [(None if cache is caches.get(rank) else cache, m) for cache, m in together]
                caches.pop(rank, None)
            cache = caches.get(each.rank)
            if cache is None:
                cache = caches[each.rank] = new_cache(rule or self.rule, capacity)
            match = cache.match(each.ids)
            together.append((cache if each.keeps else None, match))
            if each.row is not None:
                found[each.row] = match.cached_len
            if each.row is None:
                end()
        return found

    def results(self, found: dict[int, int | None], *, flight: int = 1) -> list[Result | None]:
        """Return a good result of each row with these cached tokens, at the times of its run."""
        return [
            Result(
                place=f"run.jsonl:{n + 1}",
                id=row.id,
                text_sha256=row.id,
                prompt_tokens=row.prompt_len,
                cached_tokens=found[n],
                output_tokens=row.output_len,
                start=float(n // flight) + n % flight / 1000,
                end=float(n // flight) + 0.9,
            )
            for n, row in enumerate(self.rows)
        ]

    def scene(self, results: list[Result | None], twice: tuple[int, ...] = ()) -> Scene:
        """Return what an audit sees of the run."""
        promised = [self._promised(row) for row in self.rows]
        audited = []
        for n, (row, result) in enumerate(zip(promised, results, strict=True)):
            found = () if result is None else (result, result) if n in twice else (result,)
            audited.append(RowSeen(row=row, results=found, cached=result.cached_tokens if result else None))
        rows = {row.id: row for row in (*self.before, *self.rows)}
        return Scene(
            rule=self.rule,
            audited=audited,
            before=[self._promised(row) for row in self.before],
            chains=lambda: {name: chain(self.plan, row) for name, row in rows.items()},
            ranks=tuple(range(self.plan.spec.dp_ranks)),
        )

    def _promised(self, row: Any) -> Promised:
        names = (
            "id",
            "split",
            "dp_rank",
            "group",
            "prompt_len",
            "shared_len",
            "cached_len",
            "output_len",
            "round",
        )
        return Promised(**{name: getattr(row, name) for name in names}, text_sha256=row.id, bound=row.bound)


def _in_turn(by_rank: list[list[Any]]) -> list[Any]:
    most = max(map(len, by_rank), default=0)
    return [rows[n] for n in range(most) for rows in by_rank if n < len(rows)]


def _seeds(world: World, lacking: Callable[[Any], bool]) -> list[Sent]:
    """Return a run without the seeds and checks of which this holds."""
    sent = world.sent()
    return [
        s
        for s, row in zip(sent, (*world.before, *world.rows), strict=True)
        if s.row is not None or not lacking(row)
    ]


Acted = Iterator[tuple[str, list[Result | None], tuple[int, ...]]]


def faults(world: World, flight: int) -> Acted:  # noqa: C901, PLR0915 (a list of faults, one after another)
    """Yield (the name of a fault, the results of a run with it, rows that have two results)."""
    rows, rule, ranks = world.rows, world.rule, world.plan.spec.dp_ranks
    half, last = len(rows) // 2, ranks - 1
    groups = sorted({row.group for row in rows})

    def run(sent: list[Sent], **how: Any) -> list[Result | None]:
        return world.results(world.serve(sent, flight=flight, **how), flight=flight)

    def figures(of: Callable[[int, Any], int | None]) -> list[Result | None]:
        clean = world.serve(world.sent(), flight=flight)
        return world.results({n: of(clean[n], row) for n, row in enumerate(rows)}, flight=flight)

    yield "clean", run(world.sent()), ()
    yield "rank_not_seeded", run(_seeds(world, lambda row: row.dp_rank == last)), ()
    if len(groups) > 1:
        yield "group_not_seeded", run(_seeds(world, lambda row: row.group == groups[-1])), ()
        sent = world.sent()
        for s, row in zip(sent, (*world.before, *rows), strict=True):
            s.keeps = row.group != groups[0]
        yield "lost_cache", run(sent), ()
    sent = world.sent()
    sent[len(world.before) + half].flush_before = tuple(range(ranks))
    yield "flushed", run(sent), ()
    sent = world.sent()
    sent[len(world.before) + half].flush_before = tuple(range(ranks))
    restarted = run(sent)
    restarted[half - 1] = replace(restarted[half - 1], success=False, error="connection reset by peer")
    yield "restarted", restarted, ()
    sent = [replace(s, keeps=s.rank != last) for s in world.sent()]
    yield "lost_cache", run(sent), ()
    sent = [replace(s, keeps=False) for s in world.sent()]
    yield "lost_cache", run(sent), ()
    sent = world.sent()
    for n, s in enumerate(sent):
        s.keeps = n < len(world.before) + half
    sent[len(world.before) + half].flush_before = tuple(range(ranks))
    yield "lost_cache", run(sent), ()
    if rule.hybrid:
        sent = world.sent()
        for s, row in zip(sent, (*world.before, *rows), strict=True):
            if row.split in PRIMING:
                s.ids = world.ids(row, max(r.prompt_len for r in rows if r.group == row.group))
        yield "full_length_seed", run(sent), ()
    again = [replace(s, row=None) for s in world.sent()[len(world.before) :]]
    sent = world.sent()
    yield "sent_twice", run([*sent[: len(world.before)], *again, *sent[len(world.before) :]]), ()
    some = [replace(s, row=None) for s in world.sent()[len(world.before) :][: max(2, half)]]
    yield "sent_twice", run([*sent[: len(world.before)], *some, *sent[len(world.before) :]]), ()
    one = [replace(world.sent()[len(world.before) + half], row=None)]
    yield "row_sent_before", run([*sent[: len(world.before)], *one, *sent[len(world.before) :]]), ()
    first = [replace(world.sent()[len(world.before)], row=None)]
    yield "warmup_row_0", run([*sent[: len(world.before)], *first, *sent[len(world.before) :]]), ()
    if ranks > 1:
        turned = [replace(s, rank=(s.row + 1) % ranks) if s.row is not None else s for s in world.sent()]
        yield "unpinned", run(turned), ()
        yield (
            "one_rank_serves_all",
            run([replace(s, rank=0 if s.row is not None else s.rank) for s in world.sent()]),
            (),
        )
        served = run(turned)
        for n, result in enumerate(served):
            served[n] = replace(result, dp_rank=(n + 1) % ranks)
        yield "unpinned", served, ()
        refused = [
            r if row.dp_rank < last else replace(r, success=False, error="HTTP 400")
            for r, row in zip(run(world.sent()), rows, strict=True)
        ]
        yield "no_such_rank", refused, ()
    for numbers in ({"hit_quantum": rule.hit_quantum * 2}, {"speculative": not rule.speculative}):
        name = "hit_quantum" if "hit_quantum" in numbers else "speculative"
        changed = cache_rule(RuleNumbers(**rule.numbers | numbers))
        yield name, run(world.sent(), rule=changed), ()
    yield "decode_figure", figures(lambda _, row: row.prompt_len), ()
    yield "doubled_figure", figures(lambda cached, _: 2 * cached), ()
    yield "not_observed", figures(lambda *_: None), ()
    good = run(world.sent())
    yield "framing", [replace(r, prompt_tokens=r.prompt_tokens + 79, cached_tokens=0) for r in good], ()
    yield (
        "refused",
        [replace(r, success=False, error="HTTP 503") if n % 3 == 1 else r for n, r in enumerate(good)],
        (),
    )
    yield (
        "cut",
        [
            replace(r, success=False, error="the stream was cut") if n % 4 == 1 else r
            for n, r in enumerate(good)
        ],
        (),
    )
    yield "run_cut", [r if n < half else None for n, r in enumerate(good)], ()
    yield "doubled_rows", good, tuple(range(half, len(rows)))
    yield "edited_text", [replace(r, text_sha256="other") if n % 2 else r for n, r in enumerate(good)], ()
    yield "stopped_early", [replace(r, output_tokens=1) if n % 2 else r for n, r in enumerate(good)], ()
