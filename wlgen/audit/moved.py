"""How far the counters of servers moved between two scrapes. Values in, values out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wlgen.witnesses import TIERS, ServerCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """How far the counters moved between two scrapes, over the servers that hold the prefix cache.

    total: of all these servers. ranks: of each data-parallel rank, numbered through several prefill servers.
    role: "prefill" in a pair, whose decode servers do not count. fell: counters that went down. restarted:
    servers whose process is a new one. unknown: servers that do not say when they started.
    """

    role: str
    total: Mapping[str, int]
    ranks: Mapping[int, Mapping[str, int]]
    fell: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    changed: str = ""

    def cached_of(self, rank: int) -> int | None:
        """Return the cached tokens of a rank, None if the servers do not count them by rank."""
        counts = self.ranks.get(rank)
        if counts is None:
            return None
        hits = [counts[f"hit_{tier}"] for tier in TIERS if f"hit_{tier}" in counts]
        if "computed" in counts:
            return sum(hits)
        return counts.get("cached_tokens")

    def prompt_of(self, rank: int) -> int | None:
        """Return the prompt tokens of a rank, None if the servers do not count them by rank."""
        counts = self.ranks.get(rank, {})
        if "computed" in counts:
            return counts["computed"] + (self.cached_of(rank) or 0)
        return counts.get("prompt_tokens")


def movement(before: Sequence[ServerCounts], after: Sequence[ServerCounts]) -> Moved:
    """Return how far the counters of the servers that hold the prefix cache moved."""
    pair = any(server.role != "plain" for server in (*before, *after))
    role = "prefill" if pair else "plain"
    first = {server.url: server for server in before if server.role == role}
    second = {server.url: server for server in after if server.role == role}
    total: dict[str, int] = defaultdict(int)
    ranks: dict[int, dict[str, int]] = {}
    fell, restarted, unknown = [], [], []
    for url in [url for url in second if url in first]:
        old, new = first[url], second[url]
        if old.started is None or new.started is None:
            unknown.append(url)
        elif old.started != new.started:
            restarted.append(url)
        for name, count in _grown(old.total, new.total).items():
            total[name] += count
            if count < 0 and name not in ("running", "waiting"):
                fell.append(f"{name} of {url}")
        ahead = len(ranks)
        for rank, counts in new.ranks.items():
            ranks[ahead + rank] = _grown(old.ranks.get(rank, {}), counts)
    changed = ""
    if set(first) != set(second):
        changed = f"{', '.join(sorted(set(first) ^ set(second)))} stands in one of the scrapes only"
    elif not second:
        changed = "no prefill server among the scrapes" if pair else "no server"
    return Moved(
        role=role,
        total=dict(total),
        ranks=ranks,
        fell=tuple(fell),
        restarted=tuple(restarted),
        unknown=tuple(unknown),
        changed=changed,
    )


def _grown(old: Mapping[str, int], new: Mapping[str, int]) -> dict[str, int]:
    return {name: count - old.get(name, 0) for name, count in new.items()}
