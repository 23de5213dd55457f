"""SGLang's radix tree over one kind of attention, replayed."""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np

from wlgen.cache_rules import CacheRule, Ids, Match
from wlgen.cache_rules._tree import Live, Node, PageTree
from wlgen.pages import ceil_to, floor_to

if sys.byteorder != "little":  # keys would still be right, but nobody has tried
    raise ImportError("wlgen replays caches on little-endian machines only")


class Path(NamedTuple):
    """Where a match stands: its prompt, the prompt's key, and the node its hit ends at."""

    ids: Ids
    key: bytes
    hit: Node


class RadixCache:
    """Pages of P tokens, or of P bigrams under EAGLE/MTP, in a tree whose nodes are split where prompts part.

    A request admitted while another is computed does not see it: match and insert are the two moments.
    Source: SGLang 0.5.23 unified_radix_cache.checkpoint_into_tree and unified_tree_core.
    """

    def __init__(self, rule: CacheRule, capacity: int | None = None) -> None:
        self.rule = rule
        self.evicted_len = 0
        self._capacity = capacity
        self._width = 8 if rule.speculative else 4  # bytes of a bigram or token
        self._tree = PageTree(rule.page_size * self._width, _same)

    @property
    def held_len(self) -> int:
        """Tokens of whole pages held now."""
        return self._tree.held // self._width

    def match(self, ids: Ids, *, salt: str = "") -> Match:
        """Return what is cached of a prompt; splits the node it leaves, makes its hit recent and pins it."""
        key = self._key(ids)
        end = self._whole(len(ids) - 1)  # the last token is always computed
        node, held = self._tree.walk(self._tree.root(salt), key, end)
        node = self._tree.cut(node, held) if held < node.end else node
        hit = self._usable(node)
        self._tree.use(hit)
        hit.pins += 1
        return Match(hit.end // self._width, held // self._width, Path(ids, key, hit))

    def insert(self, match: Match, output_ids: Ids) -> None:
        """Add prompt and outputs but the last, whole pages only; evicts first under a capacity; unpins."""
        path: Path = match.path
        ids, key = path.ids, path.key
        total = len(ids) + len(output_ids) - 1
        self._make_room(ceil_to(total, self.rule.page_size) - match.cached_len)
        if total > len(ids):
            key = self._key(np.concatenate((ids, output_ids[:-1])))
        self._keep(match, key, total)
        path.hit.pins -= 1
        self._tree.offer(path.hit)

    def evict(self, tokens: int) -> int:
        """Drop least recently used, unpinned leaves, each whole, until `tokens` are freed; return how many."""
        freed = self._tree.evict(tokens * self._width, whole=True) // self._width
        self.evicted_len += freed
        return freed

    def check(self) -> None:
        """Walk the tree; AssertionError says which invariant does not hold."""
        self._tree.check()

    def _usable(self, node: Node) -> Node:
        """Return the deepest node, from this one up, at which a hit may end."""
        return node

    def _keep(self, match: Match, key: bytes, total: int) -> None:
        """Add the first `total` tokens of `key`."""
        tree, path = self._tree, match.path
        end = self._whole(total)
        node, at = tree.walk(path.hit, key, end)
        node = tree.cut(node, at) if at < node.end else node
        if at < end:
            node = tree.add(node, key, end, None)
            # The leaf is split at the prompt's end, so that outputs may be evicted without it.
            prompt = self._whole(len(path.ids))
            if at < prompt < end:
                tree.cut(node, prompt)
        tree.use(node)

    def _make_room(self, tokens: int) -> None:
        if self._capacity is not None and self.held_len + tokens > self._capacity:
            self.evict(self.held_len + tokens - self._capacity)

    def _key(self, ids: Ids) -> bytes:
        if not self.rule.speculative:
            return ids.tobytes()
        pairs = ids[:-1].astype(np.uint64)
        pairs |= ids[1:].astype(np.uint64) << np.uint64(32)
        return pairs.tobytes()

    def _whole(self, tokens: int) -> int:
        """Return the bytes of the whole pages that so many tokens fill."""
        return floor_to(max(0, tokens - self.rule.lookahead), self.rule.page_size) * self._width


def _same(live: Live, _at: int) -> tuple[Live, Live]:
    return live, live
