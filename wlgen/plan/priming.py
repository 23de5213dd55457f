"""Priming: which prefixes the seeds of a rank put into its cache, and which its checks prove."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wlgen.plan.request_class import RequestClass
from wlgen.plan.table import Column, Node, Path, Table


class Primed(NamedTuple):
    """A prefix on a rank: its path, the shared_len of the rows that go furthest, and the first such row."""

    path: Path
    shared_len: int
    row: int


def proved(table: Table, rank: int, _classes: tuple[RequestClass, ...]) -> list[Primed]:
    """Return one prefix for each check of a rank: each prefix that a row has, to the end of what rows share.

    If the rows of two prefixes share nothing beyond the level above both, one check proves both.
    """
    rows = _in_order(table, rank)
    found: dict[tuple[int, Node], Primed] = {}
    for n in rows[_deepest(table.path[rows], table.shared_len[rows])].tolist():
        path = table.paths[table.path[n]]
        node = table.nodes[table.node[n]]
        found.setdefault((path[0], node), Primed(path, int(table.shared_len[n]), n))
    return list(found.values())


def seeded(table: Table, rank: int, classes: tuple[RequestClass, ...]) -> list[Primed]:
    """Return one prefix for each seed of a rank.

    A seed of a chain's deepest prefix also primes the prefixes above it. Two things need a seed at each
    depth: a rule that keeps state only where a prompt ends, and a system message, which framing follows.
    """
    rows = _in_order(table, rank)
    firsts = rows[np.sort(np.unique(table.node[rows], return_index=True)[1])].tolist()
    of_rows = ((n, *table.nodes[table.node[n]]) for n in firsts)
    ends = [Primed(end, shared_len, n) for n, end, shared_len in of_rows if end]
    if classes[0].rule.hybrid:
        return ends
    longest: dict[Path, Primed] = {}
    for primed in ends:
        if longest.setdefault(primed.path, primed).shared_len < primed.shared_len:
            longest[primed.path] = primed
    covered = {end[:depth] for end in longest for depth in range(1, len(end))}
    whole = {end for end in longest if classes[end[0]].in_system}
    return [primed for end, primed in longest.items() if end not in covered | whole] + [
        primed for primed in ends if primed.path in whole
    ]


def _in_order(table: Table, rank: int) -> Column:
    """Return a rank's rows in the order of generation, so that a set that grows only adds prefixes.

    A rank without rows gets the rows of rank 0, so that its seeds and checks are theirs.
    """
    order = table.orders[rank]
    return np.sort(order if len(order) else table.orders[0])


def _deepest(path: Column, shared_len: Column) -> Column:
    """Return the position of each path's first deepest row, in the order in which the paths appear."""
    by_depth = np.lexsort((-shared_len, path))
    _, starts = np.unique(path[by_depth], return_index=True)
    _, firsts = np.unique(path, return_index=True)
    return by_depth[starts][np.argsort(firsts)]
