"""What a preparation knows beyond an audit: which seeds were answered, and whether the server still lives."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from wlgen.cache_rules import CacheRule
from wlgen.diagnosis import Diagnosis, Pair, diagnose

_MISSES = ("rank_not_seeded", "unpinned")  # what an audit concludes from checks that find nothing


def causes(
    pairs: Sequence[Pair],
    rule: CacheRule,
    *,
    seeded: Mapping[int, int],
    pinned: bool,
    restarted: bool,
) -> list[Diagnosis]:
    """Return the causes of rows that fell short, the surest first.

    pairs: rows sent and what came back. seeded: prompt tokens of the seeds that each rank answered. pinned:
    whether pinning was proved. restarted: whether the server is known to have restarted after the seeds.
    """
    found = diagnose(pairs, rule)
    if restarted:
        return [_restarted(len(pairs)), *found]
    missed = {p.row.dp_rank for p in pairs if p.row.cached_len > 0 and p.result.cached_tokens == 0}
    lost = sorted(missed & seeded.keys())
    misses = [d for d in found if d.cause in _MISSES]
    if not (misses and lost):
        return found
    rest = [d for d in found if d not in misses]
    return [_lost(lost, seeded, sum(d.rows for d in misses), pinned=pinned), *rest]


def _lost(ranks: Collection[int], seeded: Mapping[int, int], rows: int, *, pinned: bool) -> Diagnosis:
    shown = ", ".join(str(rank) for rank in list(ranks)[:16])
    tokens = max(seeded[rank] for rank in ranks)
    reasons = [
        "prefix caching is off",
        f"a rank's cache holds less than the {tokens} tokens of its seeds",
        "something emptied it meanwhile",
    ]
    if not pinned:
        reasons.insert(0, "pins are dropped on the way, so the seeds went elsewhere")
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
