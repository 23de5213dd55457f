"""Priming: which prefixes the seeds of a rank bring into its cache, and which its checks prove."""

from __future__ import annotations

from typing import NamedTuple

from wlgen.plan.request_class import RequestClass
from wlgen.plan.table import Node, Path, Table


class Primed(NamedTuple):
    """A prefix on a rank: where its rows leave it, and the first of the rows that follow it furthest."""

    path: Path
    shared_len: int
    row: int


def proved(table: Table, rank: int, _classes: tuple[RequestClass, ...]) -> list[Primed]:
    """Return one prefix for each check of a rank: each that a row has, as far as its rows follow it.

    Of two prefixes whose rows leave them above the prefixes' own tokens, one check proves both.
    """
    leaves: dict[Path, Primed] = {}
    for n in _in_order(table, rank):
        _deepen(leaves, table.paths[n], Primed(table.paths[n], int(table.shared_len[n]), n))
    found: dict[tuple[int, Node], Primed] = {}
    for path, primed in leaves.items():
        found.setdefault((path[0], table.nodes[primed.row]), primed)
    return list(found.values())


def seeded(table: Table, rank: int, classes: tuple[RequestClass, ...]) -> list[Primed]:
    """Return one prefix for each seed of a rank.

    A seed of the deepest prefix of a chain covers those that leave the chain earlier. Each depth has a seed
    of its own under a rule that keeps state only where a prompt ends, and so has each system message, which
    ends in framing.
    """
    ends: dict[Node, Primed] = {}
    longest: dict[Path, Primed] = {}
    for n in _in_order(table, rank):
        end, shared_len = table.nodes[n]
        if end:
            ends.setdefault((end, shared_len), Primed(end, shared_len, n))
            _deepen(longest, end, Primed(end, shared_len, n))
    if classes[0].rule.hybrid:
        return list(ends.values())
    covered = {end[:depth] for end in longest for depth in range(1, len(end))}
    whole = {end for end in longest if classes[end[0]].in_system}
    return [primed for end, primed in longest.items() if end not in covered | whole] + [
        primed for (end, _), primed in ends.items() if end in whole
    ]


def _in_order(table: Table, rank: int) -> list[int]:
    """Return a rank's rows in the order of generation, so that growth only adds prefixes.

    A rank without rows is made ready for the rows of rank 0.
    """
    return sorted(table.orders[rank] or table.orders[0], key=table.place.__getitem__)


def _deepen(held: dict[Path, Primed], path: Path, primed: Primed) -> None:
    """Keep the first of a path's deepest rows."""
    if path not in held or held[path].shared_len < primed.shared_len:
        held[path] = primed
