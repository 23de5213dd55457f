"""A compressed tree of whole pages: all that one rank holds, with each distinct page stored once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeAlias

from xxhash import xxh3_64_intdigest

Live: TypeAlias = Any


class Node:
    """A run of pages behind its parent's; start and end are byte positions in the prompt's key.

    children: nodes by the hash of their first page; None for a leaf. owner: the number of the request that
    added the node. used: the clock when it was last used. pins: how many running requests have a match that
    ends here. live: what the cache class keeps with it, such as which blocks a sliding window still has.
    """

    __slots__ = ("children", "end", "key", "live", "owner", "parent", "pins", "start", "used")

    def __init__(self, parent: Node | None, key: bytes, start: int, owner: int, live: Live) -> None:
        self.parent = parent
        self.key = key
        self.start = start
        self.end = start + len(key)
        self.children: dict[int, Node] | None = None
        self.owner = owner
        self.used = 0
        self.pins = 0
        self.live = live


class PageTree:
    """Prompts' keys as a tree; a child is found by the hash of its first page and proved by its bytes.

    page: bytes of a page. split_live: from a node's live and an offset to the two parts' live values.
    """

    def __init__(self, page: int, split_live: Callable[[Live, int], tuple[Live, Live]]) -> None:
        self.page = page
        self.held = 0  # bytes
        self.clock = 0
        self.owner = -1  # the request that adds pages now
        self.dropped: list[tuple[int, int]] = []  # owners and bytes of what was evicted
        self._split_live = split_live
        self._roots: dict[str, Node] = {}
        self._leaves: list[tuple[int, int, Node]] | None = None  # a heap, from the first eviction on
        self._offers = count()

    def __del__(self) -> None:
        """Undo the links upwards, so that memory is free at once and not when cycles are searched for."""
        for node in self.nodes():
            node.parent = None

    def root(self, salt: str) -> Node:
        """Return the root of a salt's prompts."""
        found = self._roots.get(salt)
        if found is None:
            found = self._roots[salt] = Node(None, b"", 0, -1, None)
        return found

    def walk(self, node: Node, key: bytes, end: int) -> tuple[Node, int]:
        """Return how far the tree holds `key[:end]`: the last node, and the byte at which the match ends.

        The key's first node.end bytes must be those of the path to `node`. The byte lies inside the returned
        node if the key differs there. `end` is a multiple of the page.
        """
        at, page = node.end, self.page
        while at < end and node.children is not None:
            child = node.children.get(xxh3_64_intdigest(key[at : at + page]))
            if child is None:
                break
            stop = child.end
            if stop <= end and key.startswith(child.key, at):
                node, at = child, stop
                continue
            same = _common(child.key, key, at, min(stop, end) - at, page)
            return (child, at + same) if same else (node, at)
        return node, at

    def cut(self, node: Node, at: int) -> Node:
        """Split a node at byte `at`; return the new node, which ends there. The old node keeps the rest."""
        parent, key, start = node.parent, node.key, node.start
        if parent is None or at == node.end:
            return node
        above, node.live = self._split_live(node.live, at)
        upper = Node(parent, key[: at - start], start, node.owner, above)
        upper.used = node.used
        node.parent, node.key, node.start = upper, key[at - start :], at
        self._link(parent, upper)
        self._link(upper, node)
        return upper

    def add(self, parent: Node, key: bytes, end: int, live: Live) -> Node:
        """Add the pages of `key` from the parent's end to `end` as a child of the parent."""
        start = parent.end
        leaf = Node(parent, key[start:end], start, self.owner, live)
        self._link(parent, leaf)
        self.held += end - start
        return leaf

    def use(self, node: Node) -> None:
        """Move the clock on and make a node and all above it recent."""
        self.clock += 1
        above: Node | None = node
        while above is not None:
            above.used = self.clock
            above = above.parent
        if self._leaves is not None:
            self.offer(node)

    def offer(self, node: Node) -> None:
        """Add a leaf to the heap of evictable nodes; `evict` skips a node that was pinned or used since."""
        if self._leaves is not None and not node.children:
            heappush(self._leaves, (node.used, next(self._offers), node))

    def evict(self, need: int, *, whole: bool) -> int:
        """Drop the least recently used unpinned pages until `need` bytes are freed; return the bytes freed.

        whole: leaf by leaf, as SGLang does; else page by page from a leaf's end, as vLLM does.
        """
        if self._leaves is None:
            self._leaves = []
            for node in self.nodes():
                self.offer(node)
        freed = 0
        while freed < need and self._leaves:
            used, _, leaf = heappop(self._leaves)
            if used != leaf.used or leaf.children or leaf.pins or leaf.parent is None:
                continue
            short = -(-(need - freed) // self.page) * self.page
            gone = self._drop(leaf) if whole or short >= len(leaf.key) else self._trim(leaf, short)
            self.dropped.append((leaf.owner, gone))
            freed += gone
        self.held -= freed
        return freed

    def nodes(self) -> Iterator[Node]:
        """Yield every node but the roots, parents first."""
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            if node.parent is not None:
                yield node
            stack.extend((node.children or {}).values())

    def check(self) -> None:
        """Raise AssertionError unless links, whole pages, recency and the total held are right."""
        held = 0
        for node in self.nodes():
            held += len(node.key)
            parent = node.parent
            if parent is None or not parent.children or parent.children.get(self._digest(node)) is not node:
                raise AssertionError(f"the node at {node.start} is not its parent's child")
            if node.start != parent.end or node.end != node.start + len(node.key):
                raise AssertionError(f"the node at {node.start} does not stand behind its parent")
            if not node.key or len(node.key) % self.page:
                raise AssertionError(f"the node at {node.start} does not hold whole pages")
            if node.used > parent.used:
                raise AssertionError(f"the node at {node.start} is more recent than its parent")
            if node.pins < 0:
                raise AssertionError(f"the node at {node.start} was unpinned too often")
        if held != self.held:
            raise AssertionError(f"{held} bytes are held, {self.held} counted")

    def _digest(self, node: Node) -> int:
        return xxh3_64_intdigest(node.key[: self.page])

    def _link(self, parent: Node, child: Node) -> None:
        if parent.children is None:
            parent.children = {}
        parent.children[self._digest(child)] = child

    def _drop(self, leaf: Node) -> int:
        parent = leaf.parent
        if parent is None or parent.children is None:
            return 0
        del parent.children[self._digest(leaf)]
        leaf.parent = None
        self.offer(parent)
        return len(leaf.key)

    def _trim(self, leaf: Node, short: int) -> int:
        leaf.end -= short
        leaf.live, _ = self._split_live(leaf.live, leaf.end)
        leaf.key = leaf.key[:-short]
        self.offer(leaf)
        return short


def _common(edge: bytes, key: bytes, at: int, length: int, page: int) -> int:
    """Return the bytes of whole pages, at most `length`, that `edge` and `key[at:]` share at their start."""
    low, high = 0, length // page
    while low < high:
        middle = (low + high + 1) // 2
        if key.startswith(edge[low * page : middle * page], at + low * page):
            low = middle
        else:
            high = middle - 1
    return low * page
