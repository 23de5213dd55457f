"""A run replayed: each request through its rank's cache, exactly as the rule's own cache says.

Made-up ids stand for the streams of a chain, so two prompts share ids exactly as far as their chains do.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from wlgen.cache.made_up import INNER, NO_TEXT, OUTPUT, MadeUp
from wlgen.cache.rule import Ids, Match, PrefixCache
from wlgen.engines import new_cache
from wlgen.faults import Asked, Figure, Run


def replay(
    run: Run, ranks: Collection[int] | None = None, *, first: Mapping[int, int] | None = None
) -> Iterator[tuple[Asked, int]]:
    """Yield each request of some ranks with the cached tokens that the server finds, rank by rank.

    ranks: None for all. first: a weight of some ranks, the heaviest of which come first. A rank's requests
    come in the order in which they were served.
    """
    made_up = MadeUp()
    met = {asked.rank for asked in run.asked if ranks is None or asked.rank in ranks}
    for rank in sorted(met, key=lambda rank: (-(first or {}).get(rank, 0), rank)):
        requests = ((place, asked) for place, asked in enumerate(run.asked) if asked.rank == rank)
        yield from _OneRank(run, rank, made_up).replay(requests)


class _OneRank:
    """The cache of one rank, from empty to the end of the run."""

    def __init__(self, run: Run, rank: int, made_up: MadeUp) -> None:
        self._run = run
        self._cache: PrefixCache = new_cache(run.rule, run.capacity)
        self._made_up = made_up
        self._flushes = sorted({place for place, of in run.flushes if of in (None, rank)})

    def replay(self, requests: Iterable[tuple[int, Asked]]) -> Iterator[tuple[Asked, int]]:
        if self._run.overlapping:
            yield from self._by_times(requests)
            return
        together: list[tuple[Asked, Match]] = []
        for place, asked in requests:
            if self._empty_before(place):
                together.clear()
            measured = asked.row is not None
            if not measured or len(together) >= self._run.in_flight:
                self._end(together)
            match = self._cache.match(self._ids(asked))
            together.append((asked, match))
            if not measured:
                self._end(together)
            yield asked, match.cached_len
        self._end(together)

    def _by_times(self, requests: Iterable[tuple[int, Asked]]) -> Iterator[tuple[Asked, int]]:
        """Let each request find what had ended when it started."""
        running: list[tuple[float, int, Asked, Match]] = []
        for place, asked in requests:
            if self._empty_before(place):
                running.clear()
            while running and (asked.start is None or running[0][0] <= asked.start):
                _, _, ended, match = heapq.heappop(running)
                self._end([(ended, match)])
            match = self._cache.match(self._ids(asked))
            if asked.end is None:
                self._end([(asked, match)])
            else:
                heapq.heappush(running, (asked.end, place, asked, match))
            yield asked, match.cached_len

    def _empty_before(self, place: int) -> bool:
        due = bool(self._flushes) and self._flushes[0] <= place
        while self._flushes and self._flushes[0] <= place:
            self._flushes.pop(0)
        if due:
            self._cache = new_cache(self._run.rule, self._run.capacity)
        return due

    def _end(self, together: list[tuple[Asked, Match]]) -> None:
        for asked, match in together:
            if asked.keeps:
                self._cache.insert(match, self._answer(asked))
        together.clear()

    def _answer(self, asked: Asked) -> Ids:
        plain = self._run.capacity is None and not self._run.rule.hybrid
        if plain or asked.output_len == 1:  # an answer that no prompt repeats takes room and nothing else
            return NO_TEXT  # a hybrid model keeps its state behind the answer, and frees what lies before
        answer = np.full(asked.output_len, OUTPUT, dtype=np.uint32)
        answer[0] = self._made_up.first(("answer", asked.row, asked.chain[-1]))
        return answer

    def _ids(self, asked: Asked) -> Ids:
        ids = np.full(asked.prompt_len, INNER, dtype=np.uint32)
        at = 0
        for stream, tokens in asked.chain:
            if at < asked.prompt_len and tokens:
                ids[at] = self._made_up.first(stream)
            at += tokens
        return ids


def figures(
    run: Run, ranks: Collection[int] | None = None, *, first: Mapping[int, int] | None = None
) -> Iterator[tuple[int, frozenset[Figure]]]:
    """Yield (row number, what the client may have been told) of the rows of some ranks, as in `replay`.

    Where requests of a rank overlapped, a row found what the others had computed by then, or did not yet.
    """
    if run.overlapping:
        one_by_one = dict(figures(replace(run, overlapping=False), ranks))
        for number, told in _told(run, ranks, first):
            yield number, told | one_by_one[number]
    else:
        yield from _told(run, ranks, first)


def _told(
    run: Run, ranks: Collection[int] | None, first: Mapping[int, int] | None
) -> Iterator[tuple[int, frozenset[Figure]]]:
    alone: dict[int, frozenset[Figure]] = {}  # one object for each figure: a run has few of them
    for asked, cached in replay(run, ranks, first=first):
        if asked.row is not None:
            if run.reported is not None:
                yield asked.row, run.reported(asked, cached)
            else:
                yield asked.row, alone.setdefault(cached, frozenset({cached}))
