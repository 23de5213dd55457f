"""Audit: compares rows with results, promise by promise, for each request. Values in, values out."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from wlgen.audit.as_seen import Chains, RowSeen, Scene
from wlgen.audit.class_promises import of_aggregates, of_classes
from wlgen.audit.explain import explain
from wlgen.audit.findings import Promised, findings_of
from wlgen.audit.given import Given, RequestFiles, as_results, read_requests, span_of
from wlgen.audit.join import Joined, Rows, join
from wlgen.audit.model import (
    Audit,
    CachedRatio,
    Explained,
    Observed,
    RowOutcome,
    Summary,
    mean,
    ratios_of,
    timed_split,
)
from wlgen.audit.run_figures import Setting, Timeline, figures
from wlgen.audit.second_run import second_runs
from wlgen.audit.sending import Overlap, lateness, overlap
from wlgen.audit.server_figures import Sums, acceptance, sums_of, tiers_of
from wlgen.audit.witnessed import Judged, judge
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
    given: Given | None = None,
    blind: Sequence[str] = (),
    chains: Chains | None = None,
    row_id: str | None = None,
    tasks: Callable[[], Mapping[str, str]] = dict,
) -> Audit:
    """Audit the rows of `splits` in `rounds` against the results of files, each (name, results).

    rows: all rows of the set, streamed; only their promises are kept. Results are joined to rows of any
    split and round; seeds belong to each round. absent_is_zero: the caller knows that the server leaves
    cached tokens out when they are 0; without that, absent is NOT_OBSERVED. given: what servers say beside
    the results; with it there may be no results at all. blind: why clients of these files keep no cached
    tokens, in words. chains: gives each row's runs of tokens, to explain what deviates. row_id: a row
    of which each cause that fits says what it predicts. tasks: gives the set's tasks, as in Acceptance.
    WlgenError where no result could be used, with the
    reason for each file, and where the files hold more than one run.
    """
    given, setting = given or Given(), setting or Setting()
    heard = _hear(rows, files, manifest, given, splits=splits, rounds=rounds, absent_is_zero=absent_is_zero)
    sent = {name: found[0].result for name, found in heard.judged.of_row.items()}
    times = lateness(heard.wanted, sent, setting.late)
    late = times.findings if times else {}
    outcomes = tuple(_outcome(row, heard, late.get(row.id)) for row in heard.wanted)
    if not heard.told:
        _require_results(outcomes, heard)
    timed_of = timed_split(splits)
    timed = [pair for row in heard.wanted if row.split == timed_of for pair in heard.results_of(row)]
    timeline, together = Timeline.of([result for _, result in timed]), overlap(timed)
    off = times.off if times else {}
    return Audit(
        name=manifest.name,
        splits=tuple(splits),
        rounds=tuple(rounds),
        promises=_observed(outcomes, manifest),
        classes=tuple(of_classes(outcomes)),
        planned=manifest.promises,
        results=len(heard.joined.pairs) - heard.elsewhere.total(),
        elsewhere=dict(heard.elsewhere),
        assumed_zero=heard.judged.assumed_zero,
        findings=(
            *(f for outcome in outcomes for f in outcome.findings),
            *of_aggregates(outcomes, manifest.name),
            *heard.judged.findings,
            *heard.joined.foreign,
        ),
        explained=_explained(heard, manifest, off, together, chains=chains, blind=blind, row_id=row_id),
        by_split=tuple(_summaries(outcomes, "split")),
        by_rank=tuple(_summaries(outcomes, "rank")),
        by_group=tuple(_summaries(outcomes, "group")),
        by_class=tuple(_summaries(outcomes, "class")),
        by_round=tuple(_summaries(outcomes, "round")),
        timeline=timeline,
        windows=figures(timeline, setting, together),
        lateness=times,
        overlap=together,
        outcomes=outcomes,
        problems=heard.problems,
        ceiling=heard.judged.ceiling,
        sums=heard.sums,
        acceptance=acceptance(given, heard.served, tasks),
        tiers=tiers_of(heard.judged.ceiling, heard.served),
        notes=tuple(heard.judged.notes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """What clients and servers say of the rows of a set.

    wanted: the rows under audit. told: there are sums of the servers and no result, so that a row without a
    result is no finding. elsewhere: results of rows that are not under audit, counted by split and round.
    """

    known: Rows
    wanted: Sequence[Promised]
    joined: Joined
    served: RequestFiles
    judged: Judged
    sums: tuple[Sums, ...]
    problems: tuple[Problem, ...]
    told: bool
    elsewhere: Counter[str]

    def results_of(self, row: Promised) -> list[tuple[Promised, Result]]:
        """Return the row beside each of its results, as the witnesses left them."""
        return [(row, each.result) for each in self.judged.of_row.get(row.id, ())]


def _hear(
    rows: Iterable[Row],
    files: Iterable[tuple[str, Iterable[Result | Problem]]],
    manifest: Manifest,
    given: Given,
    *,
    splits: Sequence[Split],
    rounds: Sequence[int],
    absent_is_zero: bool,
) -> _Heard:
    """Return what the results and the servers say of the rows; WlgenError where files hold several runs."""
    bound_of = cache(manifest.bound_of)
    known = Rows(Promised.of(row, bound_of(row.request_class)) for row in rows)
    joined = join(known, files, splits, rounds)
    if again := second_runs(joined.parts):
        raise WlgenError(*again, *joined.problems)
    sent = span_of(result for _, result in joined.pairs)
    served = read_requests(known, given, sent)

    def asked(row: Promised) -> bool:
        return row.split in splits and row.split.within(row.round, rounds)

    wanted = [row for row in known.all if asked(row)]
    by_server = not (joined.pairs or joined.foreign or joined.problems)
    if by_server:
        joined.pairs = [(known.by_id[r.id], r) for r in as_results(served) if r.id is not None]
    judged = judge(
        joined, wanted, served, given, manifest, absent_is_zero=absent_is_zero, by_server=by_server
    )
    sums, problems = sums_of(known.all, wanted, given, judged.ceiling, served)
    return _Heard(
        known=known,
        wanted=wanted,
        joined=joined,
        served=served,
        judged=judged,
        sums=tuple(sums),
        problems=(*joined.problems, *served.problems, *problems),
        told=bool(sums) and not joined.pairs,
        elsewhere=Counter(
            row.split.value if row.split not in splits else f"round {row.round} {row.split}"
            for row, _ in joined.pairs
            if not asked(row)
        ),
    )


def _observed(outcomes: Sequence[RowOutcome], manifest: Manifest) -> Observed:
    ratios = ratios_of([outcome for outcome in outcomes if not outcome.row.split.primes])
    return Observed(
        configured=manifest.promises.configured,
        aggregate=mean(ratios),
        per_request_min=_at(ratios, Fraction(0)),
    )


def parse_splits(names: Sequence[str]) -> tuple[Split, ...]:
    """Return the splits of these names in the order of sending; without names, the measured splits."""
    if unknown := [name for name in names if name not in SPLITS]:
        raise error("--split", expected=" or ".join(SPLITS), found=", ".join(unknown))
    return tuple(split for split in SPLITS if split in names) or MEASURED


def parse_rounds(asked: Sequence[int], built: Sequence[int] | None) -> tuple[int, ...]:
    """Return the rounds asked for, or the first built round if none is; built: None for one round."""
    known = sorted(built or (0,))
    if unknown := [number for number in asked if number not in known]:
        expected = f"a round that is built: {', '.join(map(str, known))}"
        raise error("--round", expected=expected, found=", ".join(map(str, unknown)))
    return tuple(sorted(set(asked))) or (known[0],)


def _explained(
    heard: _Heard,
    manifest: Manifest,
    late: Mapping[str, float],
    together: Overlap | None,
    *,
    chains: Chains | None,
    blind: Sequence[str],
    row_id: str | None,
) -> Explained:
    """Return why rows deviate. A figure that the judgement set aside is looked at as the client gave it."""
    audited = {row.id for row in heard.wanted}
    if row_id is not None and row_id not in audited:
        raise error("--explain", expected="the id of a row under audit", found=repr(row_id))
    if heard.told:  # nothing is known of any single row
        return Explained()
    given = {row.id: result.cached_tokens for row, result in reversed(heard.joined.pairs)}
    rounds = {row.round for row in heard.wanted}
    scene = Scene(
        rule=manifest.cache,
        audited=[_row_seen(row, heard, given.get(row.id), late.get(row.id, 0.0)) for row in heard.wanted],
        before=[
            row
            for row in heard.known.all
            if row.id not in audited and not row.split.measured and row.split.within(row.round, rounds)
        ],
        chains=chains,
        ranks=tuple(manifest.ranks),
        together=together,
        foreign=len(heard.joined.foreign) + heard.joined.of_others,
        blind=tuple(blind),
    )
    if row_id is None and not scene.deviates():
        return Explained()
    return explain(scene.view(), row_id=row_id)


def _row_seen(row: Promised, heard: _Heard, given: int | None, late: float) -> RowSeen:
    results = [result for _, result in heard.results_of(row)]
    cached = results[0].cached_tokens if results else None
    return RowSeen(
        row=row,
        results=results,
        cached=given if cached is None and results and not results[0].garbled else cached,
        late=late,
    )


def _outcome(row: Promised, heard: _Heard, late: Finding | None) -> RowOutcome:
    """Return a row's outcome. late: the finding that it was not sent at its planned time."""
    judged = heard.judged.of_row.get(row.id, ())
    found = [late] if late else []
    if len(judged) != 1 and not heard.told:
        found.append(Finding(id=row.id, promise="sent_once", expected=1, got=len(judged)))
    missing = dict.fromkeys(["cached_tokens"] if heard.told else [])
    for each in judged:
        broken = [*findings_of(row, each.result), *each.findings]
        missing |= dict.fromkeys(
            n for f in broken if f.promise == "observed" for n in str(f.expected).split(", ")
        )
        found += [f for f in broken if f.promise != "observed"]
    first = judged[0] if judged else None
    return RowOutcome(
        row=row,
        result=first.result if first else None,
        findings=tuple(dict.fromkeys(found)),  # a repeated record repeats its findings
        state=first.state if first else "unobserved",
        missing=tuple(missing),
    )


def _require_results(outcomes: Sequence[RowOutcome], heard: _Heard) -> None:
    joined, elsewhere = heard.joined, heard.elsewhere
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
    # The nearest-rank percentile: the ratio of some row, never a figure between two rows.
    return ratios[max(0, math.ceil(part * len(ratios)) - 1)] if ratios else None


_KEYS: dict[str, Callable[[Promised], str | int | None]] = {
    "split": lambda _row: None,
    "rank": lambda row: row.dp_rank,
    "group": lambda row: row.group,
    "class": lambda row: row.request_class,
    "round": lambda row: row.round,
}


def _summaries(outcomes: Sequence[RowOutcome], by: str) -> Iterator[Summary]:
    """Yield a summary of each split and key; groups, classes and rounds only if there are several."""
    lots: dict[tuple[Split, str | int | None], list[RowOutcome]] = defaultdict(list)
    for outcome in outcomes:
        lots[outcome.row.split, _KEYS[by](outcome.row)].append(outcome)
    if by not in ("split", "rank") and len({key for _, key in lots}) < 2:  # noqa: PLR2004 (several)
        return
    for (split, key), lot in lots.items():
        ratios = ratios_of(lot)
        yield Summary(
            split=split,
            dp_rank=int(key) if by == "rank" and key is not None else None,
            by=by,
            key=key,
            rows=len(lot),
            observed=len(ratios),
            findings=sum(len(o.findings) for o in lot),
            minimum=_at(ratios, Fraction(0)),
            p1=_at(ratios, P1),
            p50=_at(ratios, P50),
            mean=mean(ratios),
        )
