"""Diagnosis: names the cause where the pattern of what was observed has a known one. A pure function."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from wlgen.audit.findings import Promised
from wlgen.audit.remedies import FRAMINGS, OTHER_FRAMING, REMEDIES
from wlgen.cache.rule import CacheRule
from wlgen.pages import floor_to
from wlgen.readers import Result

LISTED_RANKS = 16
PATTERN = 2  # one row alone shows no pattern
MISSES = 0.1  # part of the rows that at least miss where requests are not pinned


class Pair(NamedTuple):
    """A row and what was observed of it."""

    row: Promised
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A known cause: its name, how many rows show it, the evidence, and what to do."""

    cause: str
    rows: int
    evidence: str
    remedy: str


class _Seen(NamedTuple):
    """A row whose cached tokens were observed and are at most its prompt."""

    row: Promised
    cached: int

    @property
    def short(self) -> int:
        return 0 if self.row.equals(self.cached) else self.row.cached_len - self.cached


_ByRank: TypeAlias = dict[int, list[_Seen]]


def diagnose(pairs: Sequence[Pair], rule: CacheRule) -> list[Diagnosis]:
    """Return the known causes that the pairs show; none where all is as promised or no pattern is known.

    pairs: in plan order, of any number of splits, one a row. Rows are taken in the order they were sent
    where every start is known, in plan order otherwise.
    """
    sent = [p for p in pairs if p.result.success]
    first = sent[0].row.id if sent else ""
    if all(p.result.start is not None for p in sent):
        sent.sort(key=lambda p: p.result.start or 0.0)
    seen = [
        _Seen(p.row, p.result.cached_tokens)
        for p in sent
        if p.result.cached_tokens is not None and not _over(p)
    ]
    framing = list(_framing(sent))
    return [
        *framing,
        *_double_count(sent),
        *_not_observed(sent),
        *_other_rank(sent),
        *(() if framing else _above(seen, first)),  # other prompts than planned: their hits say nothing
        *_unprimed([s for s in seen if s.row.bound.cold]),
        *_short([s for s in seen if not s.row.bound.cold], rule),
    ]


def _diagnosis(cause: str, rows: int, evidence: str) -> Diagnosis:
    return Diagnosis(cause=cause, rows=rows, evidence=evidence, remedy=REMEDIES[cause])


def _over(pair: Pair) -> bool:
    prompt = pair.row.prompt_len if pair.result.prompt_tokens is None else pair.result.prompt_tokens
    return pair.result.cached_tokens is not None and pair.result.cached_tokens > prompt


def _framing(pairs: Sequence[Pair]) -> Iterator[Diagnosis]:
    counted = [p for p in pairs if p.result.prompt_tokens is not None]
    differences = {(p.result.prompt_tokens or 0) - p.row.prompt_len for p in counted}
    if len(differences) == 1 and 0 not in differences:
        difference = differences.pop()
        cause = FRAMINGS.get(difference, OTHER_FRAMING)
        yield _diagnosis(
            "framing", len(counted), f"every prompt is {difference:+d} tokens from its plan: {cause}"
        )


def _double_count(pairs: Sequence[Pair]) -> Iterator[Diagnosis]:
    if over := sum(map(_over, pairs)):
        evidence = f"{over} rows report more cached tokens than their prompt has: both servers of a prefill-"
        yield _diagnosis(
            "double_count", over, evidence + "decode pair were counted, so the figure proves nothing"
        )


def _not_observed(pairs: Sequence[Pair]) -> Iterator[Diagnosis]:
    if missing := sum(p.result.cached_tokens is None for p in pairs):
        which = "no row reports" if missing == len(pairs) else f"{missing} of {len(pairs)} rows do not report"
        evidence = (
            f"{which} cached tokens: the server does not send the figure or the client does not keep it"
        )
        yield _diagnosis("not_observed", missing, evidence)


def _other_rank(pairs: Sequence[Pair]) -> Iterator[Diagnosis]:
    ranked = [p for p in pairs if p.result.dp_rank is not None]
    if moved := sum(p.result.dp_rank != p.row.dp_rank for p in ranked):
        evidence = f"{moved} of {len(ranked)} rows were served by another rank than planned"
        yield _diagnosis("other_rank", moved, evidence)


def _above(seen: Sequence[_Seen], first: str) -> Iterator[Diagnosis]:
    above = [s for s in seen if s.short < 0]
    levels = {s.cached for s in above}
    if [s.row.id for s in above] == [first] and len(seen) > 1:
        evidence = "only the first row is above its plan: a warm-up request sent it before"
        yield _diagnosis("warmup_row_0", 1, evidence)
    elif (
        len(above) >= PATTERN and len(levels) == 1 and max(levels) * 2 < min(s.row.prompt_len for s in above)
    ):
        evidence = f"{len(above)} rows find the same {max(levels)} tokens, more than planned: something all "
        yield _diagnosis("common_prefix", len(above), evidence + "prompts share stands before their own text")
    elif len(above) * 2 > len(seen):
        evidence = f"{len(above)} of {len(seen)} rows are above their plan: the server had seen these prompts"
        yield _diagnosis("sent_twice", len(above), evidence + " before")


def _unprimed(seen: Sequence[_Seen]) -> Iterator[Diagnosis]:
    """Yield why rows without a bound (a cold class, a trace) lack what the rows before them leave."""
    warm = [s for s in seen if s.row.cached_len > 0 and not s.row.split.primes]
    short = [s for s in warm if s.short > 0]
    if len(short) < PATTERN:
        return
    if not any(s.cached for s in warm):
        evidence = f"all {len(warm)} rows that should find what others have left find 0 cached tokens"
        yield _diagnosis("no_reuse", len(warm), evidence)
    else:
        evidence = f"{len(short)} of {len(warm)} rows find less than the rows before them on their rank leave"
        yield _diagnosis("other_order", len(short), evidence)


def _short(seen: Sequence[_Seen], rule: CacheRule) -> Iterator[Diagnosis]:
    by_rank: _ByRank = defaultdict(list)
    for s in seen:
        if s.row.cached_len > 0 and s.row.bound.max_tokens is None:
            by_rank[s.row.dp_rank].append(s)
    empty = [rank for rank, rows in sorted(by_rank.items()) if not any(s.cached for s in rows)]
    rest = {rank: rows for rank, rows in by_rank.items() if rank not in empty}
    found = list(_pattern(rest, rule))
    if found and found[0].cause == "unpinned":
        # Unpinned rows that hit one time in many leave some ranks at 0 by chance; those are no cause apart.
        yield from _scattered(by_rank)
        return
    if empty:
        yield _unseeded(empty, by_rank)
    yield from found


def _pattern(ranks: _ByRank, rule: CacheRule) -> Iterator[Diagnosis]:
    # One cause a row: a tail of zeros would otherwise also count as rows scattered over the ranks.
    known = (_constant(ranks, rule), _first_of_rank(ranks, rule), _falling_tail(ranks), _scattered(ranks))
    for found in known:
        for diagnosis in found:
            yield diagnosis
            return


def _unseeded(empty: Sequence[int], by_rank: _ByRank) -> Diagnosis:
    shown = ", ".join(map(str, empty[:LISTED_RANKS]))
    if len(empty) > LISTED_RANKS:
        shown += f" and {len(empty) - LISTED_RANKS} more"
    evidence = f"all rows of rank {shown} find 0 cached tokens: "
    if len(empty) == len(by_rank):
        evidence += "nothing was seeded, or a flush came after the seeds, or prefix caching is off"
    else:
        evidence += "its seed was not sent, failed, or went to another rank"
    return _diagnosis("rank_not_seeded", sum(len(by_rank[rank]) for rank in empty), evidence)


def _constant(ranks: _ByRank, rule: CacheRule) -> Iterator[Diagnosis]:
    rows = [s for rank in ranks.values() for s in rank]
    lacks = {s.short for s in rows}
    if len(lacks) != 1 or min(lacks) <= 0:
        return
    lack, quantum = lacks.pop(), rule.hit_quantum
    causes = []
    if lack == quantum and not rule.speculative:
        causes.append("speculative decoding (EAGLE/MTP) is on and costs one quantum")
    if larger := _larger_quantum(rows, quantum):
        causes.append(f"the hit quantum is {larger}, not {quantum}")
    if all(len(rank) == 1 for rank in ranks.values()):  # no later row shows that the next one hits in full
        causes.append("the seed was full-length on a hybrid model, whose first sibling falls short")
    causes = causes or ["the server keeps less of the prefix than the rule says"]
    evidence = f"every row is short by the same {lack} tokens ({lack / quantum:g} of the {quantum}-token hit "
    yield _diagnosis("short_by_constant", len(rows), f"{evidence}quantum): {', or '.join(causes)}")


def _larger_quantum(rows: Sequence[_Seen], quantum: int) -> int:
    # The least multiple by doubling that explains each row; 0 where none does.
    candidate = quantum * 2
    while candidate <= max(s.row.shared_len for s in rows):
        if all(floor_to(min(s.row.shared_len, s.row.prompt_len - 1), candidate) == s.cached for s in rows):
            return candidate
        candidate *= 2
    return 0


def _first_of_rank(ranks: _ByRank, rule: CacheRule) -> Iterator[Diagnosis]:
    flags = [[s.short > 0 for s in rows] for rows in ranks.values() if len(rows) > 1]
    leading = sum(f[0] for f in flags)
    if not leading or leading * 2 < len(flags) or any(any(f[1:]) for f in flags):
        return
    firsts = [rows[0] for rows in ranks.values() if rows[0].short > 0]
    if not rule.hybrid and not any(s.cached for s in firsts):
        # A dense model keeps a seed of any length: the first row computed the prefix that later ones find.
        evidence = f"the first row of {len(firsts)} of {len(ranks)} ranks finds 0 cached tokens and later "
        evidence += "ones find their prefix: the rank was not seeded, or was flushed after its seed"
        yield _diagnosis("rank_not_seeded", len(firsts), evidence)
        return
    lack = Counter(s.short for s in firsts).most_common(1)[0][0]
    evidence = (
        f"the first row of {leading} of {len(ranks)} ranks falls short, by {lack} tokens, and later ones "
    )
    evidence += "do not: a full-length seed on a hybrid model (sliding window, Mamba, DeepSeek-V4) keeps no "
    yield _diagnosis("first_of_rank", leading, evidence + "state where the shared prefix ends")


def _falling_tail(ranks: _ByRank) -> Iterator[Diagnosis]:
    tails = []
    for rows in ranks.values():
        flags = [s.short > 0 for s in rows]
        start = flags.index(True) if any(flags) else len(flags)
        if start == 0 or not all(flags[start:]):
            return
        tails.append(len(flags) - start)
    if max(tails, default=0) >= PATTERN:
        evidence = (
            f"the last {sum(tails)} rows fall short and none before them: the prefix was evicted meanwhile"
        )
        yield _diagnosis("falling_tail", sum(tails), evidence)


def _scattered(ranks: _ByRank) -> Iterator[Diagnosis]:
    rows = [s for rank in ranks.values() for s in rank]
    zeros = sum(s.cached == 0 for s in rows)
    # One rank has nowhere else to send to, and a balancer misses often: a few zeros have another cause.
    if zeros >= max(PATTERN, len(rows) * MISSES) and len(ranks) > 1:
        hits = sum(s.short <= 0 for s in rows)
        evidence = (
            f"{zeros} rows scattered over the ranks find 0 and {hits} of {len(rows)} find their prefix: "
        )
        yield _diagnosis("unpinned", zeros, evidence + "the requests do not go to the ranks that hold it")
