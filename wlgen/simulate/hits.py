"""Figures of replayed requests: by split, by rank, and against the bound."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace

import numpy as np

from wlgen.cache.ranks import Replayed
from wlgen.workload.splits import PRIMING


@dataclass(frozen=True, slots=True, kw_only=True)
class HitFigures:
    """Cached ratios of some requests: the least, the 1 % and 50 % points, the mean, and all tokens together.

    The 1 % point of 640 requests is the ratio of the request number 6 from the least, counted from 0.
    least_len: the least cached_len, in tokens.
    """

    requests: int
    least: float
    p1: float
    p50: float
    mean: float
    aggregate: float
    least_len: int
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Requests of a pass outside their bound: how many, and the first one with the limits of its bound."""

    count: int
    id: str
    dp_rank: int
    prompt_len: int
    cached_len: int
    least: int
    most: int


class Hits:
    """Cached and prompt tokens of some requests, to be summed up."""

    def __init__(self) -> None:
        self._cached = array("q")
        self._prompt = array("q")

    def add(self, cached_len: int, prompt_len: int) -> None:
        """Add one request."""
        self._cached.append(cached_len)
        self._prompt.append(prompt_len)

    def figures(self) -> HitFigures:
        """Return the figures of what was added, at least one request."""
        cached, prompt = np.asarray(self._cached), np.asarray(self._prompt)
        ratios = np.sort(cached / prompt)
        p1, p50 = (float(ratios[int(share * (len(ratios) - 1))]) for share in (0.01, 0.5))
        return HitFigures(
            requests=len(ratios),
            least=float(ratios[0]),
            p1=p1,
            p50=p50,
            mean=float(ratios.mean()),
            aggregate=int(cached.sum()) / int(prompt.sum()),
            least_len=int(cached.min()),
            prompt_tokens=int(prompt.sum()),
            cached_tokens=int(cached.sum()),
        )


class Pass:
    """The requests of one pass, in replay order."""

    def __init__(self) -> None:
        self.splits: dict[str, Hits] = {}
        self.ranks: dict[int, Hits] = {}
        self.outside: Outside | None = None
        self.unpromised = 0  # requests whose cached_len is not what the set promises

    def add(self, hit: Replayed) -> None:
        """Add one request; modifies the figures of its split and rank."""
        self.splits.setdefault(hit.split, Hits()).add(hit.cached_len, hit.prompt_len)
        if hit.split not in PRIMING:
            self.ranks.setdefault(hit.dp_rank, Hits()).add(hit.cached_len, hit.prompt_len)
        self.unpromised += hit.promised is not None and not _within(hit.promised, hit.cached_len)
        if hit.bound is not None and not _within(hit.bound, hit.cached_len):
            self._add_outside(hit, *hit.bound)

    def _add_outside(self, hit: Replayed, least: int, most: int) -> None:
        if self.outside:
            self.outside = replace(self.outside, count=self.outside.count + 1)
            return
        self.outside = Outside(
            count=1,
            id=hit.id,
            dp_rank=hit.dp_rank,
            prompt_len=hit.prompt_len,
            cached_len=hit.cached_len,
            least=least,
            most=most,
        )


def _within(limits: tuple[int, int], tokens: int) -> bool:
    return limits[0] <= tokens <= limits[1]
