"""Faults: what can go wrong in a run; one file a family of them, found by its name.

A file holds FAULTS, a tuple of `Fault`. A fault proposes parameters from the rows that deviate, says what a
run is like when it acts with them, and has its words and its remedy. An audit (audit/explain.py) tries every
proposal and names those that explain what was seen; `wlgen simulate --fault` predicts with the same code.

A fault acts in one of two ways. It may change the run itself, which is then replayed through the rule's
caches: which requests reach which cache, in which order, what is kept, what is reported. Or it says at once
what it does to each row: 503s make rows fail, a second sending doubles their results.

What other rooms import of it, beside the names below:
_asked   a fault that a person asks for
_replay  a run replayed through the rule's caches, rank by rank
_names   every fault, by its name
_words   what several faults say, and what each framing costs in tokens
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

from wlgen.cache.rule import CacheRule

Chain: TypeAlias = tuple[tuple[object, int], ...]
"""A prompt as runs of tokens, (stream, tokens): prompts share what begins with the same runs."""


class After(NamedTuple):
    """What is left of a stream where a fault puts other tokens in place of its first ones."""

    stream: object


Aspect: TypeAlias = Literal[
    "cached", "prompt", "output", "absent", "failed", "missing", "doubled", "text", "late", "apart", "rank"
]
Parameters: TypeAlias = Mapping[str, Any]
Figure: TypeAlias = int | None  # cached tokens as they are reported; None where nothing is


class Asked(NamedTuple):
    """One request of a run, in the order in which it reaches the server. Lengths are tokens.

    row: the number of the audited row, None for a request that no audited row stands for, such as a seed.
    rank: the cache that it reaches. served: the rank that its answer names, None where it names none. keeps:
    whether its prompt stays in the cache. start, end: seconds, None where nobody kept them.
    """

    row: int | None
    id: str
    chain: Chain
    prompt_len: int
    output_len: int
    rank: int
    group: str
    split: str
    keeps: bool = True
    served: int | None = None
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that can be replayed: requests in the order served, and the caches that they meet.

    flushes: places in `asked` before which the cache of a rank is emptied, (place, rank), rank None for all.
    capacity: tokens that a rank's cache holds, None for no limit. overlapping: requests of a rank ran at
    once, and one finds what was complete when it started; without it each ends before the next begins.
    in_flight: so many requests of a rank are admitted together. reported: what the client is told where the
    server found so many cached tokens; the figures of which one is right where nobody can know.
    """

    rule: CacheRule
    asked: tuple[Asked, ...]
    flushes: frozenset[tuple[int, int | None]] = frozenset()
    capacity: int | None = None
    overlapping: bool = False
    in_flight: int = 1
    reported: Callable[[Asked, int], frozenset[Figure]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRow:
    """What was seen of one audited row beside what was planned. Lengths are tokens.

    planned: cached tokens; also_planned: those of a turn whose server reused its own answers. most_planned:
    the most of a row that is bounded from above, which may find fewer. results: how many results it has.
    served_by: the rank that its answer names. text_changed: the client sent another text. late: seconds off
    its planned time, early below 0; 0 within the limit. apart: it ran while another rank did not, and the
    ranks should have run together. files: where its results stand, if it has several.
    deviates: in which respects the row differs from its plan.
    """

    number: int
    id: str
    group: str
    rank: int
    planned: int
    also_planned: int | None
    most_planned: int | None
    prompt_len: int
    output_len: int
    results: int
    success: bool
    error: str
    cached: int | None
    prompt: int | None
    output: int | None
    served_by: int | None
    text_changed: bool
    late: float = 0.0
    apart: bool = False
    files: tuple[str, ...] = ()
    deviates: frozenset[Aspect] = field(init=False)

    def __post_init__(self) -> None:
        """Say once in which respects the row deviates: each proposal asks it of each row."""
        object.__setattr__(self, "deviates", _alike(tuple(self._deviates())))

    def as_planned(self, cached: Figure) -> bool:
        """Return whether a figure of cached tokens is as planned."""
        if cached is None:
            return False
        if self.most_planned is not None:
            return cached <= self.most_planned
        return cached in (self.planned, self.also_planned)

    def _deviates(self) -> Iterator[Aspect]:
        if not self.results:
            yield "missing"
            return
        signs: dict[Aspect, bool] = {
            "doubled": self.results > 1,
            "text": self.text_changed,
            "late": self.late != 0,
            "apart": self.apart,
            "rank": self.served_by not in (None, self.rank),
            "failed": not self.success,
        }
        if self.success:  # a failed request is asked nothing else than why
            signs |= {
                "prompt": self.prompt not in (None, self.prompt_len),
                "output": self.output not in (None, self.output_len),
                "absent": self.cached is None,
                "cached": self.cached is not None and not self.as_planned(self.cached),
            }
        yield from (aspect for aspect, holds in signs.items() if holds)


@cache
def _alike(aspects: tuple[Aspect, ...]) -> frozenset[Aspect]:
    """Return the same set for all rows that deviate alike: a run of 100,000 has few of them."""
    return frozenset(aspects)


@dataclass(frozen=True, kw_only=True)
class View:
    """What proposals are drawn from: the run as it was planned, and what was seen of its rows.

    reordered: whether a rank got its rows in another order than the set's. ranks: DP ranks of the set.
    answered: ranks whose seeds are known to have been answered. apart: where the ranks did not run together,
    the parameters of the fault ranks_apart. foreign: how many results are of no row of the set. blind: why
    the client may keep no cached tokens, in words. assumed: what nobody observed, and is taken as planned.
    """

    run: Run
    rows: Sequence[SeenRow]
    ranks: tuple[int, ...]
    reordered: bool = False
    answered: frozenset[int] = frozenset()
    apart: Parameters | None = None
    foreign: int = 0
    blind: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    @cached_property
    def deviating(self) -> list[SeenRow]:
        """The rows that differ from their plan in any respect."""
        return [row for row in self.rows if row.deviates]

    def deviating_in(self, aspect: Aspect) -> list[SeenRow]:
        """Return the rows that differ from their plan in one respect."""
        return [row for row in self.rows if aspect in row.deviates]

    @cached_property
    def short(self) -> list[SeenRow]:
        """The rows that found fewer tokens than planned."""
        return [r for r in self.off if r.cached is not None and r.cached < r.planned]

    @cached_property
    def above(self) -> list[SeenRow]:
        """The rows that found more tokens than planned."""
        return [r for r in self.off if r.cached is not None and r.cached > r.planned]

    @cached_property
    def off(self) -> list[SeenRow]:
        """The rows whose cached tokens differ from the plan."""
        return self.deviating_in("cached")

    @cached_property
    def seen(self) -> list[SeenRow]:
        """The rows whose cached tokens are known."""
        return [row for row in self.rows if row.results and row.success and row.cached is not None]

    @cached_property
    def place(self) -> dict[int, int]:
        """The place of each row in the run."""
        return {asked.row: n for n, asked in enumerate(self.run.asked) if asked.row is not None}

    def in_order(self, rows: Iterable[SeenRow]) -> list[SeenRow]:
        """Return rows in the order in which they were served."""
        return sorted(rows, key=lambda row: self.place[row.number])


Says: TypeAlias = Mapping[int, frozenset[Aspect]]
"""By row number: the respects in which a fault makes a row differ, whatever the figure."""


def of_each(rows: Iterable[SeenRow], *aspects: Aspect) -> dict[int, frozenset[Aspect]]:
    """Say the same of each of these rows."""
    return dict.fromkeys((row.number for row in rows), frozenset(aspects))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong.

    propose: parameters worth trying, from what was seen. act: the run as it is when the fault acts. says: of
    a fault that acts on no cache, the respects in which it makes each row differ. words: what happened, in a
    sentence without its end. remedy: what to do. touches: the ranks whose replay it changes, None for all.
    scope: how much of a run it concerns, from 1 (one row) to 9 (everything), to choose between equals.
    apart: what would tell it from a rival. takes: the parameters with which a person may ask for it.
    looks_ahead: whether what it does to a request depends on later ones, so that no trial of a run's first
    requests can refute it.
    """

    name: str
    propose: Callable[[View], Iterable[Parameters]]
    words: Callable[[Parameters], str]
    remedy: Callable[[View], str]
    act: Callable[[Run, Parameters], Run] | None = None
    says: Callable[[View, Parameters], Says] | None = None
    touches: Callable[[View, Parameters], set[int] | None] = field(default=lambda _view, _parameters: None)
    scope: int = 9
    apart: str = ""
    takes: tuple[str, ...] = ()
    looks_ahead: bool = False
