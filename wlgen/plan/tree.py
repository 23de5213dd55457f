"""The prefix tree of a set's rows, and their cached ratio from first to last, for pictures of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from wlgen.plan.rows import RowPlan, Segment
from wlgen.streams import block_number

_Path: TypeAlias = tuple[tuple[Any, ...], ...]


class PrefixNode(NamedTuple):
    """A prefix in the tree: its depth from 0, its name, its most tokens, and how many rows begin with it."""

    depth: int
    name: str
    tokens: int
    rows: int


class Tree(NamedTuple):
    """The prefix tree of a set's formal rows, in the order of prefix_tree. missing: why there is no tree."""

    nodes: Sequence[PrefixNode]
    missing: str = ""


class Stretch(NamedTuple):
    """Rows `start` to `stop` in the order of sending: the sums of their cached and their prompt tokens."""

    start: int
    stop: int
    cached: int
    prompt: int

    @property
    def cached_ratio(self) -> float:
        """Return cached / prompt."""
        return self.cached / max(1, self.prompt)


def prefix_tree(rows: Iterable[RowPlan]) -> list[PrefixNode]:
    """Return the nodes of the rows' prefix tree, each before its children.

    A block that only one row of a trace has is no prefix.
    """
    through: Counter[_Path] = Counter()
    tokens: dict[_Path, int] = {}
    names: dict[_Path, str] = {}
    blocks: set[_Path] = set()
    for row in rows:
        path: _Path = ()
        for segment in (s for m in row.messages for s in m.segments if s.kept):
            path = (*path, segment.stream)
            through[path] += 1
            tokens[path] = max(tokens.get(path, 0), segment.tokens)
            if path not in names:
                names[path] = _name(row, segment, len(path))
                blocks |= {path} if segment.kind == "block" else set()
    shared = [path for path, rows in through.items() if rows > 1 or path not in blocks]
    ordered = sorted(shared, key=lambda path: [tuple(map(_in_order, stream)) for stream in path])
    return [PrefixNode(len(p) - 1, names[p], tokens[p], through[p]) for p in ordered]


def _in_order(coordinate: str | int) -> str:
    return f"{coordinate:012d}" if isinstance(coordinate, int) else coordinate


def _name(row: RowPlan, segment: Segment, levels: int) -> str:
    """Return a prefix's name: the beginning of its rows' group, or the number of a trace's block."""
    if segment.kind == "block":
        return str(block_number(segment.stream))
    return "/".join(row.group.split("/")[: levels + (row.request_class is not None)])


def joined(nodes: Sequence[PrefixNode]) -> list[PrefixNode]:
    """Return the tree with each node joined to its parent if all rows of the parent go through it.

    A trace has a node for each block of 512 tokens, and often the same rows have a whole chain of blocks.
    """
    found: list[PrefixNode] = []
    path: list[int] = []  # for each depth of the given tree, where in `found` its last node is
    for node in nodes:
        del path[node.depth :]
        parent = found[path[-1]] if path else None
        if parent is not None and parent.rows == node.rows:
            first = parent.name.partition(" to ")[0]
            whole = parent._replace(name=f"{first} to {node.name}", tokens=parent.tokens + node.tokens)
            found[path[-1]] = whole
            path.append(path[-1])
        else:
            path.append(len(found))
            found.append(node._replace(depth=0 if parent is None else parent.depth + 1))
    return found


def stretches(sequences: Sequence[Sequence[tuple[int, int]]], most: int) -> list[Stretch]:
    """Return at most `most` stretches, each over the same rows of all sequences.

    sequences: for each rank (cached, prompt) of its rows, in the order of sending.
    """
    longest = max(map(len, sequences), default=0)
    found = []
    for part in range(min(most, longest)):
        start, stop = (longest * end // min(most, longest) for end in (part, part + 1))
        inside = [pair for sequence in sequences for pair in sequence[start:stop]]
        found.append(Stretch(start, stop, sum(c for c, _ in inside), sum(p for _, p in inside)))
    return found
