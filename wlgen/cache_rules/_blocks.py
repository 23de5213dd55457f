"""vLLM's hash-chained blocks over one kind of attention, replayed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wlgen.cache_rules import CacheRule, Ids, Match
from wlgen.cache_rules._tree import Live, Node, PageTree
from wlgen.pages import ceil_to, floor_to

TOKEN = 4  # bytes


class Path(NamedTuple):
    """Where a match stands: its prompt, and the node and offset in bytes at which the prompt leaves the tree."""

    ids: Ids
    key: bytes
    node: Node
    at: int


class BlockCache:
    """Blocks of P tokens, each named by a hash of all tokens up to its end: a chain of names is a path.

    A block can be hit as soon as its request is scheduled; here as soon as it is inserted.
    Source: vLLM 0.32.0 kv_cache_manager, kv_cache_coordinator.UnitaryKVCacheCoordinator, block_pool.
    """

    def __init__(self, rule: CacheRule, capacity: int | None = None) -> None:
        self.rule = rule
        self.evicted_len = 0
        self._capacity = capacity
        self._page = rule.window_page or rule.page_size
        self._tree = PageTree(self._page * TOKEN, self._split)

    @property
    def held_len(self) -> int:
        """Tokens of whole blocks held now."""
        return self._tree.held // TOKEN

    def match(self, ids: Ids, *, salt: str = "") -> Match:
        """Return what is cached of a prompt; makes all of it that is held recent, and pins it."""
        key = ids.tobytes()
        most = floor_to(self._most(len(ids)), self._page) * TOKEN
        node, at = self._tree.walk(self._tree.root(salt), key, most)
        node.pins += 1
        held_len = at // TOKEN
        return Match(self._usable(node, held_len, len(ids)), held_len, Path(ids, key, node, at))

    def insert(self, match: Match, output_ids: Ids) -> None:
        """Add prompt and outputs but the last, whole blocks only; evicts first under a capacity; unpins."""
        path: Path = match.path
        ids, key, node = path.ids, path.key, path.node
        total = len(ids) + len(output_ids) - 1
        if self._capacity is not None:
            room = self.held_len + ceil_to(total, self.rule.page_size) - match.cached_len
            if room > self._capacity:
                self.evict(room - self._capacity)
        if total > len(ids):
            key = np.concatenate((ids, output_ids[:-1])).tobytes()
        self._keep(match, key, total)
        node.pins -= 1
        self._tree.offer(node)

    def evict(self, tokens: int) -> int:
        """Drop the least recently used, unpinned blocks, tails first, until `tokens` are freed; return them."""
        freed = self._tree.evict(tokens * TOKEN, whole=False) // TOKEN
        self.evicted_len += freed
        return freed

    def check(self) -> None:
        """Walk the blocks; AssertionError says which invariant does not hold."""
        self._tree.check()

    def _most(self, prompt_len: int) -> int:
        """Return how many tokens of a prompt may be matched: the last one is always computed."""
        return prompt_len - 1

    def _usable(self, _node: Node, held_len: int, _prompt_len: int) -> int:
        """Return the hit: what is held, less the block that EAGLE/MTP drops."""
        return max(0, held_len - self.rule.lookahead)

    def _keep(self, match: Match, key: bytes, total: int) -> None:
        """Add the first `total` tokens of `key`."""
        self._store(match.path, key, floor_to(total, self._page))

    def _store(self, path: Path, key: bytes, tokens: int) -> Node:
        """Hold the first `tokens` of `key`, whole blocks; return the node that ends there, now recent."""
        tree, end = self._tree, tokens * TOKEN
        node, at = path.node, path.at
        if at < node.end and node.parent is not None:
            node = node.parent
        node, at = tree.walk(node, key, end)
        if at < node.end:
            node = tree.cut(node, at)
        if at < end:
            node = tree.add(node, key, end, self._no_life())
        tree.use(node)
        return node

    def _no_life(self) -> Live:
        return None

    def _split(self, live: Live, _at: int) -> tuple[Live, Live]:
        return live, live
