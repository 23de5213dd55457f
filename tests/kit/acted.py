"""Runs with a known fault, acted by hand on token ids: nothing here knows the faults of wlgen.

A run is a list of requests (row, rank, ids). Each fault changes what is sent or what the cache is, the way it
happens on a server, and caches by brute force (kit/naive.py) say what each request finds. Only a cache that
is too small is one of wlgen's, since what it evicts first is the engine's own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from kit.naive import naive
from kit.shaped import plan_of

from wlgen.audit.as_seen import RowSeen, Scene
from wlgen.audit.findings import Promised
from wlgen.audit.sending import overlap
from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.engines import cache_rule, new_cache
from wlgen.plan.chains import chain
from wlgen.readers import Result
from wlgen.workload.splits import PRIMING, SPLITS

INSIDE = 1 << 13  # tokens of a stream that have ids of their own
_NEXT = iter(range(1 << 31, 1 << 32, 1 << 12))


def _answer(outputs: int) -> Any:
    return np.arange(outputs, dtype=np.uint32) + np.uint32(next(_NEXT))


@dataclass
class Sent:
    """A request on its way to a cache. row: its number among the formal rows, None for seeds and checks."""

    row: int | None
    rank: Any
    ids: Any
    outputs: int = 1
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
        early = [Sent(None, row.dp_rank, self.ids(row), row.output_len) for row in self.before]
        formal = ((n, row.dp_rank, self.ids(row), row.output_len) for n, row in enumerate(self.rows))
        return [*early, *(Sent(*each) for each in formal)]

    def serve(
        self,
        sent: Sequence[Sent],
        *,
        rule: CacheRule | None = None,
        capacity: int | None = None,
        flight: int = 1,
    ) -> dict[int, int]:
        """Send requests and return what each formal row found; `flight` requests of all ranks at a time."""
        caches: dict[Any, Any] = {}
        found: dict[int, int] = {}
        together: list[tuple[Any, Any, int]] = []
        begun = 0

        def end() -> None:
            for cache, match, outputs in together:
                if cache is not None:
                    cache.insert(match, outputs if capacity is None else _answer(outputs))
            together.clear()

        for each in sent:
            if each.row is None or begun % flight == 0:
                end()
            begun += each.row is not None
            for rank in each.flush_before:  # what runs goes on, and leaves nothing
                together[:] = [(None if cache is caches.get(rank) else cache, *m) for cache, *m in together]
                caches.pop(rank, None)
            cache = caches.get(each.rank)
            if cache is None:
                cache = naive(rule or self.rule) if capacity is None else new_cache(self.rule, capacity)
                caches[each.rank] = cache
            match = cache.match(each.ids)
            together.append((cache if each.keeps else None, match, each.outputs))
            if each.row is not None:
                found[each.row] = match.hit if capacity is None else match.cached_len
        return found

    def results(
        self, found: dict[int, int | None], *, flight: int = 1, order: Sequence[int] = ()
    ) -> list[Result | None]:
        """Return a good result of each row with these cached tokens; order: the rows as they were sent."""
        turn = {n: place for place, n in enumerate(order or range(len(self.rows)))}
        return [
            Result(
                place=f"run.jsonl:{n + 1}",
                id=row.id,
                text_sha256=row.id,
                prompt_tokens=row.prompt_len,
                cached_tokens=found[n],
                output_tokens=row.output_len,
                start=float(turn[n] // flight) + turn[n] % flight / 1000,
                end=float(turn[n] // flight) + 0.9,
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
            together=overlap((row, result) for row, result in zip(promised, results, strict=True) if result),
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


Acted = Iterator[tuple[str, list[Result | None], tuple[int, ...]]]


class Acting:
    """A world in which one thing after another goes wrong; `flight` requests of all ranks run at a time."""

    def __init__(self, world: World, flight: int) -> None:
        self.world, self.flight = world, flight
        self.rows, self.before, self.rule = world.rows, world.before, world.rule
        self.ranks = world.plan.spec.dp_ranks
        self.half, self.last = len(self.rows) // 2, self.ranks - 1
        self.groups = sorted({row.group for row in self.rows})
        self.every = (*self.before, *self.rows)

    def run(self, sent: Sequence[Sent], **how: Any) -> list[Result | None]:
        order = [each.row for each in sent if each.row is not None]
        how = {"flight": self.flight} | how
        return self.world.results(self.world.serve(sent, **how), flight=how["flight"], order=order)

    def apart(self) -> tuple[list[Sent], list[Sent]]:
        """Return what is sent before the formal rows, and the formal rows."""
        sent = self.world.sent()
        return sent[: len(self.before)], sent[len(self.before) :]

    def figures(self, of: Callable[[int, Any], int | None]) -> list[Result | None]:
        """Return a clean run of which each figure is told as `of` says."""
        clean = self.world.serve(self.world.sent(), flight=self.flight)
        return self.world.results({n: of(clean[n], r) for n, r in enumerate(self.rows)}, flight=self.flight)

    def rows_of(self, rank: int) -> list[int]:
        return [n for n, row in enumerate(self.rows) if row.dp_rank == rank]

    def seeding(self) -> Acted:
        def without(lacking: Callable[[Any], bool]) -> list[Sent]:
            sent = zip(self.world.sent(), self.every, strict=True)
            return [s for s, row in sent if s.row is not None or not lacking(row)]

        yield "rank_not_seeded", self.run(without(lambda row: row.dp_rank == self.last)), ()
        if len(self.groups) > 1:
            yield "group_not_seeded", self.run(without(lambda row: row.group == self.groups[-1])), ()
        if self.rule.hybrid:
            sent = self.world.sent()
            for s, row in zip(sent, self.every, strict=True):
                if row.split in PRIMING:
                    longest = max(r.prompt_len for r in self.rows if r.group == row.group)
                    s.ids = self.world.ids(row, longest)
            unchecked = [
                s
                for s, row in zip(sent, self.every, strict=True)
                if s.row is not None or row.split in PRIMING
            ]
            yield "full_length_seed", self.run(unchecked), ()

    def emptied(self) -> Acted:
        def flushed() -> list[Sent]:
            sent = self.world.sent()
            sent[len(self.before) + self.half].flush_before = tuple(range(self.ranks))
            return sent

        yield "flushed", self.run(flushed()), ()
        restarted = self.run(flushed())
        cut = {"success": False, "error": "connection reset by peer"}
        restarted[self.half - 1] = replace(restarted[self.half - 1], **cut)
        yield "restarted", restarted, ()
        yield "lost_cache", self.run([replace(s, keeps=s.rank != self.last) for s in self.world.sent()]), ()
        yield "lost_cache", self.run([replace(s, keeps=False) for s in self.world.sent()]), ()
        later = [
            replace(s, keeps=n < len(self.before) + self.half, flush_before=s.flush_before)
            for n, s in enumerate(flushed())
        ]
        yield "lost_cache", self.run(later), ()
        if len(self.groups) > 1:
            rows = zip(self.world.sent(), self.every, strict=True)
            yield "lost_cache", self.run([replace(s, keeps=r.group != self.groups[0]) for s, r in rows]), ()

    def repeated(self) -> Acted:
        early, formal = self.apart()
        parts = (
            ("sent_twice", formal),
            ("sent_twice", formal[: max(2, self.half)]),
            ("row_sent_before", [formal[self.half]]),
            ("warmup_row_0", [formal[0]]),
        )
        for name, part in parts:
            yield name, self.run([*early, *(replace(s, row=None) for s in part), *formal]), ()

    def ordered(self) -> Acted:
        early, formal = self.apart()
        for order in (formal[::-1], [*formal[1::2], *formal[::2]]):
            yield "other_order", self.run([*early, *order]), ()
        if self.flight == 1:
            for flight in (2, 4, len(self.rows)):
                yield "in_flight", self.run([*early, *formal], flight=flight), ()
        yield "clean" if self.flight == 1 else "in_flight", self.run([*early, *formal]), ()

    def routed(self) -> Acted:
        early, formal = self.apart()
        if self.ranks > 1:
            turned = [*early, *(replace(s, rank=(s.row + 1) % self.ranks) for s in formal)]
            yield "unpinned", self.run(turned), ()
            served = self.run(turned)
            told = [replace(r, dp_rank=(n + 1) % self.ranks) for n, r in enumerate(served)]
            yield "unpinned", told, ()
            anywhere = [*early, *(replace(s, rank=hash((s.row, 7)) % self.ranks) for s in formal)]
            yield "unpinned", self.run(anywhere), ()
            yield "one_rank_serves_all", self.run([*early, *(replace(s, rank=0) for s in formal)]), ()
            refused = {"success": False, "error": "HTTP 400"}
            good = zip(self.run(self.world.sent()), self.rows, strict=True)
            fewer = [r if row.dp_rank < self.last else replace(r, **refused) for r, row in good]
            yield "no_such_rank", fewer, ()
        for caches in (2, 3):
            turns: dict[int, int] = {}
            sent = self.world.sent()
            for s in sent:
                turns[s.rank] = turn = turns.get(s.rank, -1) + 1
                s.rank = (s.rank, turn % caches)
            yield "more_caches_than_ranks", self.run(sent), ()

    def ruled(self) -> Acted:
        rule, quantum = self.rule, self.rule.hit_quantum
        others: list[tuple[str, dict[str, Any]]] = [
            ("hit_quantum", {"hit_quantum": quantum * 2}),
            ("speculative", {"speculative": not rule.speculative}),
        ]
        windows = (rule.page_size * 2, rule.page_size * 8)
        others += [("sliding_window", {"sliding_window": w}) for w in windows if w != rule.sliding_window]
        others += [] if rule.hybrid else [("state_at_ends", {"sliding_window": 1})]
        for name, numbers in others:
            changed = cache_rule(RuleNumbers(**rule.numbers | numbers))
            yield name, self.run(self.world.sent(), rule=changed), ()
        longest = max(len(s.ids) for s in self.world.sent()) + 64
        for factor in (1.3, 2.5, 4):
            yield "capacity", self.run(self.world.sent(), capacity=int(longest * factor)), ()
        for tokens in (quantum, 3 * quantum + 40):
            front = np.arange(tokens, dtype=np.uint32) + np.uint32(1 << 30)
            sent = [replace(s, ids=np.concatenate((s.ids[:1], front, s.ids[1:]))) for s in self.world.sent()]
            yield "preamble", [replace(r, prompt_tokens=None) for r in self.run(sent)], ()
            longer = [replace(r, prompt_tokens=r.prompt_tokens + tokens) for r in self.run(sent)]
            yield "framing", longer, ()

    def told(self) -> Acted:
        yield "decode_figure", self.figures(lambda _, row: row.prompt_len), ()
        yield "doubled_figure", self.figures(lambda cached, _: 2 * cached), ()
        yield "not_observed", self.figures(lambda *_: None), ()
        yield "not_observed", self.figures(lambda cached, _: cached or None), ()
        yield "not_observed", self.figures(lambda cached, row: cached if row.dp_rank % 2 else None), ()
        good = list(enumerate(self.run(self.world.sent())))
        thinking = [replace(r, prompt_tokens=r.prompt_tokens + 79, cached_tokens=0) for _, r in good]
        yield "framing", thinking, ()
        parts: tuple[tuple[str, int, dict[str, Any]], ...] = (
            ("refused", 3, {"success": False, "error": "HTTP 503"}),
            ("cut", 4, {"success": False, "error": "the stream was cut"}),
            ("edited_text", 2, {"text_sha256": "other"}),
            ("stopped_early", 2, {"output_tokens": 1}),
        )
        for name, each, changes in parts:
            yield name, [replace(r, **changes) if n % each == 1 else r for n, r in good], ()
        if self.ranks > 1:  # the clients of the ranks run one after another, four requests of each at a time
            place = {r: n for rank in range(self.ranks) for n, r in enumerate(self.rows_of(rank))}
            late = [
                replace(r, start=rank * 1e3 + place[n] // 4, end=rank * 1e3 + place[n] // 4 + 0.9)
                for (n, r), rank in ((each, self.rows[each[0]].dp_rank) for each in good)
            ]
            yield "ranks_apart", late, ()
        other = {"text_sha256": "other", "cached_tokens": 0}
        yield "other_set", [replace(r, prompt_tokens=900 + 13 * n, **other) for n, r in good], ()
        yield "run_cut", [r if n < self.half else None for n, r in good], ()
        yield "doubled_rows", [r for _, r in good], tuple(range(self.half, len(self.rows)))


def faults(world: World, flight: int) -> Acted:
    """Yield (the name of a fault, the results of a run with it, rows that have two results)."""
    acting = Acting(world, flight)
    yield from acting.ordered()
    yield from acting.seeding()
    yield from acting.emptied()
    yield from acting.repeated()
    yield from acting.routed()
    yield from acting.ruled()
    yield from acting.told()
