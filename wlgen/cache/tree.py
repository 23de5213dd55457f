"""A compressed tree of whole pages: all that one rank holds, with each distinct page stored once.

A key names the pages of a prompt one after another, each in the same number of bytes: a page of up to 16
tokens by its tokens, a longer page by a 128-bit hash of them, so that a page of 128 tokens takes 16 bytes
instead of 512. `wlgen simulate` of 100,000 prompts of 2048 tokens takes 265 MB so, and took 820 MB. To hash
all pages costs 3 us a prompt, of 8.5 us in all. Two different pages have one hash about once in 2**64 pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

Live: TypeAlias = Any
DIGEST = 16  # bytes
PLAIN = 64  # bytes of a page that is named by its tokens; a hash of fewer would take longer than it saves


class Node:
    """A run of pages behind its parent's; start and end are units of the prompt, multiples of the page.

    children: nodes by the name of their first page; None for a leaf. owner: the number of the request that
    added the node. used: the clock when it was last used. pins: how many running requests have a match that
    ends here. live: what the cache class keeps with it, such as which blocks a sliding window still has.
    """

    __slots__ = ("children", "end", "key", "live", "owner", "parent", "pins", "start", "used")

    def __init__(  # noqa: PLR0917 (made a hundred thousand times)
        self, parent: Node | None, key: bytes, start: int, end: int, owner: int, live: Live
    ) -> None:
        self.parent = parent
        self.key = key
        self.start = start
        self.end = end
        self.children: dict[bytes, Node] | None = None
        self.owner = owner
        self.used = 0
        self.pins = 0
        self.live = live


class PageTree:
    """Prompts' keys as a tree; a child is found by the name of its first page. All quantities are units.

    page: units of a page. unit: bytes of a unit, 4 of a token and 8 of a bigram. split_live: from a node's
    live and an offset to the two parts' live values.
    """

    def __init__(self, page: int, unit: int, split_live: Callable[[Live, int], tuple[Live, Live]]) -> None:
        self.page = page
        self._plain = page * unit <= PLAIN
        self._step = page * unit  # bytes of a page's units
        self._name = self._step if self._plain else DIGEST  # bytes of a page in a key
        self.held = 0
        self.clock = 0
        self.owner = -1  # the request that adds pages now
        self.dropped: list[tuple[int, int]] = []  # owners and units of what was evicted
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
            found = self._roots[salt] = Node(None, b"", 0, 0, -1, None)
        return found

    def key(self, units: NDArray[np.generic]) -> bytes:
        """Return the names of the whole pages of a prompt, given its tokens or bigrams."""
        content, step = units.tobytes(), self._step
        whole = len(content) // step * step
        if self._plain:
            return content[:whole]
        pages = memoryview(content)
        return b"".join([xxh3_128_digest(pages[at : at + step]) for at in range(0, whole, step)])

    def units(self, key: bytes) -> int:
        """Return the units of the whole pages that a key names."""
        return len(key) // self._name * self.page

    def walk(self, node: Node, key: bytes, end: int) -> tuple[Node, int]:
        """Return how far the tree holds a key up to `end`: the last node, and the unit where the match ends.

        The key's first node.end units must be those of the path to `node`. The match ends inside the returned
        node if the key differs there. `end` is a multiple of the page.
        """
        page, name = self.page, self._name
        at = node.end // page * name
        while node.end < end and node.children is not None:
            child = node.children.get(key[at : at + name])
            if child is None:
                break
            if child.end <= end and key.startswith(child.key, at):
                node, at = child, at + len(child.key)
                continue
            same = _common(child.key, key, at, (min(child.end, end) - node.end) // page, name)
            return child, node.end + same * page
        return node, node.end

    def cut(self, node: Node, at: int) -> Node:
        """Split a node so that one ends at `at`, and return that one; the node itself keeps the rest."""
        parent, key, start = node.parent, node.key, node.start
        if parent is None or at == node.end:
            return node
        above, node.live = self._split_live(node.live, at)
        size = (at - start) // self.page * self._name
        upper = Node(parent, key[:size], start, at, node.owner, above)
        upper.used = node.used
        node.parent, node.key, node.start = upper, key[size:], at
        self._link(parent, upper)
        self._link(upper, node)
        return upper

    def add(self, parent: Node, key: bytes, end: int, live: Live) -> Node:
        """Add the pages of `key` between a node's end and `end`, as its child."""
        start, page, name = parent.end, self.page, self._name
        leaf = Node(parent, key[start // page * name : end // page * name], start, end, self.owner, live)
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
        """Drop the least recently used unpinned pages until `need` units are freed; return the bytes freed.

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
            gone = self._drop(leaf) if whole or short >= leaf.end - leaf.start else self._trim(leaf, short)
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
            held += node.end - node.start
            parent = node.parent
            if parent is None or not parent.children or parent.children.get(self._first(node)) is not node:
                raise AssertionError(f"the node at {node.start} is not its parent's child")
            if node.start != parent.end or node.end <= node.start:
                raise AssertionError(f"the node at {node.start} does not stand behind its parent")
            if len(node.key) * self.page != (node.end - node.start) * self._name:
                raise AssertionError(f"the node at {node.start} does not hold whole pages")
            if node.used > parent.used:
                raise AssertionError(f"the node at {node.start} is more recent than its parent")
            if node.pins < 0:
                raise AssertionError(f"the node at {node.start} was unpinned too often")
        if held != self.held:
            raise AssertionError(f"{held} units are held, {self.held} counted")

    def _first(self, node: Node) -> bytes:
        return node.key[: self._name]

    def _link(self, parent: Node, child: Node) -> None:
        if parent.children is None:
            parent.children = {}
        parent.children[self._first(child)] = child

    def _drop(self, leaf: Node) -> int:
        parent = leaf.parent
        if parent is None or parent.children is None:
            return 0
        del parent.children[self._first(leaf)]
        leaf.parent = None
        self.offer(parent)
        return leaf.end - leaf.start

    def _trim(self, leaf: Node, short: int) -> int:
        leaf.end -= short
        leaf.live, _ = self._split_live(leaf.live, leaf.end)
        leaf.key = leaf.key[: (leaf.end - leaf.start) // self.page * self._name]
        self.offer(leaf)
        return short


def _common(edge: bytes, key: bytes, at: int, pages: int, name: int) -> int:
    """Return how many pages, at most `pages`, are the same at the start of `edge` and of `key[at:]`."""
    low, high = 0, pages
    while low < high:
        middle = (low + high + 1) // 2
        if key.startswith(edge[low * name : middle * name], at + low * name):
            low = middle
        else:
            high = middle - 1
    return low
