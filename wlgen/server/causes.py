"""Why a check fell short. A preparation knows more than an audit: which seeds the server answered, say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from wlgen.audit.diagnosis import Diagnosis, Pair, diagnose
from wlgen.cache.rule import CacheRule
from wlgen.workload.rows import Row

_MISSES = ("rank_not_seeded", "unpinned")  # the causes that an audit names if checks find nothing cached


def causes(
    pairs: Sequence[Pair],
    rule: CacheRule,
    *,
    seeds: Sequence[Row],
    pinned: bool,
    restarted: bool,
) -> list[Diagnosis]:
    """Return why rows fell short, the surest cause first.

    pairs: the rows that were sent, each with its result. seeds: the seeds that the server answered.
    pinned: whether the preflight proved that the server keeps pins. restarted: whether one of its counts
    fell, which only a restart does.
    """
    found = diagnose(pairs, rule)
    if restarted:
        return [_restarted(len(pairs)), *found]
    missed = {p.row.dp_rank for p in pairs if p.row.cached_len > 0 and p.result.cached_tokens == 0}
    lost = missed & {row.dp_rank for row in seeds}
    misses = [d for d in found if d.cause in _MISSES]
    if not (misses and lost):
        return found
    rest = [d for d in found if d not in misses]
    lost_seeds = [row for row in seeds if row.dp_rank in lost]
    return [_lost(lost_seeds, rule, sum(d.rows for d in misses), pinned=pinned), *rest]


def _lost(seeds: Sequence[Row], rule: CacheRule, rows: int, *, pinned: bool) -> Diagnosis:
    tokens = Counter[int]()
    for row in seeds:
        tokens[row.dp_rank] += row.prompt_len
    reasons = []
    if not pinned:
        reasons.append("pins are dropped on the way, so the seeds went elsewhere")
    quantum = rule.hit_quantum
    if any((row.prompt_len - 1) // quantum != row.shared_len // quantum for row in seeds):
        reasons.append(
            "the model is hybrid (sliding window, Mamba, DeepSeek-V4) and keeps state only where a prompt "
            "ends, which for these seeds is not where the shared prefix ends (seed with `shape: short`)"
        )
    reasons += [
        "prefix caching is off",
        f"a rank's cache holds less than the {max(tokens.values())} tokens of its seeds",
        "something emptied it meanwhile",
    ]
    shown = ", ".join(str(rank) for rank in sorted(tokens)[:16])
    return Diagnosis(
        cause="rank_not_seeded",
        rows=rows,
        evidence=f"rank {shown} answered its seeds, and checks there find 0 cached tokens: "
        f"{', or '.join(reasons)}",
        remedy="Look at the server's flags and log: prefix caching on, KV cache size, restarts, a router.",
    )


def _restarted(rows: int) -> Diagnosis:
    return Diagnosis(
        cause="server_restarted",
        rows=rows,
        evidence="the server's own count of requests is below what it has answered: it restarted",
        remedy="Find out why in its log, then run `wlgen prepare` again: it seeds anew.",
    )
