"""vLLM's hash-chained blocks over one kind of attention, replayed."""

from __future__ import annotations

import numpy as np

from wlgen.cache.rule import CacheRule, Evicted, Ids, Match
from wlgen.cache.tree import Live, Node, PageTree
from wlgen.pages import ceil_to


class BlockCache:
    """Blocks of P tokens. vLLM names a block by a hash of all tokens up to its end; here it is a path's end.

    In vLLM a block can be hit as soon as its request is scheduled; here as soon as `insert` has added it.
    Source: vLLM 0.32.0 kv_cache_manager, kv_cache_coordinator.UnitaryKVCacheCoordinator, block_pool.
    """

    def __init__(self, rule: CacheRule, capacity: int | None = None) -> None:
        self.rule = rule
        self._capacity = capacity
        self._page = rule.window_page or rule.page_size
        self._tree = PageTree(self._page, 4, self._split)

    @property
    def held_len(self) -> int:
        """Tokens of whole blocks held now."""
        return self._tree.held

    def match(self, ids: Ids, *, salt: str = "") -> Match:
        """Return what is cached of a prompt, and pin the part of the prompt that is held."""
        key = self._tree.key(ids)
        most = self._most(len(ids)) // self._page * self._page
        node, at = self._tree.walk(self._tree.root(salt), key, most)
        node.pins += 1
        return Match(self._usable(node, at, len(ids)), at, ids, key, node)

    def insert(self, match: Match, output_ids: Ids) -> None:
        """Add the whole blocks of the prompt and of all outputs but the last; evict first if full; unpin."""
        ids, key, node = match.ids, match.key, match.node
        total = len(ids) + len(output_ids) - 1
        self._tree.owner += 1
        if self._capacity is not None:
            room = self.held_len + ceil_to(total, self.rule.page_size) - match.cached_len
            if room > self._capacity:
                self.evict(room - self._capacity)
        if total > len(ids):
            start = self._tree.units(key)
            key += self._tree.key(np.concatenate((ids[start:], output_ids[:-1])))
        self._keep(match, key, total)
        node.pins -= 1
        self._tree.offer(node)

    def evict(self, tokens: int) -> int:
        """Drop the least recently used, unpinned blocks until `tokens` are freed; return the tokens freed."""
        return self._tree.evict(tokens, whole=False)

    def take_evicted(self) -> list[Evicted]:
        """Return what was evicted since the last call, first to last, and forget it."""
        dropped, self._tree.dropped = self._tree.dropped, []
        return [Evicted(owner, tokens) for owner, tokens in dropped]

    def check(self) -> None:
        """Walk the blocks; AssertionError says which invariant does not hold."""
        self._tree.check()

    def _most(self, prompt_len: int) -> int:
        """Return how many tokens of a prompt may be matched: all but the last, which is always computed."""
        return prompt_len - 1

    def _usable(self, _node: Node, held_len: int, _prompt_len: int) -> int:
        """Return the hit: the tokens held, less the block that EAGLE/MTP drops."""
        return max(0, held_len - self.rule.lookahead)

    def _keep(self, match: Match, key: bytes, total: int) -> None:
        """Add the first `total` tokens of `key`."""
        self._store(match, key, total // self._page * self._page, None)

    def _store(self, match: Match, key: bytes, tokens: int, live: Live) -> Node:
        """Hold the first `tokens` of `key`, a multiple of the block; return the node that ends there.

        The node becomes the most recent. live: what a new node keeps as its `live`.
        """
        tree, end = self._tree, tokens
        # The match may have ended inside its node, and another insertion may have cut that node since.
        node, held = match.node, match.held_len
        while node.end > held:
            node = node.parent
        node, at = tree.walk(node, key, end)
        if at < node.end:
            node = tree.cut(node, at)
        if at < end:
            node = tree.add(node, key, end, live)
        tree.use(node)
        return node

    def _split(self, live: Live, _at: int) -> tuple[Live, Live]:
        return live, live
