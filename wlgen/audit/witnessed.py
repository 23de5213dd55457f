"""The second witness: what servers say of a run, besides the client's results.

Each count of cached tokens names its witness. A client's count is "observed (by client)", and a request
file's "observed (by server)". A count that the sums of two scrapes prove is "proved by ceiling" (ceiling.py).
A row without any count is "not observed", which is neither a miss nor a pass.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from wlgen.audit.ceiling import Ceiling, SentRows, prove
from wlgen.audit.findings import Promised
from wlgen.audit.given import Given, RequestFiles, Span, span_of
from wlgen.audit.join import Joined
from wlgen.cache.rule import CacheRule
from wlgen.readers import Result
from wlgen.witnesses import ServedRequest
from wlgen.workload.manifest import Manifest
from wlgen.workload.rows import Finding

State: TypeAlias = Literal["client", "server", "ceiling", "unobserved"]
STATES: Mapping[State, str] = {
    "client": "observed (by client)",
    "server": "observed (by server)",
    "ceiling": "proved by ceiling",
    "unobserved": "not observed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedResult:
    """A result of a row with the count that holds, its witness, and the findings of the witnesses."""

    result: Result
    state: State
    findings: tuple[Finding, ...] = ()


@dataclass(kw_only=True, slots=True)
class Judged:
    """The results of each row, once all witnesses are taken into account.

    findings: those of the set as a whole. notes: figures that do not count. assumed_zero: as in Audit.
    """

    of_row: dict[str, list[JudgedResult]] = field(default_factory=dict)
    ceiling: Ceiling | None = None
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    assumed_zero: int = 0


def judge(
    joined: Joined,
    asked: Sequence[Promised],
    served: RequestFiles,
    given: Given,
    manifest: Manifest,
    *,
    absent_is_zero: bool,
    by_server: bool,
) -> Judged:
    """Hear all witnesses of each row; by_server: the results themselves are the server's request file.

    The order: a request file's figure before the client's, since a client may read the other server of a
    pair; figures that cannot be the prefill side's are set aside; then the counters, which decide for a pair
    and prove what nobody observed.
    """
    rule, judged = manifest.cache, Judged()
    lots: list[tuple[Promised, JudgedResult]] = []
    # A figure of the decode server shows a pair, though nobody said so.
    pair = given.is_pair or any(_other_side(row, r.cached_tokens, rule) for row, r in joined.pairs)
    refused = 0
    for row, read in joined.pairs:
        result = _with_zero(read) if absent_is_zero else read
        judged.assumed_zero += result is not read
        records = () if by_server else served.by_row.get(row.id, ())
        result, state, findings = _completed(result, records, row)
        if by_server and state == "client":
            state = "server"
        if pair:
            result = dataclasses.replace(result, dp_rank=None)  # the decode side's, whatever the plan
        if words := _other_side(row, result.cached_tokens, rule) if state == "client" else "":
            refused += 1
            got = f"{result.cached_tokens}, {words}: the decode server's figure, or a sum of both servers"
            findings.append(Finding(id=row.id, promise="cached_of_prefill", expected=row.cached_len, got=got))
            result, state = dataclasses.replace(result, cached_tokens=None), "unobserved"
        lots.append((row, JudgedResult(result=result, state=state, findings=tuple(findings))))
    names = {row.id for row in asked}
    strange = [f"{len(joined.foreign)} foreign"] * bool(joined.foreign)
    strange += [f"{len(joined.problems)} places could not be read"] * bool(joined.problems)
    for pairs in ([(r, j.result) for r, j in lots if r.id in names], [(r, j.result) for r, j in lots]):
        spoilt = [*_spoilt_by(pairs, asked), *strange]
        judged.ceiling = _ceiling_of(given, pairs, spoilt=spoilt, rule=rule, set_sha256=manifest.spec_sha256)
        if judged.ceiling is None or judged.ceiling.comparable:
            break
    if served.elsewhen:
        span = Span(min(served.elsewhen), max(served.elsewhen))
        judged.notes.append(
            f"{len(served.elsewhen)} records of the request files do not count: they are of {span}, "
            "and the run was at another time"
        )
    _hear_counters(judged, lots, given, manifest.name, refused)
    return judged


def _hear_counters(
    judged: Judged, lots: Sequence[tuple[Promised, JudgedResult]], given: Given, name: str, refused: int
) -> None:
    """Let the counters decide, and put each row's results into `judged`."""
    found = judged.ceiling
    against = list(_contradictions(found, [(row, each.result) for row, each in lots], name))
    decide = given.is_pair and found is not None and found.comparable and bool(against)
    if decide:
        judged.notes += [
            f"{f.expected} against {f.got}: the prefill side decides, since a decode server with a radix "
            "cache of its own claims hits where the prefill side computes"
            for f in against
        ]
    else:
        judged.findings += against
    kept = found is not None and found.kept
    if refused:
        words = (
            "the counters of the server that holds the prefix cache decide"
            if kept
            else ("give the prefill servers' own figures: --counters or --requests")
        )
        judged.notes.append(f"{refused} figures of the results are not the prefill side's: {words}")
    for row, each in lots:
        now = each
        if decide and each.state == "client":
            result = dataclasses.replace(each.result, cached_tokens=None)
            now = dataclasses.replace(each, result=result, state="unobserved")
        if kept and now.state == "unobserved" and now.result.success:
            now = JudgedResult(
                result=dataclasses.replace(now.result, cached_tokens=row.cached_len),
                state="ceiling",
                findings=tuple(f for f in now.findings if f.promise != "cached_of_prefill"),
            )
        judged.of_row.setdefault(row.id, []).append(now)
    judged.findings += _shortfall_findings(found, name)
    judged.findings += _rank_findings(found, [row for row, _ in lots], name)


def _with_zero(result: Result) -> Result:
    # A garbled count is not a missing one: the server reported something, and nobody knows what.
    counted = result.success and result.prompt_tokens is not None and not result.garbled
    if counted and result.cached_tokens is None:
        return dataclasses.replace(result, cached_tokens=0)
    return result


def _completed(
    result: Result, served: Sequence[ServedRequest], row: Promised
) -> tuple[Result, State, list[Finding]]:
    """Return a row's result with the server's counts, its state, and where client and server differ.

    If both have a count, the server's own record decides: a client may read the other server of a pair.
    """
    findings: list[Finding] = []
    if len(served) > 1:
        shown = f"{len(served)} records of the server"
        findings.append(Finding(id=row.id, promise="sent_once", expected=1, got=shown))
    if not served or not result.success:
        return result, "unobserved" if result.cached_tokens is None else "client", findings
    record = served[-1]
    names = {"prompt_tokens": "prompt", "cached_tokens": "cached", "output_tokens": "output"}
    for name, words in names.items():
        said, counted = getattr(result, name), getattr(record, name)
        if said is not None and counted is not None and said != counted:
            expected, got = f"{said} {words} tokens (client)", f"{counted} (server's request file)"
            findings.append(Finding(id=row.id, promise="witnesses", expected=expected, got=got))
    figures = {name: getattr(record, name) for name in names if getattr(record, name) is not None}
    state: State = "client"
    if record.cached_tokens is not None:
        state = "client" if result.cached_tokens == record.cached_tokens else "server"
    elif result.cached_tokens is None:
        state = "unobserved"
    return dataclasses.replace(result, **figures), state, findings


def _ceiling_of(
    given: Given,
    pairs: Sequence[tuple[Promised, Result]],
    *,
    spoilt: Sequence[str],
    rule: CacheRule,
    set_sha256: str,
) -> Ceiling | None:
    """Return what the counters prove of the rows that have a result; None without two scrapes."""
    if given.before is None or given.after is None:
        return None
    sent = SentRows(
        rows=[row for row, _ in pairs],
        spoilt=spoilt,
        set_sha256=set_sha256,
        quantum=rule.hit_quantum,
        prompts={row.id: r.prompt_tokens for row, r in pairs if r.prompt_tokens is not None},
        at_other_time=_at_other_time(given.span, span_of(result for _, result in pairs)),
    )
    return prove(sent, given.before, given.after)


def _at_other_time(scraped: Span | None, sent: Span | None) -> str:
    """Return in words that the results were not sent between the scrapes, "" if nothing says so."""
    if scraped is None or sent is None or (scraped.holds(sent.first) and scraped.holds(sent.last)):
        return ""
    return f"they were sent {sent}, and the scrapes are of {scraped}"


def _spoilt_by(pairs: Sequence[tuple[Promised, Result]], asked: Sequence[Promised]) -> list[str]:
    """Return why the results are not each row once, successful and in one attempt."""
    sent = Counter(row.id for row, _ in pairs)
    absent = sum(row.id not in sent for row in asked)
    again = sum(count > 1 for count in sent.values())
    failed = sum(not result.success for _, result in pairs)
    tried = sum(result.attempts > 1 for _, result in pairs)
    changed = sum(r.text_sha256 not in (None, row.text_sha256) for row, r in pairs)
    found = (
        (absent, "without a result"),
        (again, "sent more than once"),
        (failed, "failed"),
        (tried, "tried again"),
        (changed, "sent with another text"),
    )
    return [f"{count} {words}" for count, words in found if count]


def _contradictions(
    found: Ceiling | None, pairs: Sequence[tuple[Promised, Result]], name: str
) -> Iterator[Finding]:
    """Yield a finding if the results' counts and the counters of the same requests have other sums."""
    if found is None or not found.comparable or found.observed is None:
        return
    figures = [result.cached_tokens for _, result in pairs]
    if figures and None not in figures and sum(f or 0 for f in figures) != found.observed:
        yield Finding(
            id=name,
            promise="witnesses",
            expected=f"{sum(f or 0 for f in figures):,} cached tokens (results)",
            got=f"{found.observed:,} (counters of the {_side(found)})",
        )


def _shortfall_findings(found: Ceiling | None, name: str) -> Iterator[Finding]:
    """Yield each sum of cached tokens that falls short, and how many rows must have fallen short."""
    for short in found.short if found is not None else ():
        place = name if short.rank is None else f"{name} rank {short.rank}"
        rows = f"{short.least} row{'s' * (short.least != 1)}"
        if short.most != short.least:
            rows = f"at least {rows}" + (f" and at most {short.most}" if short.most is not None else "")
        yield Finding(
            id=place,
            promise="cached_sum",
            expected=f"{short.planned:,} cached tokens",
            got=f"{short.observed:,}, {short.planned - short.observed:,} short: {rows} fell short",
        )


def _rank_findings(found: Ceiling | None, rows: Sequence[Promised], name: str) -> Iterator[Finding]:
    """Yield each rank that was asked for fewer prompt tokens than its rows have: others got some of them.

    A client behind a router never learns which rank served a row, and SGLang's router drops the pins of a
    chat. More tokens than those of its rows prove nothing: health probes add single ones to a rank.
    """
    if found is None or not found.comparable or not found.moved.ranks:
        return
    planned: Counter[int] = Counter()
    for row in rows:
        planned[row.dp_rank] += row.prompt_len
    for rank, tokens in sorted(planned.items()):
        counted = found.moved.prompt_of(rank)
        if counted is not None and counted < tokens:
            expected, got = (
                f"{tokens:,} prompt tokens, those of its rows",
                f"{counted:,} (counters of the rank)",
            )
            yield Finding(id=f"{name} rank {rank}", promise="dp_rank", expected=expected, got=got)


def _other_side(row: Promised, cached: int | None, rule: CacheRule) -> str:
    """Return why a count of cached tokens cannot be the prefill side's, "" if it can.

    A decode server reports what it received: the whole prompt, or all but its last token, which no prefix of
    whole pages can hit. Some versions add both sides: exactly twice the hit of one side.
    """
    most = rule.most_cached(row.prompt_len)
    if cached is None or cached > row.prompt_len:  # more than the prompt is a finding of its own
        return ""
    if cached > most:
        return f"above {most}, the most that the rule can report for {row.prompt_len} tokens"
    if row.cached_len and cached == 2 * row.cached_len:
        return "exactly twice the plan"
    return ""


def _side(found: Ceiling) -> str:
    return "prefill side" if found.moved.role == "prefill" else "server"
