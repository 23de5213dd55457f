"""What an audit found: the values that every report reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Literal, NamedTuple, TypeAlias

from wlgen.audit.ceiling import Ceiling
from wlgen.audit.findings import Promised
from wlgen.audit.run_figures import Figures, Timeline
from wlgen.audit.sending import Lateness, Overlap
from wlgen.audit.server_figures import Acceptance, Sums
from wlgen.audit.witnessed import State
from wlgen.errors import Problem
from wlgen.faults import Figure
from wlgen.readers import Result
from wlgen.workload.bounds import Bound
from wlgen.workload.manifest import Promises
from wlgen.workload.rows import Finding
from wlgen.workload.splits import MEASURED, Split

WORST = 10
Verdict: TypeAlias = Literal["KEPT", "NOT KEPT", "NOT PROVED"]


class CachedRatio(NamedTuple):
    """Cached tokens and prompt tokens, kept as integers so that 89.99999 % is never shown as 90 %."""

    cached: int
    prompt: int

    @property
    def value(self) -> float:
        """Return cached / prompt."""
        return self.cached / self.prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Another cause that explains the same rows as well. apart: what would tell which of them it was."""

    cause: str
    parameters: Mapping[str, Any]
    explains: str
    apart: str

    @property
    def evidence(self) -> str:
        """What happened instead, and what would tell, in a sentence without its end."""
        tells = f" (what tells: {self.apart})" if self.apart else ""
        return f"{self.explains} [{self.cause}]{tells}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A cause and how much it explains.

    cause: the name of a fault. parameters: what it acted on. rows: how many rows it explains, of all rows
    that deviate in the same respects. explains: what happened, in words.
    """

    cause: str
    parameters: Mapping[str, Any]
    rows: int
    of: int
    explains: str
    remedy: str
    rivals: tuple[Rival, ...] = ()

    @property
    def evidence(self) -> str:
        """What happened and how much of the run it explains, in a sentence without its end."""
        rivals = "; or ".join(rival.evidence for rival in self.rivals)
        or_else = f"; or else {rivals}" if rivals else ""
        return f"{self.explains}: explains {self.rows} of {self.of} rows{or_else}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a proposal that no row contradicts predicts of one row.

    figures: the cached tokens that it may be told, None among them for none; empty where the proposal does
    not touch the row's rank. explains: whether it explains the row.
    """

    cause: str
    words: str
    figures: tuple[Figure, ...]
    explains: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRow:
    """One row that somebody asks about: its plan, what was seen of it, and what each proposal predicts."""

    id: str
    planned: int
    cached: Figure
    deviates: tuple[str, ...]
    predictions: tuple[Prediction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What became of the rows that deviate. unexplained: ids of rows without a cause.

    assumed: what nobody observed and the replay took as planned. row: the row that somebody asks about.
    """

    causes: tuple[Diagnosis, ...] = ()
    unexplained: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    row: OneRow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The cached tokens of some rows: of a split, or of one rank, group, class or round of it.

    by: rank, group, class or round; key: its value. rows: how many were audited. observed: how many have a
    count that can be right. minimum, p1, p50: the ratio of some row (the lowest that at least 0, 1 or 50 % of
    rows do not exceed). mean: the ratio of all tokens together. None: nothing observed.
    """

    split: Split
    dp_rank: int | None = None
    by: str = "split"
    key: str | int | None = None
    rows: int
    observed: int
    findings: int
    minimum: CachedRatio | None
    p1: CachedRatio | None
    p50: CachedRatio | None
    mean: CachedRatio | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOutcome:
    """One audited row: its promises, its first result if it has one, and its findings.

    state: who says how many tokens the row found cached. missing: the counts that nobody gives.
    """

    row: Promised
    result: Result | None
    findings: tuple[Finding, ...]
    state: State = "client"
    missing: tuple[str, ...] = ()

    @property
    def cached_ratio(self) -> CachedRatio | None:
        """The observed cached tokens and the prompt's; None if not observed, or more than the prompt has."""
        if self.result is None or not self.result.success or self.result.cached_tokens is None:
            return None
        prompt = self.result.prompt_tokens or self.row.prompt_len
        return CachedRatio(self.result.cached_tokens, prompt) if self.result.cached_tokens <= prompt else None


def ratios_of(outcomes: Iterable[RowOutcome]) -> list[CachedRatio]:
    """Return the observed ratios of some rows, lowest first."""
    return sorted((ratio for o in outcomes if (ratio := o.cached_ratio) is not None), key=lambda s: s.value)


def mean(ratios: Sequence[CachedRatio]) -> CachedRatio | None:
    """Return the ratio of all tokens together."""
    return CachedRatio(sum(s.cached for s in ratios), sum(s.prompt for s in ratios)) if ratios else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPromise:
    """The promises of one class of requests, over its check and formal rows under audit.

    name: None if the spec has one class. planned, observed: all tokens together; planned_min, observed_min:
    the worst row. recorded: how many rows found cached_len_recorded instead of cached_len.
    """

    name: str | None
    bound: Bound
    rows: int
    planned: CachedRatio
    planned_min: CachedRatio
    observed: CachedRatio | None
    observed_min: CachedRatio | None
    recorded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The three promises as the results show them; None if nothing was observed.

    configured: what the spec asks for. aggregate: all tokens of the check and formal rows under audit
    together. per_request_min: the worst of these rows.
    """

    configured: float
    aggregate: CachedRatio | None
    per_request_min: CachedRatio | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """All that an audit found.

    promises: as observed; planned: as the set was built; classes: the promises of each class of requests.
    outcomes: one for each audited row, in plan order. elsewhere: how many results belong to splits and rounds
    that are not under audit. assumed_zero: how many rows have no count and were taken as 0, as the caller
    asked. timeline, windows: of all results of the split that timed_split names. lateness: how far its
    requests were off their planned times, None if nothing is planned. overlap: when all its ranks ran, None
    for one rank or without times. problems: what could not be read. by_group, by_class, by_round: empty if
    there is only one. unobserved: rows that lack a count; one such row is enough for a run not to be proved.
    sums, ceiling, acceptance, tiers: what servers say. notes: figures that do not count, and why.
    """

    name: str
    splits: tuple[Split, ...]
    rounds: tuple[int, ...]
    promises: Observed
    classes: tuple[ClassPromise, ...]
    planned: Promises
    results: int
    elsewhere: dict[str, int]
    assumed_zero: int
    findings: tuple[Finding, ...]
    explained: Explained
    by_split: tuple[Summary, ...]
    by_rank: tuple[Summary, ...]
    timeline: Timeline
    windows: tuple[Figures, ...]
    lateness: Lateness | None
    overlap: Overlap | None
    outcomes: tuple[RowOutcome, ...]
    problems: tuple[Problem, ...]
    by_group: tuple[Summary, ...] = ()
    by_class: tuple[Summary, ...] = ()
    by_round: tuple[Summary, ...] = ()
    ceiling: Ceiling | None = None
    sums: tuple[Sums, ...] = ()
    acceptance: Acceptance | None = None
    tiers: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def diagnosis(self) -> tuple[Diagnosis, ...]:
        """The causes of what deviates."""
        return self.explained.causes

    @property
    def unobserved(self) -> list[RowOutcome]:
        """The rows that lack a count, whose promises are therefore neither kept nor broken."""
        return [outcome for outcome in self.outcomes if outcome.missing]

    @property
    def states(self) -> dict[State, int]:
        """How many rows there are by who says how much they found cached."""
        return dict(Counter(outcome.state for outcome in self.outcomes))

    @property
    def verdict(self) -> Verdict:
        """KEPT if each promise of each row is proved, NOT KEPT if one is broken, else NOT PROVED."""
        if self.findings:
            return "NOT KEPT"
        untimed = self.lateness is not None and self.lateness.unseen
        return "NOT PROVED" if self.problems or self.unobserved or untimed else "KEPT"

    @property
    def recorded(self) -> int:
        """How many rows found cached_len_recorded: the server reused its own answers."""
        return sum(of.recorded for of in self.classes)

    @property
    def worst(self) -> list[RowOutcome]:
        """The rows with the lowest observed ratio, lowest first."""
        seen = ((o.cached_ratio, o) for o in self.outcomes)
        rated = ((ratio.value, o.row.id, o) for ratio, o in seen if ratio is not None)
        return [o for *_, o in nsmallest(WORST, rated, key=lambda each: each[:2])]


def timed_split(splits: Sequence[Split]) -> Split:
    """Return the split whose times make the windows: checks, sent before it, are not part of the run."""
    return next((split for split in splits if split in MEASURED), splits[-1])
