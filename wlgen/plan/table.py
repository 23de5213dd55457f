"""The table: the integers of every formal row of a round, drawn from the spec, before any row is planned.

Row n is the same whatever the number of rows: growing `formal` adds rows and changes none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wlgen import streams
from wlgen.plan.request_class import RequestClass
from wlgen.spec.lengths import draw
from wlgen.spec.model import Spec
from wlgen.spec.popularity import chosen
from wlgen.streams import permutation, words

Column: TypeAlias = NDArray[np.int64]
Path: TypeAlias = tuple[int, ...]
"""A prefix: the number of its class, then its group at each level of the chain."""
Node: TypeAlias = tuple[Path, int]
"""Where rows stop sharing: the prefix down to the level in which they stop, and their shared_len."""


PART = 4096  # rows that become Python integers at a time: all 10**7 at once would take 3 GB


class Entry(NamedTuple):
    """The integers of row n of the table, a formal row."""

    n: int
    rank: int
    place: int
    request_class: int
    path: int
    number: int
    body_len: int
    output_len: int
    shared_len: int
    cached_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns of shape (rows,): one entry for each formal row, in the order of generation.

    place: the row's index on its rank. path, node: the indexes of its prefix and its node in `paths` and
    `nodes`, which hold each prefix and node once; `paths` is sorted. number: the row's index among the rows
    of its node. session, turn: those of a conversation; turn is 0 in other sets. orders: for each rank, its
    rows in the order of their file.
    """

    rank: Column
    place: Column
    request_class: Column
    body_len: Column
    output_len: Column
    shared_len: Column
    cached_len: Column
    session: Column
    turn: Column
    path: Column
    node: Column
    number: Column
    paths: list[Path]
    nodes: list[Node]
    orders: list[Column]

    def entries(self, rows: Column) -> Iterator[Entry]:
        """Yield the integers of some rows, in the order given."""
        columns = [getattr(self, name) for name in Entry._fields[1:]]
        for start in range(0, len(rows), PART):
            part = rows[start : start + PART]
            yield from map(Entry, part.tolist(), *(column[part].tolist() for column in columns))


def tabulate(spec: Spec, classes: tuple[RequestClass, ...]) -> Table:
    """Return the table of a spec's formal rows."""
    total = spec.splits.formal.rows(spec.dp_ranks)
    session = classes[0].requests.session
    turns = session.turns if session else 1
    unit, turn = np.divmod(np.arange(total), turns)
    which = _classes(spec, unit)
    rank, groups = _groups(spec, classes, unit, which)
    place = running(rank)
    nth = running(which)  # the row's index in its class, so that each class takes listed lengths in order
    body_len, output_len = (_lengths(spec, classes, which, nth, part) for part in ("body_len", "output_len"))
    shared_len, cached_len = _depths(classes, which, body_len, output_len, rank)
    path, paths = _paths(classes, which, groups)
    ends, nodes = _nodes(classes, path, paths, shared_len)
    table = Table(
        rank=rank,
        place=place,
        request_class=which,
        body_len=body_len,
        output_len=output_len,
        shared_len=shared_len,
        cached_len=cached_len,
        session=unit,
        turn=turn,
        path=path,
        node=ends,
        number=running(ends) if session is None else unit,
        paths=paths,
        nodes=nodes,
        orders=[],
    )
    table.orders.extend(_order(spec, table, r) for r in range(spec.dp_ranks))
    return table


def running(keys: Column) -> Column:
    """Return for each entry how many before it have the same key."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(keys) else np.zeros(0, np.int64)
    counts = np.diff(np.r_[starts, len(keys)])
    result = np.empty(len(keys), dtype=np.int64)
    result[order] = np.arange(len(keys)) - np.repeat(starts, counts)
    return result


def node(of: RequestClass, path: Path, shared_len: int) -> Node:
    """Return the node of a row with this prefix and shared_len; ((), 0) if it shares only the framing."""
    left = shared_len - of.offset
    if left <= 0:
        return ((), 0)
    for depth, tokens in enumerate(of.chain, 2):
        if tokens is None or left <= tokens:
            return (path[:depth], shared_len)
        left -= tokens
    return (path, shared_len)


def _paths(
    classes: tuple[RequestClass, ...], which: Column, groups: NDArray[np.int64]
) -> tuple[Column, list[Path]]:
    """Return each row's prefix as an index, and the sorted prefixes to which the indexes point.

    A class with fewer levels than another has group 0 at the levels that it lacks, which changes no prefix.
    """
    numbers = which
    for level in groups.T:
        keys = numbers * (int(level.max(initial=0)) + 1) + level
        numbers = np.unique(keys, return_inverse=True)[1]
    _, firsts, path = np.unique(numbers, return_index=True, return_inverse=True)
    pairs = zip(which[firsts].tolist(), groups[firsts].tolist(), strict=True)
    return path, [(c, *of_row[: len(classes[c].levels)]) for c, of_row in pairs]


def _nodes(
    classes: tuple[RequestClass, ...], path: Column, paths: list[Path], shared_len: Column
) -> tuple[Column, list[Node]]:
    """Return each row's node as an index, and the nodes to which the indexes point."""
    span = int(shared_len.max(initial=0)) + 1
    pairs, of_pair = np.unique(path * span + shared_len, return_inverse=True)
    numbers: dict[Node, int] = {}
    of_path = (divmod(pair, span) for pair in pairs.tolist())
    found = (node(classes[paths[p][0]], paths[p], length) for p, length in of_path)
    by_pair = np.array([numbers.setdefault(each, len(numbers)) for each in found], dtype=np.int64)
    return by_pair[of_pair], list(numbers)


def _classes(spec: Spec, unit: Column) -> Column:
    """Return each row's class, shuffled exact counts or drawn by weight."""
    counts = [r.count for r in spec.requests]
    if counts[0] is not None:
        exact = np.repeat(np.arange(len(counts)), [c or 0 for c in counts])
        return exact[permutation(streams.classes(spec.random_seed), len(exact))]
    if len(counts) == 1:
        return np.zeros(len(unit), dtype=np.int64)
    return chosen([r.weight or 0 for r in spec.requests], words(streams.classes(spec.random_seed), len(unit)))


def _groups(
    spec: Spec, classes: tuple[RequestClass, ...], unit: Column, which: Column
) -> tuple[Column, NDArray[np.int64]]:
    """Return each row's rank, and its group at each level, shape (rows, levels)."""
    ranks = spec.dp_ranks
    rank = unit % ranks
    groups = np.zeros((len(unit), max((len(c.levels) for c in classes), default=0)), dtype=np.int64)
    for of in classes:
        mine, before = which == of.number, 1
        for depth, level in enumerate(of.levels):
            if level.shared_by == "rank":
                groups[mine, depth] = rank[mine]
            elif level.groups:
                stream = streams.groups(spec.random_seed, of.number, depth)
                in_turn = unit // (1 if level.ranks == "one" else ranks) // before % level.groups
                if level.popularity is None:
                    groups[mine, depth] = in_turn[mine]
                else:
                    drawn = chosen(level.popularity.of(level.groups), words(stream, len(unit)))
                    groups[mine, depth] = drawn[unit][mine]
                before *= level.groups
                if level.ranks == "one":
                    rank = np.where(mine, groups[:, depth] % ranks, rank)
    return rank, groups


def _lengths(spec: Spec, classes: tuple[RequestClass, ...], which: Column, nth: Column, part: str) -> Column:
    lengths = np.zeros(len(which), dtype=np.int64)
    for of in classes:
        mine = which == of.number
        length: Any = getattr(of.requests, part)
        drawn = draw(length, streams.lengths(spec.random_seed, of.number, part), int(mine.sum()))
        lengths[mine] = drawn[nth[mine]]
    return lengths


def _depths(
    classes: tuple[RequestClass, ...], which: Column, body_len: Column, output_len: Column, rank: Column
) -> tuple[Column, Column]:
    """Return shared_len of each row, and its cached_len once its prefix is held."""
    shared = np.zeros(len(which), dtype=np.int64)
    cached = np.zeros(len(which), dtype=np.int64)
    for of in classes:
        mine = np.flatnonzero(which == of.number)
        if of.requests.cached.aggregate is not None:
            shared[mine] = _spread_within(of, body_len[mine], output_len[mine], rank[mine])
        else:
            lengths, inverse = np.unique(body_len[mine], return_inverse=True)
            shared[mine] = np.array([of.shared_len(int(n)) for n in lengths], dtype=np.int64)[inverse]
        pairs, inverse = np.unique(np.c_[body_len[mine], shared[mine]], axis=0, return_inverse=True)
        by_pair = np.array([of.cached_len(int(b), int(s)) for b, s in pairs], dtype=np.int64)
        cached[mine] = by_pair[inverse.reshape(-1)]
    return shared, cached


def _spread_within(of: RequestClass, body_len: Column, output_len: Column, rank: Column) -> Column:
    """Return shared_len of each row of an aggregate: at or above its ratio, if that is within the tolerance.

    Rounding up puts each rank less than one quantum above the ratio. With few rows and a large quantum that
    may exceed the tolerance: 2 rows of 1028 tokens at a quantum of 512 reach 49.8 % or 74.7 %, but not 60 %.
    Then the rows are rounded to the nearest quantum, which may fall below the ratio; `wlgen plan` says so.
    """
    cached = of.requests.cached
    ratio = cached.aggregate or Fraction(0)
    above = spread(of, ratio, body_len, output_len, rank)
    lengths = list(zip(body_len.tolist(), above.tolist(), strict=True))
    reached, whole = sum(of.cached_len(b, s) for b, s in lengths), sum(of.prompt_len(b) for b, _ in lengths)
    if reached <= (ratio + of.bound.tolerance) * whole:
        return above
    return spread(of, ratio, body_len, output_len, rank, nearest=True)


def spread(
    of: RequestClass,
    ratio: Fraction,
    body_len: Column,
    output_len: Column,
    rank: Column,
    *,
    nearest: bool = False,
) -> Column:
    """Return shared_len of each row, in whole quanta, so that each rank's cached tokens follow the ratio.

    After each row the sum of a rank is at the ratio, or above it by less than a quantum. nearest: it is
    within half a quantum of the ratio, above or below.
    """
    quantum = of.rule.hit_quantum
    owed: defaultdict[int, int] = defaultdict(int)  # in 1 / denominator tokens
    best = cache(of.best)
    shared = np.empty(len(body_len), dtype=np.int64)
    rows = zip(body_len.tolist(), output_len.tolist(), rank.tolist(), strict=True)
    step = quantum * ratio.denominator
    for i, (length, output, at) in enumerate(rows):
        owed[at] += ratio.numerator * of.prompt_len(length)
        quanta = max(0, (2 * owed[at] + step) // (2 * step) if nearest else -(-owed[at] // step))
        asked = of.rule.least_shared_len(min(quanta * quantum, best(length, output)))
        shared[i] = max(of.offset + of.in_system, asked)  # a system message has at least one token
        owed[at] -= of.cached_len(length, int(shared[i])) * ratio.denominator
    return shared


def _order(spec: Spec, table: Table, rank: int) -> Column:
    """Return a rank's rows in the order of its file."""
    rows = np.flatnonzero(table.rank == rank)
    if spec.requests[0].session:
        rows = rows[np.lexsort((table.place[rows], table.turn[rows]))]
    if spec.order == "shuffled":
        return rows[permutation(streams.order(spec.random_seed, rank), len(rows))]
    if spec.order == "group":
        return rows[np.argsort(table.path[rows], kind="stable")]
    if spec.order == "interleaved":
        return rows[np.lexsort((table.path[rows], running(table.path[rows])))]
    if spec.order == "short_to_long":
        return rows[np.argsort(table.body_len[rows], kind="stable")]
    return rows
