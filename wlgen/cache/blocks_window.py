"""vLLM's hash-chained blocks over full attention beside a sliding window, replayed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from wlgen.cache.blocks import BlockCache
from wlgen.cache.rule import CacheRule, Match
from wlgen.cache.tree import Live, Node
from wlgen.pages import ceil_to, floor_to

Spans: TypeAlias = tuple[tuple[int, int], ...]  # sorted, apart, half-open


class WindowBlockCache(BlockCache):
    """Full attention holds every block; the window's group keeps only tails, at which a later prompt resumes.

        | blocks of full attention ................................|
        |             [tail]          [tail]             [tail]
        root       junction ^   retention ^     prompt's end ^   (each floored to the hit quantum)

    A hit ends at a multiple of the quantum, no later than full attention holds, with a whole tail before it.
    Where full attention holds more than a request hits, the request keeps a tail at the end of what is held,
    the junction. EAGLE/MTP match one block more and drop it: each tail then reaches one block further, and
    the tail at a prompt's end stands one quantum earlier. A sparse group without a window (Mamba) keeps one
    block.
    Source: vLLM 0.32.0 kv_cache_coordinator.HybridKVCacheCoordinator, SlidingWindowManager.
    """

    def __init__(self, rule: CacheRule, capacity: int | None = None) -> None:
        super().__init__(rule, capacity)
        self._tail = ceil_to(max(1, rule.sliding_window - 1), self._page)
        self._peek = self._page if rule.speculative else 0
        # vLLM knows only for DeepSeek-V4 that the draft model uses the window's group; for other models full
        # attention drops a block too.
        self._full_drop = rule.lookahead if rule.speculative and not rule.window_page else 0

    def _most(self, prompt_len: int) -> int:
        return prompt_len if self.rule.speculative else prompt_len - 1

    def _usable(self, node: Node, held_len: int, prompt_len: int) -> int:
        quantum, tail = self.rule.hit_quantum, self._tail
        full = self._full_hit(held_len, prompt_len)
        end = min(held_len, full + self._peek)
        first = hit = -1  # the start of the run of kept blocks that the walk follows, and the hit at its end
        above: Node | None = node
        while above is not None:
            for start, last in reversed(above.live or ()):
                if start >= end:
                    continue
                if last != first:
                    hit = floor_to(max(0, min(last, end) - self._peek), quantum)
                first = start
                if hit - first >= tail:
                    return hit
            above = above.parent
        if first != 0:
            return 0
        # A run shorter than a tail is enough if it begins at the prompt's start. If blocks are finer than
        # the quantum, the engine rounds down before it drops the block ahead: EAGLE/MTP lose a quantum.
        return max(0, hit - quantum) if self._peek and self._page != quantum else hit

    def _full_hit(self, held_len: int, prompt_len: int) -> int:
        """Return the hit of full attention alone."""
        most = held_len if self._full_drop else min(held_len, prompt_len - 1)
        return max(0, floor_to(most, self.rule.hit_quantum) - self._full_drop)

    def _keep(self, match: Match, key: bytes, total: int) -> None:
        end = floor_to(total, self.rule.hit_quantum)
        if self._peek and end:
            end = floor_to(min(total, end + self._peek), self._page)
        spans = self._spans(match, end)
        above = self._store(match, key, end, ())
        while spans and above.parent is not None and above.end > spans[0][0]:
            first, last = above.start, above.end
            new = [(max(a, first), min(b, last)) for a, b in spans if a < last and b > first]
            above.live = tuple(_joined(sorted([*above.live, *new]))) if above.live else tuple(new)
            above = above.parent

    def _spans(self, match: Match, end: int) -> list[tuple[int, int]]:
        """Return the spans that a request keeps between its hit and `end`, sorted and apart."""
        quantum, prompt_len = self.rule.hit_quantum, len(match.ids)
        if self._peek:
            points = [max(0, floor_to(e, quantum) - quantum) for e in (prompt_len - 1, prompt_len)]
        else:
            points = [floor_to(prompt_len - 1, quantum)]
        full = self._full_hit(match.held_len, prompt_len)
        if full > match.cached_len:
            points.append(full)
        step = self.rule.retention
        if step and self._tail + self._peek >= step:
            return [(match.cached_len, end)] if match.cached_len < end else []
        if step:
            points.extend(range(floor_to(match.cached_len, step), end + step, step))
        spans = []
        for point in points:
            first, last = max(match.cached_len, point - self._tail), min(point + self._peek, end)
            if first < last:
                spans.append((first, last))
        return _joined(sorted(spans)) if len(spans) > 1 else spans

    def _split(self, live: Live, at: int) -> tuple[Live, Live]:
        upper = tuple((a, min(b, at)) for a, b in live if a < at)
        return upper, tuple((max(a, at), b) for a, b in live if b > at)


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return sorted spans, each run of touching spans joined into one."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
