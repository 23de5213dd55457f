"""Figures of replayed requests: by split, by rank, and against the bound."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wlgen.simulate import Replayed


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Cached ratios of some requests: the least, 1 % and 50 % points, the mean, and all tokens together.

    A point is the greatest ratio that no more than that share of the requests lies below.
    least_len: the least cached_len, tokens.
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
    """Requests of a pass outside the bound: how many, and the first, with what it had to find cached."""

    count: int
    id: str
    dp_rank: int
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

    def figures(self) -> Figures:
        """Return the figures of what was added, at least one request."""
        cached, prompt = np.asarray(self._cached), np.asarray(self._prompt)
        ratios = np.sort(cached / prompt)
        p1, p50 = (float(ratios[int(share * (len(ratios) - 1))]) for share in (0.01, 0.5))
        return Figures(
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
    """The requests of one pass, in replay order.

    bound: (split, prompt_len) -> the least and most cached tokens that are right; None for no bound.
    """

    def __init__(self, bound: Callable[[str, int], tuple[int, int] | None]) -> None:
        self.splits: dict[str, Hits] = {}
        self.ranks: dict[int, Hits] = {}
        self.outside: Outside | None = None
        self.unpromised = 0  # requests whose cached_len is not what the set promises
        self._bound = bound

    def add(self, hit: Replayed) -> None:
        """Add one request; modifies the figures of its split and rank."""
        self.splits.setdefault(hit.split, Hits()).add(hit.cached_len, hit.prompt_len)
        if hit.split != "seed":
            self.ranks.setdefault(hit.dp_rank, Hits()).add(hit.cached_len, hit.prompt_len)
        self.unpromised += hit.promised is not None and hit.promised != hit.cached_len
        limits = self._bound(hit.split, hit.prompt_len)
        if limits and not limits[0] <= hit.cached_len <= limits[1]:
            self._add_outside(hit, *limits)

    def _add_outside(self, hit: Replayed, least: int, most: int) -> None:
        first = self.outside
        self.outside = Outside(
            count=first.count + 1 if first else 1,
            id=first.id if first else hit.id,
            dp_rank=first.dp_rank if first else hit.dp_rank,
            cached_len=first.cached_len if first else hit.cached_len,
            least=first.least if first else least,
            most=first.most if first else most,
        )
