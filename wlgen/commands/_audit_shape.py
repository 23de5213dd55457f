"""The keys of what `wlgen audit --json` prints. Ratios are of prompt tokens; null is NOT_OBSERVED."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_type_hints

from wlgen.audit.ceiling import Condition, Shortfall
from wlgen.audit.model import Audit, Diagnosis, Verdict
from wlgen.audit.run_figures import Figures
from wlgen.audit.sending import Delays
from wlgen.commands._answer import shape_of
from wlgen.errors import Problem
from wlgen.report.provenance import Provenance
from wlgen.workload.manifest import Promises
from wlgen.workload.rows import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class PromisesObserved:
    """The three promises as the results show them."""

    configured: float
    aggregate: float | None
    per_request_min: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassObserved:
    """The promises of one class of requests; name is null where the spec has one class.

    planned, observed: over all tokens. planned_min, observed_min: the worst row.
    """

    name: str | None
    asked: str
    rows: int
    planned: float | None
    observed: float | None
    planned_min: float | None
    observed_min: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RatiosOfRows:
    """Cached ratios of some rows: those of a split, or of a rank, group, class or round of it.

    by: which of these tells the rows apart; key: its value. minimum, p1, p50: single rows. mean: all tokens.
    """

    split: str
    dp_rank: int | None
    by: str
    key: str | int | None
    rows: int
    observed: int
    findings: int
    minimum: float | None
    p1: float | None
    p50: float | None
    mean: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsUnobserved:
    """How many rows nobody observed whole, and which counts are missing."""

    rows: int
    counts: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountersProve:
    """What the counters prove of the rows between two scrapes, and each condition of the proof.

    planned, observed: cached tokens. kept: each row found its plan. short: what is missing, by rank.
    """

    planned: int
    observed: int | None
    comparable: bool
    kept: bool
    conditions: list[Condition]
    short: list[Shortfall]
    by_rank: dict[int, dict[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstRow:
    """One of the ten rows with the lowest observed ratio."""

    id: str
    dp_rank: int
    cached_tokens: int
    prompt_tokens: int
    ratio: float | None
    planned_cached_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesKept:
    """Planned times beside those at which rows were sent. Delays are seconds, later is positive."""

    planned: int
    not_observed: int
    limit: float
    seen: Delays | None
    by_rank: dict[int, Delays]


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksTogether:
    """The part of a run in which every rank ran, in seconds on the client's clock; whole: of the run.

    last, first: the ranks that began last and ended first. planned: the plan lets the ranks run apart.
    in_turn: the client sent one request at a time. fewest: requests of the rank that has the fewest.
    """

    ranks: int
    since: float
    until: float
    last: int
    first: int
    whole: float
    planned: bool
    in_turn: bool
    fewest: int
    seconds: float


def audit_shape() -> Any:
    """Return the model of what `wlgen audit --json` prints."""
    kinds = get_type_hints(Audit)
    ratios: dict[str, Any] = dict.fromkeys(
        ("by_split", "by_rank", "by_group", "by_class", "by_round"), list[RatiosOfRows]
    )
    return shape_of(
        "audit",
        set=str,
        splits=list[str],
        rounds=list[int],
        verdict=Verdict,
        rows=int,
        results=int,
        results_of_other_splits=dict[str, int],
        assumed_zero=int,
        promises=PromisesObserved,
        planned=Promises,
        classes=list[ClassObserved],
        found_recorded_answers=int,
        findings=list[Finding],
        diagnosis=list[Diagnosis],
        unexplained=list[str],
        assumed=list[str],
        explained_row=(dict[str, Any] | None, None),  # of --explain ROW alone
        **ratios,
        states=dict[str, int],
        not_observed=RowsUnobserved,
        counters=CountersProve | None,
        sums=kinds["sums"],
        tiers=dict[str, int],
        acceptance=kinds["acceptance"],
        notes=list[str],
        worst=list[WorstRow],
        planned_times=TimesKept | None,
        ranks_together=RanksTogether | None,
        windows_of=Literal["seed", "check", "formal"],
        windows=list[Figures],
        provenance=Provenance,
        problems=list[Problem],
    )
