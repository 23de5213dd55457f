"""The words and numbers that all reports of an audit use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

from wlgen.audit.findings import MEANING, NOT_OBSERVED
from wlgen.audit.model import Audit, CachedRatio, RowOutcome, Summary
from wlgen.audit.run_figures import MEMBERS_FLOOR, SECONDS_FLOOR, Figures, Spread
from wlgen.audit.sending import Delays
from wlgen.audit.witnessed import STATES
from wlgen.errors import counted
from wlgen.pages import percent, percent_of
from wlgen.workload.bounds import UNBOUNDED, Bound
from wlgen.workload.rows import Finding

WINDOWS = {"whole": "whole run", "stable_v1": "AISBench stable V1", "stable_v2": "AISBench stable V2"}
FLOOR = f"{MEMBERS_FLOOR} requests and {SECONDS_FLOOR:.0f} s"
AS_PLANNED, NO_BOUND = "as planned", "no bound"  # of a cold class and a trace
CLASS_NAMES = ("class", "asked", "planned", "observed", "worst planned", "observed")
LATE_RANKS = 4  # that are told; --json has them all
AT_ZERO = 8  # groups and ranks named that found nothing; --json has them all
_PLURAL = {"rank": "ranks", "group": "groups", "class": "classes", "round": "rounds"}
WHOLE_NUMBERS = 1000  # from here on decimals do not matter


def verdict(audit: Audit) -> str:
    """Return the outcome in one line, without the set's name."""
    rows = counted(len(audit.outcomes), f"{' and '.join(audit.splits)} row")
    if audit.rounds != (0,):
        rows += f" of round {', '.join(map(str, audit.rounds))}"
    rows = f"{rows}, {counted(audit.results, 'result')}"
    if audit.elsewhere:
        others = " and ".join(counted(count, f"{split} row") for split, count in audit.elsewhere.items())
        rows += f" (and {others}, not audited)"
    return f"{audit.verdict}, {_why(audit)}; {rows}"


def _why(audit: Audit) -> str:
    """Return what makes the verdict."""
    if audit.problems:
        places = sum(problem.places for problem in audit.problems)
        found = f", {counted(len(audit.findings), 'finding')}" if audit.findings else ""
        return f"incomplete, {counted(places, 'place')} could not be read{found}"
    if audit.findings:
        return counted(len(audit.findings), "finding")
    if audit.unobserved:
        names = " and ".join(dict.fromkeys(n for o in audit.unobserved for n in o.missing)).replace("_", " ")
        return f"nobody observed {names} of {counted(len(audit.unobserved), 'row')}"
    if audit.lateness and audit.lateness.unseen:
        unseen_rows = counted(audit.lateness.unseen, "row")
        return f"no result says when {unseen_rows} with planned times were sent"
    return "all promises hold"


_FITS = {
    True: "these fit a kept run",
    False: "these fit no kept run",
    None: "these are not the requests of these rows alone",
}


def witnesses(audit: Audit) -> list[str]:
    """Return lines on what servers say of the run: states, proof, sums, tiers, acceptance."""
    lines = []
    states = audit.states
    if audit.ceiling or audit.sums or set(states) - {"client"}:
        said = ", ".join(f"{counted(count, 'row')} {STATES[state]}" for state, count in states.items())
        lines.append(f"cached tokens: {said}")
    if (found := audit.ceiling) is not None:
        if found.kept:
            lines.append(
                "counters: no row can find more than its plan, and all together found the plan: each row "
                "found exactly its plan"
            )
        lines += [
            f"counters prove no single row: it does not hold that {each.name} ({each.seen})"
            for each in found.failed
        ]
    for each in audit.sums:
        cached = NOT_OBSERVED if each.cached_tokens is None else f"{each.cached_tokens:,}"
        lines.append(
            f"{each.witness}: {cached} cached of {each.prompt_tokens:,} prompt tokens; planned for {each.of} "
            f"{each.planned_cached_tokens:,} of {each.planned_prompt_tokens:,}: {_FITS[each.fits]}"
        )
    if audit.tiers:
        tiers = ", ".join(f"{count:,} {tier}" for tier, count in audit.tiers.items())
        lines.append(f"cached tokens by tier: {tiers}")
    if (drafts := audit.acceptance) is not None:
        lines.append(
            f"acceptance length of the whole run: {number(drafts.length)} = {drafts.output_tokens:,} output "
            f"tokens / {drafts.verify_steps:,} verify steps, each step's bonus token included "
            f"({drafts.witness})"
        )
        told = (
            (drafts.by_slots, "by slots", "draft slots"),
            (drafts.by_proposals, "by proposals", "proposed drafts"),
        )
        lines += [
            f"acceptance {name}: {NOT_OBSERVED if rate is None else f'{rate:.4f}'} = accepted drafts / {of}"
            for rate, name, of in told
        ]
        lines += [f"acceptance on the task {name}: {like}" for name, like in drafts.tasks.items()]
    return [*lines, *audit.notes]


def by_kind(audit: Audit, most: int) -> list[tuple[str, Summary]]:
    """Return (name, summary) of the splits, then of each rank, group, class and round.

    Of each kind at most `most` are kept, those with findings and the lowest; `left_out` counts the others.
    """
    named = [(summary.split.value, summary) for summary in audit.by_split]
    for lot in _kinds(audit):
        for summary in lowest_ranks(lot, most):
            name = f"  {summary.by} {summary.key}"
            named.append((name if len(audit.by_split) == 1 else f"{name} {summary.split}", summary))
    return named


def left_out(audit: Audit, most: int) -> list[str]:
    """Return how many ranks, groups, classes and rounds `by_kind` leaves out: "24 more ranks"."""
    return [f"{len(lot) - most:,} more {_PLURAL[lot[0].by]}" for lot in _kinds(audit) if len(lot) > most]


def at_zero(audit: Audit) -> str:
    """Return which ranks, groups, classes and rounds found nothing, against the plan; "" where none."""
    found = [
        f"{summary.by} {summary.key}"
        for lot in _kinds(audit)
        for summary in lot
        if summary.mean is not None and summary.mean.cached == 0 and summary.findings
    ]
    more = f" and {len(found) - AT_ZERO} more" if len(found) > AT_ZERO else ""
    return f"found nothing cached: {', '.join(found[:AT_ZERO])}{more}" if found else ""


def _kinds(audit: Audit) -> tuple[Sequence[Summary], ...]:
    return audit.by_rank, audit.by_group, audit.by_class, audit.by_round


def promises(audit: Audit) -> list[tuple[str, str, str]]:
    """Return (promise, planned, observed) for the three promises about cached tokens."""
    planned, observed = audit.planned, audit.promises
    measured = any(not outcome.row.split.primes for outcome in audit.outcomes)
    limit = _limit(audit)
    return [
        (f"configured ({limit})", "none" if limit == NO_BOUND else shown_ratio(planned.configured), ""),
        ("on aggregate", shown_ratio(planned.aggregate), shown(observed.aggregate) if measured else ""),
        (
            "worst request",
            shown_ratio(planned.per_request_min),
            shown(observed.per_request_min) if measured else "",
        ),
    ]


def _limit(audit: Audit) -> str:
    """Return how the configured ratio bounds the requests."""
    if len(audit.classes) > 1:
        return "mean of classes"
    bound = audit.classes[0].bound if audit.classes else UNBOUNDED
    if bound.aggregate is not None:
        return "on aggregate"
    if audit.classes and asked(bound) == AS_PLANNED:
        return NO_BOUND
    return "at most" if bound.max_tokens is not None else "at least"


def asked(bound: Bound) -> str:
    """Return what a class asks of its requests: at least 90 %, at most 0 tokens."""
    if bound.aggregate is not None:
        return f"{_short(bound.aggregate)} +- {_short(bound.tolerance)} % in all"
    if bound.max_tokens is not None:
        return f"at most {bound.max_tokens} tokens"
    least = [f"{_short(bound.min_ratio)} %"] if bound.min_ratio is not None else []
    least += [f"{bound.tokens} tokens"] if bound.tokens is not None else []
    return f"at least {' and '.join(least)}" if least else AS_PLANNED


def class_cells(audit: Audit) -> list[list[str]]:
    """Return the cells of CLASS_NAMES for each class; no line if the spec has one class."""
    if len(audit.classes) <= 1:
        return []
    return [
        [
            of.name or "",
            asked(of.bound),
            *map(shown, (of.planned, of.observed, of.planned_min, of.observed_min)),
        ]
        for of in audit.classes
    ]


def recorded(audit: Audit) -> str:
    """Return a sentence on turns that found their recorded answers cached, "" if there are none."""
    if not audit.recorded:
        return ""
    reused = "found recorded answers cached, too: the server reused its own output"
    return f"{counted(audit.recorded, 'row')} {reused}"


def unseen(audit: Audit) -> str:
    """Return a sentence if no result holds its text, "" if some result does."""
    if not audit.outcomes or any(o.result and o.result.text_sha256 for o in audit.outcomes):
        return ""
    return "no result holds its text: a run of another set of this shape would look the same"


def sending(audit: Audit) -> list[str]:
    """Return lines on when requests were sent: against their planned times, and rank against rank."""
    said = []
    times, together = audit.lateness, audit.overlap
    if times and times.seen:
        limit = f"at most {times.limit:g} s is asked"
        said.append(f"sent off the planned times: {_off(times.seen)} ({limit})")
        worst = sorted(times.by_rank.items(), key=lambda each: -abs(each[1].most))
        late = [(rank, delays) for rank, delays in worst if abs(delays.most) > times.limit]
        said += [f"  rank {rank}: {_off(delays)}" for rank, delays in late[:LATE_RANKS]]
        said += [f"  and {len(late) - LATE_RANKS} more ranks"] * (len(late) > LATE_RANKS)
    if times and times.unseen:
        rows = counted(times.unseen, "row")
        why = "no result says when they were sent; --late inf asks nothing of them"
        said.append(f"planned times of {rows}: {NOT_OBSERVED}, {why}")
    if together and together.seconds > 0:
        said.append(
            f"all {together.ranks} ranks ran together for {together.seconds:.3f} s of {together.whole:.3f} s"
        )
    elif together:
        apart = f"rank {together.first} had ended {-together.seconds:.3f} s before rank {together.last} began"
        said.append(f"the {together.ranks} ranks did not run together: {apart}")
    return said + _cut(audit)


def _cut(audit: Audit) -> list[str]:
    """Return where a run was cut whose files could not all be read: its rows with a result, its last end."""
    missing = sum(outcome.result is None for outcome in audit.outcomes)
    if not audit.problems or not missing or not audit.results:
        return []
    line = audit.timeline
    last = (
        f", the last of them ended at {line.end.max() - line.start.min():.3f} s"
        if line.start is not None
        else ""
    )
    return [f"cut: {counted(audit.results, 'row')} of {len(audit.outcomes):,} have a result{last}"]


def _off(delays: Delays) -> str:
    return f"p50 {delays.p50:.3f} s, most {delays.most:.3f} s, {counted(delays.requests, 'request')}"


def _short(ratio: Fraction) -> str:
    return f"{float(100 * ratio):.6g}"


def shown(ratio: CachedRatio | None) -> str:
    """Return a ratio as a percentage that never rounds up to a bound, or NOT_OBSERVED."""
    return NOT_OBSERVED if ratio is None else percent(*ratio)


def shown_ratio(ratio: float) -> str:
    """Return a ratio of the manifest as a percentage."""
    return percent_of(ratio)


def by_promise(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    """Return the findings of each broken promise, promises in the order of MEANING."""
    grouped: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        grouped[finding.promise].append(finding)
    return {promise: grouped[promise] for promise in MEANING if promise in grouped}


def lowest_ranks(summaries: Sequence[Summary], count: int) -> list[Summary]:
    """Return at most `count` ranks in their order: those with findings and with the lowest minimum."""
    ranked = sorted(summaries, key=lambda s: (-s.findings, s.minimum.value if s.minimum else -1.0))
    kept = {id(summary) for summary in ranked[:count]}
    return [summary for summary in summaries if id(summary) in kept]


def spreads(window: Figures) -> list[tuple[str, Spread]]:
    """Return (name, spread in seconds) of each latency that the window has, and of its send spacing."""
    found = (
        ("TTFT", window.ttft),
        ("TPOT", window.tpot),
        ("E2EL", window.e2el),
        ("send spacing", window.spacing),
    )
    return [(name, spread) for name, spread in found if spread is not None]


def spread_cells(spread: Spread) -> list[str]:
    """Return mean, p50, p90 and p99 in one unit, which the last cell names."""
    values = (spread.mean, spread.p50, spread.p90, spread.p99)
    scale, unit = (1, "s") if max(values) >= 1 else (1000, "ms")
    return [*(number(value * scale) for value in values), unit]


def headline(window: Figures) -> list[str]:
    """Return the phrases that describe a window, without its latencies."""
    said = [counted(window.members, "request")]
    if window.duration is not None:
        said[0] += f" in {number(window.duration)} s"
    if window.start:
        said[0] += f", from {number(window.start)} s"
    if window.output_tokens_per_s is not None:
        said.append(f"{number(window.output_tokens_per_s)} output tokens/s")
    if window.output_tokens_per_s_per_card is not None:
        said[-1] += f", {number(window.output_tokens_per_s_per_card)} a card"
    if window.requests_per_s is not None:
        said.append(f"{number(window.requests_per_s)} requests/s")
    if window.peak_concurrency is not None and window.mean_concurrency is not None:
        concurrency = f"peak {window.peak_concurrency}, mean {number(window.mean_concurrency)}"
        limit = (
            f"limit {window.concurrency}"
            if window.concurrency_given
            else "no limit given, so its peak counts as the limit"
        )
        said.append(f"concurrency {concurrency}, {limit}")
    if window.planned_spacing is not None:
        said.append(f"send spacing planned {number(window.planned_spacing * 1000)} ms")
    return said


def number(value: float) -> str:
    """Return a number with four digits, or with all digits before the point if these are more."""
    return f"{value:,.0f}" if abs(value) >= WHOLE_NUMBERS else f"{value:.4g}"


def broken_promises(outcome: RowOutcome) -> str:
    """Return a row's broken promises in one line, "" if there are none."""
    promises = ", ".join(sorted({finding.promise for finding in outcome.findings}))
    return f"{outcome.row.id}: {promises}" if promises else ""
