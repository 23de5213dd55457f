"""SGLang's radix tree over full and sliding-window attention, replayed; also DeepSeek-V4's on an NPU."""

from __future__ import annotations

from dataclasses import dataclass

from wlgen.cache.radix import RadixCache
from wlgen.cache.rule import CacheRule, Match
from wlgen.cache.tree import Node
from wlgen.pages import ceil_to, floor_to

DECODE_INTERVAL = 128  # tokens that leave the window before a decoding request frees them


@dataclass(slots=True)
class _Request:
    """A running request. Positions count units of the key: tokens, or bigrams under EAGLE/MTP.

    protected: the end of what the tree holds of the request. freed: the position up to which its window's
    slots are freed. junction: the end of a prefix that the tree holds without a live window, which the
    request must publish; 0 for none.
    """

    hit: Node
    key: bytes
    protected: int
    junction: int
    freed: int = 0


class WindowRadixCache(RadixCache):
    """A node is live while the window's KV of its tokens is kept; before a hit a whole window must be live.

        | tombstone ......... | window | tombstone ....... | window |
        root      a chunk's end, or a junction      the prompt's end

    The cache prefills one request at a time, in chunks of `chunk` tokens; after each chunk it frees the slots
    before the window. A request that finds more of its prefix held than it may use publishes that prefix
    first, so that the next request hits there. Without a window the cache frees nothing, and only the hit
    quantum counts.
    Source: SGLang 0.5.23 components/swa, mem_cache/common, npu/dsv4/c128_sidecar_component.
    """

    def __init__(self, rule: CacheRule, capacity: int | None, chunk: int) -> None:
        super().__init__(rule, capacity, chunk)
        self._quantum = rule.hit_quantum
        self._window = rule.sliding_window
        self._last = ceil_to(self._window, rule.page_size)  # the most tokens of a request's last node
        self._tail = max(self._last, rule.page_size)  # the tokens of its window that a running request keeps

    def _usable(self, node: Node) -> Node:
        hit: Node | None = None
        window, quantum = self._window, self._quantum
        while node.parent is not None:
            if not node.live:
                hit = None
            elif hit is None and node.end % quantum == 0:
                hit = node
            if hit is not None and hit.end - node.start >= window:
                return hit
            node = node.parent
        return hit or node

    def _keep(self, match: Match, key: bytes, total: int) -> Node:
        prompt_len = len(match.ids)
        junction = match.held_len // self._quantum * self._quantum
        request = _Request(match.node, key, match.cached_len, junction)
        start = match.cached_len
        for end in self._chunk_ends(match.cached_len, prompt_len):
            self._make_room(request.protected, start, end)
            self._publish(request, end, finished=end == total)
            start = end
        if total > prompt_len:
            if self._window:
                self._decode(request, prompt_len + 1, total)
            self._make_room(request.protected, total - 1, total)
            self._publish(request, total, finished=True)
        return request.hit

    def _publish(self, request: _Request, tokens: int, *, finished: bool) -> None:
        """Insert the first `tokens` of a request, or only its junction if these tokens reach it just now."""
        ahead = self._ahead
        junction = request.junction
        branch = request.protected < junction and junction + ahead <= tokens
        units = junction if branch else max(0, tokens - ahead)
        if self._quantum != self._page:
            units = units // self._quantum * self._quantum
        if not finished:
            self._free(request, units - 1)
        end = units // self._page * self._page
        if end == 0:
            return
        self._insert(request, end)
        request.protected = end
        if branch:
            request.junction = 0
            if not finished:
                self._free(request, tokens - ahead - 1)

    def _free(self, request: _Request, before: int) -> None:
        """Free, in whole pages, the window's slots that the token at position `before` no longer reads."""
        if not self._window or before - self._window < request.freed + 1:
            return
        request.freed = max(request.freed, request.protected)
        freed = floor_to(max(0, before - self._tail), self._page)
        request.freed = max(request.freed, freed)

    def _decode(self, request: _Request, start: int, total: int) -> None:
        """Free what leaves the window while outputs are computed; the first step frees nothing."""
        ahead = self._window + DECODE_INTERVAL
        before = max(start, request.freed + ahead)
        while before < total:
            self._free(request, before)
            before = max(before + 1, request.freed + ahead)

    def _insert(self, request: _Request, end: int) -> None:
        """Add a request's first `end` units, live from `freed` on; dead nodes there become live again."""
        tree, key, freed = self._tree, request.key, request.freed
        node, at = tree.walk(request.hit, key, end)
        if at < node.end:
            node = tree.cut(node, at)
        held, known = node, max(request.protected, freed)
        while held.end > known and held.parent is not None:
            above = held.parent
            if not held.live:
                if held.start < freed:
                    tree.cut(held, freed)
                held.live = True
            held = above
        if at < end:
            node = self._add_leaf(node, key, end, freed)
        tree.use(node)
        self._repin(request.hit, node)
        request.hit = node

    def _add_leaf(self, parent: Node, key: bytes, stop: int, freed: int) -> Node:
        """Add what is new as leaves, cut at `freed`, at the start of the last window, and at each quantum."""
        tree, start, quantum = self._tree, parent.end, self._quantum
        cuts = {stop}
        if stop > freed:
            cuts |= {freed, max(freed, stop - self._last)}
        if quantum != tree.page:
            cuts.update(range(floor_to(start, quantum) + quantum, stop, quantum))
        leaf = parent
        for at in sorted(cuts):
            if at > start:
                leaf = tree.add(leaf, key, at, freed <= leaf.end < stop)
        return leaf
