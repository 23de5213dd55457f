"""A compressed tree of whole pages: what one rank holds, exactly, in the space of its distinct pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias

from xxhash import xxh3_64_intdigest

Live: TypeAlias = Any


class Node:
    """A run of pages below its parent's. Offsets are bytes from the start of the prompt's key.

    used: the clock when it was last used. pins: running requests whose match ends here. live: the cache's own.
    """

    __slots__ = ("children", "key", "live", "parent", "pins", "start", "used")

    def __init__(self, parent: Node | None, start: int, key: bytes, used: int, live: Live) -> None:
        self.parent = parent
        self.start = start
        self.key = key
        self.children: dict[int, Node] = {}
        self.used = used
        self.pins = 0
        self.live = live

    @property
    def end(self) -> int:
        """Offset behind the node's last page."""
        return self.start + len(self.key)

    def line(self) -> list[Node]:
        """Return the nodes from the root's child down to this one."""
        nodes: list[Node] = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes


class PageTree:
    """Prompts' keys as a tree; a child is found by the hash of its first page and proved by its bytes.

    page: bytes of a page. split_live: (live, offset) -> the live of the parts before and behind the offset.
    """

    def __init__(self, page: int, split_live: Callable[[Live, int], tuple[Live, Live]]) -> None:
        self.page = page
        self.held = 0  # bytes
        self.clock = 0
        self._split_live = split_live
        self._roots: dict[str, Node] = {}
        self._leaves: list[tuple[int, int, Node]] | None = None  # a heap, from the first eviction on

    def root(self, salt: str) -> Node:
        """Return the root of a salt's prompts."""
        found = self._roots.get(salt)
        if found is None:
            found = self._roots[salt] = Node(None, 0, b"", 0, None)
        return found

    def walk(self, node: Node, key: bytes, end: int) -> tuple[Node, int]:
        """Return how far `key[:end]` is held below a node whose pages it has: the last node and the offset.

        The offset lies inside that node where the key leaves it there. `end` is a multiple of the page.
        """
        at, page = node.end, self.page
        while at < end:
            child = node.children.get(xxh3_64_intdigest(key[at : at + page]))
            if child is None:
                break
            edge = child.key
            stop = at + len(edge)
            if stop <= end and key.startswith(edge, at):
                node, at = child, stop
                continue
            same = _common(edge, key, at, min(stop, end) - at, page)
            return (child, at + same) if same else (node, at)
        return node, at

    def cut(self, node: Node, at: int) -> Node:
        """Split a node so that one ends at `at`, and return that one; the node itself keeps the rest."""
        parent = node.parent
        if parent is None or at == node.end:
            return node
        head, tail = node.key[: at - node.start], node.key[at - node.start :]
        above, node.live = self._split_live(node.live, at)
        upper = Node(parent, node.start, head, node.used, above)
        parent.children[self._digest(head)] = upper
        upper.children[self._digest(tail)] = node
        node.parent, node.start, node.key = upper, at, tail
        return upper

    def add(self, parent: Node, key: bytes, end: int, live: Live) -> Node:
        """Add the pages of `key` between a node's end and `end`, as its child."""
        start = parent.end
        leaf = Node(parent, start, key[start:end], self.clock, live)
        parent.children[self._digest(leaf.key)] = leaf
        self.held += end - start
        return leaf

    def use(self, node: Node) -> None:
        """Move the clock on and make a node and all above it recent."""
        self.clock += 1
        above: Node | None = node
        while above is not None:
            above.used = self.clock
            above = above.parent
        self.offer(node)

    def offer(self, node: Node) -> None:
        """Enter a node for eviction; it is passed over while it is pinned, a parent, or used again."""
        if self._leaves is not None and not node.children:
            heappush(self._leaves, (node.used, id(node), node))

    def evict(self, need: int, *, whole: bool) -> int:
        """Drop pages of the least recently used unpinned leaves until `need` bytes are freed; return how many.

        whole: leaf by leaf, as SGLang does; else page by page from a leaf's end, as vLLM does.
        """
        if self._leaves is None:
            self._leaves = [(n.used, id(n), n) for n in self.nodes() if not n.children]
            heapify(self._leaves)
        freed = 0
        while freed < need and self._leaves:
            used, _, leaf = heappop(self._leaves)
            if used != leaf.used or leaf.children or leaf.pins or leaf.parent is None:
                continue
            short = -(-(need - freed) // self.page) * self.page
            freed += self._drop(leaf) if whole or short >= len(leaf.key) else self._trim(leaf, short)
        self.held -= freed
        return freed

    def nodes(self) -> Iterator[Node]:
        """Yield every node but the roots, parents first."""
        stack = [child for root in self._roots.values() for child in root.children.values()]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def check(self) -> None:
        """Raise AssertionError unless links, whole pages, hashes, recency and the total held are right."""
        held = 0
        for node in self.nodes():
            held += len(node.key)
            parent = node.parent
            if parent is None or parent.children.get(self._digest(node.key)) is not node:
                raise AssertionError(f"the node at {node.start} is not its parent's child")
            if node.start != parent.end or not node.key or len(node.key) % self.page:
                raise AssertionError(f"the node at {node.start} is not whole pages behind its parent")
            if node.used > parent.used and parent.parent is not None:
                raise AssertionError(f"the node at {node.start} is more recent than its parent")
            if node.pins < 0:
                raise AssertionError(f"the node at {node.start} was unpinned too often")
        if held != self.held:
            raise AssertionError(f"{held} bytes are held, {self.held} counted")

    def _digest(self, pages: bytes) -> int:
        return xxh3_64_intdigest(pages[: self.page])

    def _drop(self, leaf: Node) -> int:
        parent = leaf.parent
        if parent is None:
            return 0
        del parent.children[self._digest(leaf.key)]
        leaf.parent = None
        self.offer(parent)
        return len(leaf.key)

    def _trim(self, leaf: Node, short: int) -> int:
        leaf.live, _ = self._split_live(leaf.live, leaf.end - short)
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
