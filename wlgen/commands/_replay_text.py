"""The words of a replay's report."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.commands._answer import shape_of
from wlgen.pages import percent
from wlgen.simulate.hits import HitFigures
from wlgen.simulate.replay import PassReport, Report

_SHOWN = 5


def report_keys(report: Report) -> dict[str, Any]:
    """Return the report as the keys of the command's answer: ratios are of prompt_len, lengths are tokens."""
    page_size = report.rule.page_size
    return {
        "rule": report.rule.numbers,
        "own_rule": report.own_rule,
        "capacity": report.capacity,
        "holds": report.holds,
        "reading": list(report.reading),
        "in_flight": report.in_flight,
        "passes": [dataclasses.asdict(one) for one in report.passes],
        "working_set": {r: {"tokens": t, "pages": t // page_size} for r, t in report.working_set.items()},
        "evicted": {
            "tokens": sum(e.tokens for e in report.evictions),
            "first": report.evictions[0]._asdict() if report.evictions else None,
            "most": [{"id": name, "tokens": tokens} for name, tokens in _most_evicted(report)],
        },
    }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TokensHeld:
    """Whole pages that a rank holds at the end, and their tokens."""

    tokens: int
    pages: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TokensEvicted:
    """Tokens of one request that others pushed out."""

    id: str
    tokens: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FirstEviction:
    """The first time that a request pushed out what another had brought in."""

    dp_rank: int
    by: str
    of: str
    tokens: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvictedInAll:
    """All evictions of a replay under a capacity; 0 tokens and null where there was none."""

    tokens: int
    first: FirstEviction | None
    most: list[TokensEvicted]


def report_shape() -> Any:
    """Return the model of what `wlgen simulate --json` prints."""
    return shape_of(
        "simulate",
        rule=RuleNumbers,
        own_rule=bool,
        capacity=int | None,
        holds=bool,
        reading=list[str],
        in_flight=int,
        passes=list[PassReport],
        working_set=dict[int, TokensHeld],
        evicted=EvictedInAll,
    )


def report_lines(report: Report) -> Iterator[str]:
    """Yield the report's lines."""
    yield f"rule       {rule_words(report.rule)}"
    for line in report.reading:
        yield f"read       {line}"
    if report.in_flight > 1:
        yield f"in flight  {report.in_flight} requests of a rank run together, after its seeds and checks"
    for number, one in enumerate(report.passes, 1):
        yield from _pass_lines(one, f"pass {number}" if len(report.passes) > 1 else "", report)
    yield from _working_set_lines(report)
    if report.capacity is not None:
        yield from _eviction_lines(report)
    if not report.holds:
        yield "NOT MET: a request is outside its bound."


def rule_words(rule: CacheRule) -> str:
    """Say a rule: its name and its numbers."""
    words = [
        f"{rule.name}: {rule.engine}, pages of {rule.page_size}, hits in multiples of {rule.hit_quantum}"
    ]
    words += [f"window {rule.sliding_window}"] if rule.sliding_window else []
    words += [f"state kept every {rule.retention}"] if rule.retention else []
    words += ["speculative"] if rule.speculative else []
    return ", ".join(words)


def _pass_lines(one: PassReport, title: str, report: Report) -> Iterator[str]:
    heads = ("requests", "least", "1 % point", "median", "mean", "aggregate", "least tokens")
    yield ""
    yield f"{title:10} " + " ".join(f"{head:>12}" for head in heads)
    for split, figures in one.splits.items():
        yield f"{split or 'all':10} " + _figures(figures)
    for ranks, figures in _alike(one.ranks) if len(one.ranks) > 1 else ():
        yield f"{ranks:10} " + _figures(figures)
    if one.outside:
        found = one.outside
        wanted = f"at least {found.least}" if found.least else f"at most {found.most}"
        if found.least and found.most < found.prompt_len:
            wanted = f"{found.least} to {found.most}"
        yield (
            f"outside the bound: {found.count} request{'s' * (found.count != 1)}, first {found.id} on rank "
            f"{found.dp_rank}: "
            f"{found.cached_len} cached, {wanted} asked for"
        )
    if report.own_rule and one.unpromised:
        finds = "requests find" if one.unpromised > 1 else "request finds"
        yield f"{one.unpromised} {finds} another cached_len than the set promises"


def _alike(by_rank: Mapping[int, HitFigures]) -> Iterator[tuple[str, HitFigures]]:
    """Yield runs of neighbouring ranks that have the same figures: ranks 0-15, each 41 requests."""
    for figures, run in groupby(by_rank, key=by_rank.__getitem__):
        ranks = list(run)
        yield f"rank {ranks[0]}" if len(ranks) == 1 else f"each {ranks[0]}-{ranks[-1]}", figures


def _figures(found: HitFigures) -> str:
    ratios = (found.least, found.p1, found.p50, found.mean)
    # A ratio rounds down: 89.99999 must not read 90.
    shown = [f"{int(ratio * 1_000_000 + 1e-6) / 10_000:.4f} %" for ratio in ratios]
    aggregate = percent(found.cached_tokens, found.prompt_tokens)
    return " ".join(f"{cell:>12}" for cell in (found.requests, *shown, aggregate, found.least_len))


def _working_set_lines(report: Report) -> Iterator[str]:
    page_size = report.rule.page_size
    held = Counter(report.working_set.values())
    yield ""
    for tokens, ranks in sorted(held.items(), reverse=True)[:_SHOWN]:
        on = f"on {ranks} rank{'s' * (ranks != 1)}"
        yield f"held       {tokens} tokens = {tokens // page_size} pages of {page_size}, {on}"
    if len(held) > _SHOWN:
        yield f"           and {len(held) - _SHOWN} other sizes, see --json"


def _eviction_lines(report: Report) -> Iterator[str]:
    if not report.evictions:
        yield f"evicted    nothing: {report.capacity} tokens a rank are enough"
        return
    first = report.evictions[0]
    yield f"evicted    {sum(e.tokens for e in report.evictions)} tokens"
    pushed = f"pushed out {first.tokens} tokens of {first.of}"
    yield f"           first {first.by} on rank {first.dp_rank} {pushed}"
    most = ", ".join(f"{name} ({tokens})" for name, tokens in _most_evicted(report))
    yield f"           most of {most}"


def _most_evicted(report: Report) -> list[tuple[str, int]]:
    tokens: Counter[str] = Counter()
    for eviction in report.evictions:
        tokens[eviction.of] += eviction.tokens
    return tokens.most_common(_SHOWN)
