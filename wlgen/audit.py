"""Audit: rows beside results, each promise for each request. Values in, values out."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from wlgen.diagnosis import Diagnosis, Pair, diagnose
from wlgen.errors import Problem, WlgenError, error
from wlgen.figures import Figures, Setting, Timeline, figures
from wlgen.findings import Finding, Promised, findings_of
from wlgen.join import Joined, Rows, join
from wlgen.readers import Result
from wlgen.workload import SPLITS, Bound, Manifest, Promises, Row, Split

WORST = 10
P1, P50 = Fraction(1, 100), Fraction(1, 2)


class Share(NamedTuple):
    """Cached tokens of prompt tokens, kept whole so that 89.99999 % never reads 90."""

    cached: int
    prompt: int

    @property
    def ratio(self) -> float:
        """Return cached / prompt."""
        return self.cached / self.prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The cached tokens of some rows: of a split, or of a rank of it.

    rows: audited. observed: with a figure that can be right. minimum, p1, p50: a row's own share (the
    lowest that at least 0, 1, 50 % of rows do not exceed); mean: over all tokens. None: nothing observed.
    """

    split: Split
    dp_rank: int | None
    rows: int
    observed: int
    findings: int
    minimum: Share | None
    p1: Share | None
    p50: Share | None
    mean: Share | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One audited row: what was promised, the first result of it if any, and its findings."""

    row: Promised
    result: Result | None
    findings: tuple[Finding, ...]

    @property
    def share(self) -> Share | None:
        """Observed cached tokens of the prompt; None if not observed, or more than the prompt has."""
        if self.result is None or not self.result.success or self.result.cached_tokens is None:
            return None
        prompt = self.result.prompt_tokens or self.row.prompt_len
        return Share(self.result.cached_tokens, prompt) if self.result.cached_tokens <= prompt else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The three promises as the results show them; None where nothing was observed.

    configured is what the spec asks for. aggregate is over tokens and per_request_min the worst row, of the
    check and formal rows under audit.
    """

    configured: float
    aggregate: Share | None
    per_request_min: Share | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """All that an audit found.

    promises: as observed; planned: as the set was built. outcomes: one an audited row, in plan order.
    elsewhere: results of rows of splits that are not under audit. assumed_zero: rows whose missing figure
    was taken as 0 because the caller vouched for it. timeline, windows: of the split that timed_split names,
    every result of it. problems: what could not be read.
    """

    name: str
    splits: tuple[Split, ...]
    bound: Bound
    promises: Observed
    planned: Promises
    results: int
    elsewhere: dict[Split, int]
    assumed_zero: int
    findings: tuple[Finding, ...]
    diagnosis: tuple[Diagnosis, ...]
    by_split: tuple[Summary, ...]
    by_rank: tuple[Summary, ...]
    timeline: Timeline
    windows: tuple[Figures, ...]
    outcomes: tuple[Outcome, ...]
    problems: tuple[Problem, ...]

    @property
    def worst(self) -> list[Outcome]:
        """The rows with the lowest observed share, lowest first."""
        seen = [(o.share, o) for o in self.outcomes if o.share is not None]
        return [o for _, o in sorted(seen, key=lambda pair: (pair[0].ratio, pair[1].row.id))[:WORST]]


def audit(
    rows: Iterable[Row],
    files: Iterable[tuple[str, Iterable[Result | Problem]]],
    manifest: Manifest,
    *,
    splits: Sequence[Split] = ("formal",),
    setting: Setting | None = None,
    absent_is_zero: bool = False,
) -> Audit:
    """Audit the rows of `splits` against the results of files, each (name, results).

    rows: all rows of the set, streamed; only their promises are kept. absent_is_zero: the caller knows that
    the server leaves cached tokens out when they are 0; without that, absent is NOT_OBSERVED. WlgenError
    where no result could be used, with the reason for each file.
    """
    known = Rows(map(Promised.of, rows))
    joined = join(known, files, splits)
    results: dict[str, list[Result]] = defaultdict(list)
    timed: list[Result] = []
    assumed = 0
    for row, result in joined.pairs:
        used = _with_zero(result) if absent_is_zero else result
        assumed += used is not result
        results[row.id].append(used)
        if row.split == timed_split(splits):
            timed.append(used)
    outcomes = tuple(
        _outcome(row, results.get(row.id, []), manifest.bound) for row in known.all if row.split in splits
    )
    elsewhere = Counter(row.split for row, _ in joined.pairs if row.split not in splits)
    _require_results(outcomes, joined, elsewhere)
    timeline = Timeline.of(timed)
    measured = [o for o in outcomes if o.row.split != "seed"]
    return Audit(
        name=manifest.name,
        splits=tuple(splits),
        bound=manifest.bound,
        promises=Observed(
            configured=manifest.promises.configured,
            aggregate=_mean(measured),
            per_request_min=_at(_shares(measured), Fraction(0)),
        ),
        planned=manifest.promises,
        results=len(joined.pairs) - elsewhere.total(),
        elsewhere=dict(elsewhere),
        assumed_zero=assumed,
        findings=(*(f for outcome in outcomes for f in outcome.findings), *joined.foreign),
        diagnosis=tuple(
            diagnose([Pair(o.row, o.result) for o in outcomes if o.result is not None], manifest.cache)
        ),
        by_split=tuple(_summaries(outcomes, by_rank=False)),
        by_rank=tuple(_summaries(outcomes, by_rank=True)),
        timeline=timeline,
        windows=figures(timeline, setting or Setting()),
        outcomes=outcomes,
        problems=tuple(joined.problems),
    )


def parse_splits(names: Sequence[str]) -> tuple[Split, ...]:
    """Return the splits of these names, once each and in the order a server meets them."""
    if unknown := [name for name in names if name not in SPLITS]:
        raise error("--split", expected=" or ".join(SPLITS), found=", ".join(unknown))
    return tuple(split for split in SPLITS if split in names)


def timed_split(splits: Sequence[Split]) -> Split:
    """Return the one split whose times make the windows: checks sent before are no part of the run."""
    return "formal" if "formal" in splits else splits[-1]


def _with_zero(result: Result) -> Result:
    counted = result.success and result.prompt_tokens is not None
    if counted and result.cached_tokens is None:
        return dataclasses.replace(result, cached_tokens=0)
    return result


def _outcome(row: Promised, results: Sequence[Result], bound: Bound) -> Outcome:
    found = []
    if len(results) != 1:
        found.append(Finding(id=row.id, promise="sent_once", expected=1, got=len(results)))
    for result in results:
        found += findings_of(row, result, bound)
    once = tuple(dict.fromkeys(found))  # a repeated record repeats its findings
    return Outcome(row=row, result=results[0] if results else None, findings=once)


def _require_results(outcomes: Sequence[Outcome], joined: Joined, elsewhere: Counter[Split]) -> None:
    if any(outcome.result is not None for outcome in outcomes):
        return
    if joined.problems:
        raise WlgenError(*joined.problems)
    others = " and ".join(elsewhere)
    expected = f"results of {' or '.join(dict.fromkeys(o.row.split for o in outcomes))} rows"
    raise error("results", expected=expected, found=f"{others} rows only", remedy=f"Give --split {others}.")


def _shares(outcomes: Iterable[Outcome]) -> list[Share]:
    return sorted((share for o in outcomes if (share := o.share) is not None), key=lambda s: s.ratio)


def _at(shares: Sequence[Share], part: Fraction) -> Share | None:
    # The nearest rank: a row's own share, never a figure between two rows.
    return shares[max(0, math.ceil(part * len(shares)) - 1)] if shares else None


def _mean(outcomes: Iterable[Outcome]) -> Share | None:
    shares = _shares(outcomes)
    return Share(sum(s.cached for s in shares), sum(s.prompt for s in shares)) if shares else None


def _summaries(outcomes: Sequence[Outcome], *, by_rank: bool) -> Iterator[Summary]:
    groups: dict[tuple[Split, int | None], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.row.split, outcome.row.dp_rank if by_rank else None].append(outcome)
    for (split, dp_rank), group in groups.items():
        shares = _shares(group)
        yield Summary(
            split=split,
            dp_rank=dp_rank,
            rows=len(group),
            observed=len(shares),
            findings=sum(len(o.findings) for o in group),
            minimum=_at(shares, Fraction(0)),
            p1=_at(shares, P1),
            p50=_at(shares, P50),
            mean=_mean(group),
        )
