"""Audit: rows beside results, each promise for each request. Values in, values out."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache

from wlgen.audit.class_promises import of_aggregates, of_classes
from wlgen.audit.diagnosis import Pair, diagnose
from wlgen.audit.findings import Promised, findings_of
from wlgen.audit.join import Joined, Rows, join
from wlgen.audit.model import Audit, CachedRatio, Observed, RowOutcome, Summary, mean, ratios_of, timed_split
from wlgen.audit.run_figures import Setting, Timeline, figures
from wlgen.audit.second_run import second_runs
from wlgen.audit.sending import lateness, overlap
from wlgen.errors import Problem, WlgenError, error
from wlgen.readers import Result
from wlgen.workload.manifest import Manifest
from wlgen.workload.rows import Finding, Row
from wlgen.workload.splits import MEASURED, SPLITS, Split

P1, P50 = Fraction(1, 100), Fraction(1, 2)


def audit(
    rows: Iterable[Row],
    files: Iterable[tuple[str, Iterable[Result | Problem]]],
    manifest: Manifest,
    *,
    splits: Sequence[Split] = MEASURED,
    rounds: Sequence[int] = (0,),
    setting: Setting | None = None,
    absent_is_zero: bool = False,
) -> Audit:
    """Audit the rows of `splits` in `rounds` against the results of files, each (name, results).

    rows: all rows of the set, streamed; only their promises are kept. Results are joined to rows of any
    split and round; seeds belong to each round. absent_is_zero: the caller knows that
    the server leaves cached tokens out when they are 0; without that, absent is NOT_OBSERVED. WlgenError
    where no result could be used, with the reason for each file, and where the files hold more than one run.
    """
    bound_of = cache(manifest.bound_of)
    known = Rows(Promised.of(row, bound_of(row.request_class)) for row in rows)
    joined = join(known, files, splits, rounds)
    if again := second_runs(joined.parts):
        raise WlgenError(*again, *joined.problems)

    def asked(row: Promised) -> bool:
        return row.split in splits and row.split.within(row.round, rounds)

    results: dict[str, list[Result]] = defaultdict(list)
    timed: list[tuple[Promised, Result]] = []
    assumed = 0
    for row, result in joined.pairs:
        used = _with_zero(result) if absent_is_zero else result
        assumed += used is not result
        results[row.id].append(used)
        if row.split == timed_split(splits) and asked(row):
            timed.append((row, used))
    audited = [row for row in known.all if asked(row)]
    setting = setting or Setting()
    sent = {row_id: found[0] for row_id, found in results.items()}
    times = lateness(audited, sent, setting.late)
    off = times.findings if times else {}
    outcomes = tuple(_outcome(row, results.get(row.id, []), off.get(row.id)) for row in audited)
    elsewhere = Counter(
        row.split.value if row.split not in splits else f"round {row.round} {row.split}"
        for row, _ in joined.pairs
        if not asked(row)
    )
    _require_results(outcomes, joined, elsewhere)
    classes = tuple(of_classes(outcomes))
    timeline, together = Timeline.of([result for _, result in timed]), overlap(timed)
    measured = [o for o in outcomes if not o.row.split.primes]
    return Audit(
        name=manifest.name,
        splits=tuple(splits),
        rounds=tuple(rounds),
        promises=Observed(
            configured=manifest.promises.configured,
            aggregate=mean(ratios_of(measured)),
            per_request_min=_at(ratios_of(measured), Fraction(0)),
        ),
        classes=classes,
        planned=manifest.promises,
        results=len(joined.pairs) - elsewhere.total(),
        elsewhere=dict(elsewhere),
        assumed_zero=assumed,
        findings=(
            *(f for outcome in outcomes for f in outcome.findings),
            *of_aggregates(outcomes, manifest.name),
            *joined.foreign,
        ),
        diagnosis=tuple(
            diagnose([Pair(o.row, o.result) for o in outcomes if o.result is not None], manifest.cache)
        ),
        by_split=tuple(_summaries(outcomes, by_rank=False)),
        by_rank=tuple(_summaries(outcomes, by_rank=True)),
        timeline=timeline,
        windows=figures(timeline, setting, together),
        lateness=times,
        overlap=together,
        outcomes=outcomes,
        problems=tuple(joined.problems),
    )


def parse_splits(names: Sequence[str]) -> tuple[Split, ...]:
    """Return the splits of these names in the order a server meets them; without names, what is measured."""
    if unknown := [name for name in names if name not in SPLITS]:
        raise error("--split", expected=" or ".join(SPLITS), found=", ".join(unknown))
    return tuple(split for split in SPLITS if split in names) or MEASURED


def parse_rounds(asked: Sequence[int], built: Sequence[int] | None) -> tuple[int, ...]:
    """Return the rounds asked for, the first that is built where none is; built: None for one round."""
    known = sorted(built or (0,))
    if unknown := [number for number in asked if number not in known]:
        expected = f"a round that is built: {', '.join(map(str, known))}"
        raise error("--round", expected=expected, found=", ".join(map(str, unknown)))
    return tuple(sorted(set(asked))) or (known[0],)


def _with_zero(result: Result) -> Result:
    # A figure that was garbled is not absent: the server reported it, and nobody knows what it was.
    counted = result.success and result.prompt_tokens is not None and not result.garbled
    if counted and result.cached_tokens is None:
        return dataclasses.replace(result, cached_tokens=0)
    return result


def _outcome(row: Promised, results: Sequence[Result], late: Finding | None) -> RowOutcome:
    found = [late] if late else []
    if len(results) != 1:
        found.append(Finding(id=row.id, promise="sent_once", expected=1, got=len(results)))
    for result in results:
        found += findings_of(row, result)
    once = tuple(dict.fromkeys(found))  # a repeated record repeats its findings
    return RowOutcome(row=row, result=results[0] if results else None, findings=once)


def _require_results(outcomes: Sequence[RowOutcome], joined: Joined, elsewhere: Counter[str]) -> None:
    if any(outcome.result is not None for outcome in outcomes):
        return
    if not outcomes:
        raise error("--split", expected="a split that the set has", found="one without rows")
    if joined.problems:
        raise WlgenError(*joined.problems)
    expected = f"results of {' or '.join(dict.fromkeys(o.row.split for o in outcomes))} rows"
    others = " and ".join(elsewhere)
    found = f"results of {others} rows only" if others else "none"
    remedy = f"Give --split {others}." if others else ""
    if of_round := [other.split()[1] for other in elsewhere if " " in other]:
        remedy = f"Give --round {of_round[0]}."
    raise error("results", expected=expected, found=found, remedy=remedy)


def _at(ratios: Sequence[CachedRatio], part: Fraction) -> CachedRatio | None:
    # The nearest rank: a row's own ratio, never a figure between two rows.
    return ratios[max(0, math.ceil(part * len(ratios)) - 1)] if ratios else None


def _summaries(outcomes: Sequence[RowOutcome], *, by_rank: bool) -> Iterator[Summary]:
    groups: dict[tuple[Split, int | None], list[RowOutcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.row.split, outcome.row.dp_rank if by_rank else None].append(outcome)
    for (split, dp_rank), group in groups.items():
        ratios = ratios_of(group)
        yield Summary(
            split=split,
            dp_rank=dp_rank,
            rows=len(group),
            observed=len(ratios),
            findings=sum(len(o.findings) for o in group),
            minimum=_at(ratios, Fraction(0)),
            p1=_at(ratios, P1),
            p50=_at(ratios, P50),
            mean=mean(ratios),
        )
