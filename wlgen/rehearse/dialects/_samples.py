"""Samples of a metrics page, and the page itself as Prometheus text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from wlgen.rehearse.ranks import Rank

Sample: TypeAlias = tuple[dict[str, str], float]
Metric: TypeAlias = tuple[str, str, list[Sample]]  # name, type, samples


def by_rank(
    ranks: Sequence[Rank], labels: Mapping[str, str], rank_label: str, of: Callable[[Rank], float]
) -> list[Sample]:
    """Return one sample for each rank, with the rank as its label."""
    return [({**labels, rank_label: str(rank.index)}, float(of(rank))) for rank in ranks]


def metrics_text(notice: str, metrics: Iterable[Metric]) -> str:
    """Return the page. As on the engines, counters count from the start and include priming."""
    lines = [f"# {notice}"]
    for name, kind, samples in metrics:
        lines.append(f"# TYPE {name} {kind}")
        for labels, value in samples:
            shown = ",".join(f'{key}="{word}"' for key, word in labels.items())
            lines.append(f"{name}{{{shown}}} {value}" if shown else f"{name} {value}")
    return "\n".join(lines) + "\n"
