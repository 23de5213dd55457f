"""SGLang's radix tree over one kind of attention, replayed."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from wlgen.cache.rule import CacheRule, Evicted, Ids, Match
from wlgen.cache.tree import Live, Node, PageTree
from wlgen.pages import ceil_to, floor_to

if sys.byteorder != "little":  # nothing here is known to fail on big-endian machines, but nobody has tried
    raise ImportError("wlgen replays caches on little-endian machines only")


class RadixCache:
    """A tree of pages of P tokens, or of P bigrams under EAGLE/MTP; its nodes are split where prompts differ.

    A request calls `match` when it is admitted and `insert` when it ends: a request admitted in between does
    not find its tokens.

    Under a capacity a prompt makes room, enters the tree and is pinned chunk by chunk, as each chunk of
    `chunk` tokens is computed. A prompt of 5,835 tokens in chunks of 512 makes leaves of 512 tokens, so that
    an eviction may drop its end and leave 1,536 of its tokens to be hit; as one leaf it would be lost whole.
    Without a capacity a prompt enters at once, which gives the same hits. Source: SGLang 0.5.23
    unified_radix_cache.checkpoint_into_tree and unified_tree_core; a real server under pressure did so too.
    """

    def __init__(self, rule: CacheRule, capacity: int | None, chunk: int) -> None:
        self.rule = rule
        self._capacity = None if capacity is None else floor_to(capacity, rule.page_size)
        self._chunk = chunk
        self._page = rule.page_size
        self._ahead = rule.lookahead
        self._tree = PageTree(rule.page_size, 8 if rule.speculative else 4, _same)

    @property
    def held_len(self) -> int:
        """Tokens of whole pages held now."""
        return self._tree.held

    def match(self, ids: Ids, *, salt: str = "") -> Match:
        """Return what is cached of a prompt; split the node it leaves, make its hit recent and pin it."""
        tree = self._tree
        key = tree.key(self._units(ids))
        end = self._whole(len(ids) - 1)  # the last token is always computed
        node, held = tree.walk(tree.root(salt), key, end)
        hit = self._usable(tree.cut(node, held) if held < node.end else node)
        tree.use(hit)
        hit.pins += 1
        return Match(hit.end, held, ids, key, hit)

    def insert(self, match: Match, output_ids: Ids) -> None:
        """Add the whole pages of the prompt and of all outputs but the last; evict first if full; unpin."""
        ids, key = match.ids, match.key
        total = len(ids) + len(output_ids) - 1
        self._tree.owner += 1
        if total > len(ids):
            start = self._tree.units(key)
            key += self._tree.key(self._units(np.concatenate((ids[start:], output_ids[:-1]))))
        node = self._keep(match, key, total)
        node.pins -= 1
        self._tree.offer(node)

    def evict(self, tokens: int) -> int:
        """Drop the least recently used, unpinned leaves until `tokens` are freed; return the tokens freed."""
        return self._tree.evict(tokens, whole=True)

    def take_evicted(self) -> list[Evicted]:
        """Return what was evicted since the last call, first to last, and forget it."""
        dropped, self._tree.dropped = self._tree.dropped, []
        return [Evicted(owner, tokens) for owner, tokens in dropped]

    def check(self) -> None:
        """Walk the tree; AssertionError says which invariant does not hold."""
        self._tree.check()

    def _usable(self, node: Node) -> Node:
        """Return the deepest node, from this one up, at which a hit may end."""
        return node

    def _keep(self, match: Match, key: bytes, total: int) -> Node:
        """Add the first `total` tokens of `key`; return the node where they end, which is pinned now."""
        node: Node = match.node
        prompt_len = len(match.ids)
        # The prompt and its outputs are two leaves, so that the outputs may be evicted alone.
        chunks = (prompt_len,) if self._capacity is None else self._chunk_ends(match.cached_len, prompt_len)
        start = match.cached_len
        for end in chunks:
            self._make_room(node.end, start, end)
            node, start = self._extend(node, key, self._whole(end)), end
        if total > prompt_len:
            # Every output asks for a page when it is computed: room for the last output is room for all.
            self._make_room(node.end, total - 1, total)
            node = self._extend(node, key, self._whole(total))
        return node

    def _chunk_ends(self, start: int, prompt_len: int) -> Iterator[int]:
        """Yield where each prefill chunk ends. Only a first chunk that is not the last ends on a page."""
        first = self._chunk
        if ceil_to(prompt_len - start, self._page) > first:
            first = floor_to(first, self._page) or first
        end = min(start + first, prompt_len)
        yield end
        while end < prompt_len:
            end = min(end + self._chunk, prompt_len)
            yield end

    def _make_room(self, published: int, start: int, end: int) -> None:
        """Evict until the request's tokens from `start` to `end` have room; the tree holds its `published`.

        SGLang asks for one page more than the tokens fill, since the first token may begin a page, and so may
        evict a leaf more than it needs. With pages of 16, a chunk of 512 tokens asks for 528.
        """
        if self._capacity is None:
            return
        over = self._page if self._page > 1 else 0
        free = self._capacity - self.held_len - (ceil_to(start, self._page) - published)
        if end - start + over > free:
            self.evict(end - start + over - free)

    def _extend(self, node: Node, key: bytes, end: int) -> Node:
        """Add `key` below a pinned node up to `end`; return the node that ends there, now pinned."""
        tree = self._tree
        last, at = tree.walk(node, key, end)
        if at < last.end:
            last = tree.cut(last, at)
        if at < end:
            last = tree.add(last, key, end, None)
        tree.use(last)
        self._repin(node, last)
        return last

    def _repin(self, node: Node, last: Node) -> None:
        """Move a running request's pin from `node` to `last`."""
        last.pins += 1
        node.pins -= 1
        self._tree.offer(node)

    def _units(self, ids: Ids) -> NDArray[np.generic]:
        """Return the units of the tree: tokens, or under EAGLE/MTP each token with the one behind it."""
        if not self.rule.speculative:
            return ids
        pairs = ids[:-1].astype(np.uint64)
        pairs |= ids[1:].astype(np.uint64) << np.uint64(32)
        return pairs

    def _whole(self, tokens: int) -> int:
        """Return the units of the whole pages that `tokens` tokens fill."""
        return max(0, tokens - self._ahead) // self._page * self._page


def _same(live: Live, _at: int) -> tuple[Live, Live]:
    return live, live
