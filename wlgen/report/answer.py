"""The answer of an audit as JSON values: the keys that `wlgen audit --json` prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from wlgen.audit.ceiling import Ceiling
from wlgen.audit.model import Audit, CachedRatio, ClassPromise, RowOutcome, Summary, timed_split
from wlgen.audit.witnessed import STATES
from wlgen.errors import PROBLEM_KEYS
from wlgen.report.provenance import Provenance
from wlgen.report.words import asked


def answer(audit: Audit, provenance: Provenance) -> dict[str, Any]:
    """Return the audit as JSON values. Ratios are of prompt tokens; null is NOT_OBSERVED.

    promises: as observed; planned: as the set was built. findings: one a broken promise. provenance: which
    set, files, options and wlgen the audit is of.
    """
    observed = audit.promises
    return {
        "set": audit.name,
        "splits": list(audit.splits),
        "rounds": list(audit.rounds),
        "verdict": audit.verdict,
        "rows": len(audit.outcomes),
        "results": audit.results,
        "results_of_other_splits": audit.elsewhere,
        "assumed_zero": audit.assumed_zero,
        "promises": {
            "configured": observed.configured,
            "aggregate": _ratio(observed.aggregate),
            "per_request_min": _ratio(observed.per_request_min),
        },
        "planned": asdict(audit.planned),
        "classes": [_of_class(of) for of in audit.classes],
        "found_recorded_answers": audit.recorded,
        "findings": [asdict(finding) for finding in audit.findings],
        "diagnosis": [asdict(diagnosis) for diagnosis in audit.diagnosis],
        "unexplained": list(audit.explained.unexplained),
        **({"explained_row": asdict(audit.explained.row)} if audit.explained.row else {}),
        "assumed": list(audit.explained.assumed),
        "by_split": [_summary(summary) for summary in audit.by_split],
        "by_rank": [_summary(summary) for summary in audit.by_rank],
        "by_group": [_summary(summary) for summary in audit.by_group],
        "by_class": [_summary(summary) for summary in audit.by_class],
        "by_round": [_summary(summary) for summary in audit.by_round],
        "states": {STATES[state]: count for state, count in audit.states.items()},
        "not_observed": {
            "rows": len(audit.unobserved),
            "counts": sorted({name for outcome in audit.unobserved for name in outcome.missing}),
        },
        "counters": _ceiling(audit.ceiling),
        "sums": [asdict(each) for each in audit.sums],
        "tiers": dict(audit.tiers),
        "acceptance": asdict(audit.acceptance) if audit.acceptance else None,
        "notes": list(audit.notes),
        "worst": [_worst(outcome) for outcome in audit.worst],
        "planned_times": _times(audit),
        "ranks_together": asdict(audit.overlap) | {"seconds": audit.overlap.seconds}
        if audit.overlap
        else None,
        "windows_of": timed_split(audit.splits),
        "windows": [asdict(window) for window in audit.windows],
        "provenance": asdict(provenance),
        "problems": [{name: getattr(problem, name) for name in PROBLEM_KEYS} for problem in audit.problems],
    }


def _times(audit: Audit) -> dict[str, Any] | None:
    times = audit.lateness
    if times is None:
        return None
    return {
        "planned": times.planned,
        "not_observed": times.unseen,
        "limit": times.limit,
        "seen": asdict(times.seen) if times.seen else None,
        "by_rank": {str(rank): asdict(delays) for rank, delays in times.by_rank.items()},
    }


def _ceiling(found: Ceiling | None) -> dict[str, Any] | None:
    if found is None:
        return None
    names = ("planned", "observed", "comparable", "kept")
    return {name: getattr(found, name) for name in names} | {
        "by_rank": {str(rank): dict(counts) for rank, counts in found.moved.ranks.items()},
        "conditions": [asdict(condition) for condition in found.conditions],
        "short": [asdict(short) for short in found.short],
    }


def _ratio(ratio: CachedRatio | None) -> float | None:
    return None if ratio is None else ratio.value


def _of_class(of: ClassPromise) -> dict[str, Any]:
    ratios = ("planned", "observed", "planned_min", "observed_min")
    whole = {"name": of.name, "asked": asked(of.bound), "rows": of.rows}
    return whole | {name: _ratio(getattr(of, name)) for name in ratios}


def _summary(summary: Summary) -> dict[str, Any]:
    whole = {
        name: getattr(summary, name)
        for name in ("split", "dp_rank", "by", "key", "rows", "observed", "findings")
    }
    return whole | {name: _ratio(getattr(summary, name)) for name in ("minimum", "p1", "p50", "mean")}


def _worst(outcome: RowOutcome) -> dict[str, Any]:
    cached, prompt = outcome.cached_ratio or (0, 0)
    row = outcome.row
    return {
        "id": row.id,
        "dp_rank": row.dp_rank,
        "cached_tokens": cached,
        "prompt_tokens": prompt,
        "ratio": _ratio(outcome.cached_ratio),
        "planned_cached_len": row.cached_len,
    }
