"""The outline of a plan: what `wlgen plan` says before anything is built. All quantities are tokens."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from wlgen.build.ready import Blueprint, load_encoding
from wlgen.build.store import row_line
from wlgen.errors import WlgenError
from wlgen.faults import Chain
from wlgen.plan.chains import chains
from wlgen.plan.predict import trajectory
from wlgen.plan.rows import Plan, RowPlan
from wlgen.plan.solve import solve
from wlgen.plan.tree import Tree, prefix_tree, stretches
from wlgen.spec import file as spec_file
from wlgen.spec.lengths import describe
from wlgen.workload.opened import Workload
from wlgen.workload.splits import BEFORE, BY_NAME, Split

POINTS = 12  # how many figures the trajectory has


def outline(ready: Blueprint, in_flight: int = 0) -> dict[str, Any]:
    """Return the outline as JSON values; a length is an int, or {min, p50, p90, max, bins} if rows differ.

    bytes: estimated for each split from one composed row and the tokens of all. in_flight: how many rows a
    rank runs at a time in the trajectory of the cached ratio; 0: no trajectory.
    """
    plan, rule = ready.plan, ready.spec.cache
    formal = _Columns()
    tree = [node._asdict() for node in prefix_tree(formal.read(ready))]
    splits = {split: _split(ready, BY_NAME[split], counts) for split, counts in plan.counts().items()}
    return {
        "name": ready.spec.name,
        "rule": {"name": rule.name, "page_size": rule.page_size, "hit_quantum": rule.hit_quantum},
        "framing": {"head": plan.head_len, "tail": len(plan.frame(("user",)).ids[-1])},
        **{name: _length(lengths) for name, lengths in formal.lengths.items()},
        "promises": {
            "configured": plan.promises.configured,
            "aggregate": plan.promises.aggregate,
            "per_request_min": plan.promises.per_request_min,
        },
        "arrivals": _arrivals(ready, formal.times),
        "groups": len(formal.groups),
        "rounds": ready.spec.rounds,
        "splits": splits,
        "rows_that_share_a_lead": ready.crowded,
        "bytes": sum(split["bytes"] for split in splits.values()),
        "tree": tree,
        "trajectory": _trajectory(plan, in_flight) if in_flight else [],
    }


_LENGTHS = ("body_len", "prompt_len", "shared_len", "cached_len", "output_len")


class _Columns:
    """The figures of all formal rows, 8 bytes each: a million rows take 64 MB here, and 1.5 GB as RowPlans.

    lengths: a column for each name. times: milliseconds of the rows that have a time. groups: groups whose
    rows share more than the framing head.
    """

    def __init__(self) -> None:
        self.lengths = {name: array("q") for name in (*_LENGTHS, "unique_len", "computed_len")}
        self.times = array("q")
        self.groups: set[str] = set()

    def read(self, ready: Blueprint) -> Iterator[RowPlan]:
        """Yield the formal rows, and keep the figures of each."""
        plan = ready.plan
        for row in (row for rank in range(ready.spec.dp_ranks) for row in plan.rows(Split.FORMAL, rank)):
            for name in _LENGTHS:
                self.lengths[name].append(getattr(row, name))
            self.lengths["unique_len"].append(_unique(row))
            self.lengths["computed_len"].append(row.prompt_len - row.cached_len)
            if row.timestamp_ms is not None:
                self.times.append(row.timestamp_ms)
            if row.shared_len > plan.head_len:
                self.groups.add(row.group)
            yield row


def _length(lengths: array[int]) -> int | dict[str, Any]:
    column = np.frombuffer(lengths, dtype=np.int64) if lengths else np.empty(0, dtype=np.int64)
    return lengths[0] if len(column) and (column == column[0]).all() else describe(column)


def _unique(row: RowPlan) -> int:
    """Return the tokens of a row behind what it shares, without the framing tail."""
    return sum(s.tokens for m in row.messages for s in m.segments if not s.kept)


def _arrivals(ready: Blueprint, times: array[int]) -> dict[str, Any] | None:
    """Return how the rows of a round arrive; None if they have no times."""
    if not times:
        return None
    span = (max(times) - min(times)) / 1000
    left_out = getattr(ready.plan.source, "left_out", 0)
    return {
        "rows": len(times),
        "span_s": span,
        "rows_per_s": len(times) / span if span else None,
        "left_out": left_out,
    }


def _split(ready: Blueprint, split: Split, counts: dict[str, Any]) -> dict[str, Any]:
    """Return how many rows a split has, and the figures of its first row."""
    plan, rounds = ready.plan, ready.spec.rounds if split.each_round else 1
    first, tokens, kinds = None, 0, set()
    for row in (row for rank in range(ready.spec.dp_ranks) for row in plan.rows(split, rank)):
        first = first or row
        tokens += row.prompt_len
        kinds.add((row.prompt_len, row.cached_len, row.output_len))
    size = sum(map(len, row_line(ready.composer().compose(first)))) / first.prompt_len if first else 0
    return {
        **counts,
        "prompt_len": first.prompt_len if first else 0,
        "cached_len": first.cached_len if first else 0,
        "output_len": first.output_len if first else 0,
        "alike": len(kinds) <= 1,
        "bytes": round(size * tokens) * rounds,
    }


def _trajectory(plan: Plan, in_flight: int) -> list[dict[str, Any]]:
    """Return the cached ratio from the first formal rows to the last, with `in_flight` rows a rank at a time.

    Before them each rank has got its seeds and checks, as after `wlgen prepare`.
    """
    ranks = []
    for rank in range(plan.spec.dp_ranks):
        before = (row for split in BEFORE for row in plan.rows(split, rank))
        formal = plan.rows(Split.FORMAL, rank)
        ranks.append(trajectory(formal, plan.spec.cache, plan.frame, in_flight, before))
    found = stretches([[(cached, row.prompt_len) for row, cached in rank] for rank in ranks], POINTS)
    return [{"rows": [part.start, part.stop], "cached_ratio": part.cached_ratio} for part in found]


def planned_chains(workload: Workload) -> dict[str, Chain]:
    """Return the chain of each row of a built set, planned again; none where its encoding is not here."""
    try:
        plan = _planned(workload)
    except WlgenError:  # rows are then taken as their group's prefix and a part of their own
        return {}
    return dict(chains(plan))


def _planned(workload: Workload) -> Plan:
    spec = spec_file.of_set(workload)
    return solve(spec, load_encoding(spec), lambda _number, _output_len: 1)


def planned_tree(workload: Workload) -> Tree:
    """Return the prefix tree of a built set's formal rows, planned again from the spec of its manifest."""
    manifest = workload.manifest
    try:
        plan = _planned(workload)
    except WlgenError as failure:  # a report goes on without the tree if the encoding is not on this machine
        return Tree((), str(failure.problems[0]))
    return Tree(prefix_tree(row for rank in manifest.ranks for row in plan.rows(Split.FORMAL, rank)))
