"""SGLang's radix tree over one kind of attention, replayed."""

from __future__ import annotations

import sys

import numpy as np

from wlgen.cache.rule import CacheRule, Evicted, Ids, Match
from wlgen.cache.tree import Live, Node, PageTree
from wlgen.pages import ceil_to

if sys.byteorder != "little":  # keys would still be right, but nobody has tried
    raise ImportError("wlgen replays caches on little-endian machines only")


class RadixCache:
    """Pages of P tokens, or of P bigrams under EAGLE/MTP, in a tree whose nodes are split where prompts part.

    A request admitted while another is computed does not see it: match and insert are the two moments.
    Source: SGLang 0.5.23 unified_radix_cache.checkpoint_into_tree and unified_tree_core.
    """

    def __init__(self, rule: CacheRule, capacity: int | None = None) -> None:
        self.rule = rule
        self._capacity = capacity
        self._page = rule.page_size
        self._ahead = rule.lookahead
        self._width = 8 if rule.speculative else 4  # bytes of a bigram or token
        self._tree = PageTree(rule.page_size * self._width, _same)

    @property
    def held_len(self) -> int:
        """Tokens of whole pages held now."""
        return self._tree.held // self._width

    def match(self, ids: Ids, *, salt: str = "") -> Match:
        """Return what is cached of a prompt; splits the node it leaves, makes its hit recent and pins it."""
        tree, key = self._tree, self._key(ids)
        end = self._whole(len(ids) - 1)  # the last token is always computed
        node, held = tree.walk(tree.root(salt), key, end)
        hit = self._usable(tree.cut(node, held) if held < node.end else node)
        tree.use(hit)
        hit.pins += 1
        return Match(hit.end // self._width, held // self._width, ids, key, hit)

    def insert(self, match: Match, output_ids: Ids) -> None:
        """Add prompt and outputs but the last, whole pages only; evicts first under a capacity; unpins."""
        ids, key, hit = match.ids, match.key, match.node
        total = len(ids) + len(output_ids) - 1
        self._tree.owner += 1
        if self._capacity is not None:
            room = self.held_len + ceil_to(total, self._page) - match.cached_len
            if room > self._capacity:
                self.evict(room - self._capacity)
        if total > len(ids):
            key = self._key(np.concatenate((ids, output_ids[:-1])))
        self._keep(match, key, total)
        hit.pins -= 1
        self._tree.offer(hit)

    def evict(self, tokens: int) -> int:
        """Drop the least recently used, unpinned leaves until `tokens` are freed; return how many were."""
        return self._tree.evict(tokens * self._width, whole=True) // self._width

    def take_evicted(self) -> list[Evicted]:
        """Return what was evicted since the last call, first to last, and forget it."""
        dropped, self._tree.dropped = self._tree.dropped, []
        return [Evicted(owner, size // self._width) for owner, size in dropped]

    def check(self) -> None:
        """Walk the tree; AssertionError says which invariant does not hold."""
        self._tree.check()

    def _usable(self, node: Node) -> Node:
        """Return the deepest node, from this one up, at which a hit may end."""
        return node

    def _keep(self, match: Match, key: bytes, total: int) -> None:
        """Add the first `total` tokens of `key`."""
        tree, end = self._tree, self._whole(total)
        node, at = tree.walk(match.node, key, end)
        if at < node.end:
            node = tree.cut(node, at)
        if at < end:
            node = tree.add(node, key, end, None)
            # The leaf is split at the prompt's end, so that outputs may be evicted without it.
            prompt = self._whole(len(match.ids))
            if at < prompt < end:
                tree.cut(node, prompt)
        tree.use(node)

    def _key(self, ids: Ids) -> bytes:
        if not self.rule.speculative:
            return ids.tobytes()
        pairs = ids[:-1].astype(np.uint64)
        pairs |= ids[1:].astype(np.uint64) << np.uint64(32)
        return pairs.tobytes()

    def _whole(self, tokens: int) -> int:
        """Return the bytes of the whole pages that so many tokens fill."""
        return max(0, tokens - self._ahead) // self._page * self._page * self._width


def _same(live: Live, _at: int) -> tuple[Live, Live]:
    return live, live
