"""Priming: which prefixes the seeds of a rank bring into its cache, and which its checks prove."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wlgen.plan.request_class import RequestClass
from wlgen.plan.table import Column, Node, Path, Table


class Primed(NamedTuple):
    """A prefix on a rank: where its rows leave it, and the first of the rows that follow it furthest."""

    path: Path
    shared_len: int
    row: int


def proved(table: Table, rank: int, _classes: tuple[RequestClass, ...]) -> list[Primed]:
    """Return one prefix for each check of a rank: each that a row has, as far as its rows follow it.

    Of two prefixes whose rows leave them above the prefixes' own tokens, one check proves both.
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

    A seed of the deepest prefix of a chain covers those that leave the chain earlier. Each depth has a seed
    of its own under a rule that keeps state only where a prompt ends, and so has each system message, which
    ends in framing.
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
    """Return a rank's rows in the order of generation, so that growth only adds prefixes.

    A rank without rows is made ready for the rows of rank 0.
    """
    order = table.orders[rank]
    return np.sort(order if len(order) else table.orders[0])


def _deepest(path: Column, shared_len: Column) -> Column:
    """Return the place of the first of the deepest rows of each path, by the first row of each path."""
    by_depth = np.lexsort((-shared_len, path))
    _, starts = np.unique(path[by_depth], return_index=True)
    _, firsts = np.unique(path, return_index=True)
    return by_depth[starts][np.argsort(firsts)]
