"""vLLM's hash-chained blocks over full attention beside a sliding window or another sparse group, replayed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from wlgen.cache_rules import CacheRule, Match
from wlgen.cache_rules._blocks import TOKEN, BlockCache
from wlgen.cache_rules._tree import Live, Node
from wlgen.pages import ceil_to, floor_to

Spans: TypeAlias = tuple[tuple[int, int], ...]  # sorted, apart, half-open


class WindowBlockCache(BlockCache):
    """Full attention holds every block; the window's group keeps only the tails a later prompt can resume at.

        | blocks of full attention ................................|
        |             [tail]          [tail]             [tail]
        root       junction ^   retention ^     prompt's end ^   (each floored to the hit quantum)

    A hit is a multiple of the quantum, at most what full attention holds, before which a whole tail lies. A
    request that hits less than full attention holds keeps a tail there: the junction. EAGLE/MTP match one
    more block behind the hit and drop it, so tails reach one block further, and prompts' one quantum less far.
    A model whose sparse group has no window (Mamba) keeps one block.
    Source: vLLM 0.32.0 kv_cache_coordinator.HybridKVCacheCoordinator, SlidingWindowManager.
    """

    def __init__(self, rule: CacheRule, capacity: int | None = None) -> None:
        super().__init__(rule, capacity)
        self._tail = ceil_to(max(1, rule.sliding_window - 1), self._page)
        self._peek = self._page if rule.speculative else 0
        # Only DeepSeek-V4 tells which group is the draft's, the window's; else full attention drops too.
        self._full_drop = rule.lookahead if rule.speculative and not rule.window_page else 0

    def _most(self, prompt_len: int) -> int:
        return prompt_len if self.rule.speculative else prompt_len - 1

    def _usable(self, node: Node, held_len: int, prompt_len: int) -> int:
        full = self._full_hit(held_len, prompt_len)
        end = min(held_len, full + self._peek)
        whole = 0
        for start, stop in reversed(_joined(self._tails(node, end))):
            hit = floor_to(max(0, stop - self._peek), self.rule.hit_quantum)
            if hit - start >= self._tail:
                return hit
            whole = hit if start == 0 else 0
        # A shorter run of blocks does where it begins with the prompt. There, where blocks are finer than the
        # quantum, the engine first floors and then drops a block, so EAGLE/MTP lose one more quantum.
        lost = self.rule.hit_quantum if self._peek and self._page != self.rule.hit_quantum else 0
        return max(0, whole - lost)

    def _full_hit(self, held_len: int, prompt_len: int) -> int:
        """Return the hit of full attention alone."""
        most = held_len if self._full_drop else min(held_len, prompt_len - 1)
        return max(0, floor_to(most, self.rule.hit_quantum) - self._full_drop)

    def _tails(self, node: Node, end: int) -> Iterator[tuple[int, int]]:
        """Yield the spans kept on the way to a node, first to last, up to `end`."""
        for above in node.line():
            yield from ((a, min(b, end)) for a, b in above.live if a < end)

    def _keep(self, match: Match, key: bytes, total: int) -> None:
        quantum = self.rule.hit_quantum
        end = floor_to(total, quantum)
        if self._peek and end:
            end = floor_to(min(total, end + self._peek), self._page)
        node = self._store(match.path, key, end)
        prompt_len = len(match.path.ids)
        full = self._full_hit(match.held_len, prompt_len)
        ends = [floor_to(e, quantum) for e in (prompt_len - 1, prompt_len)]
        points = {max(0, e - quantum) for e in ends} if self._peek else {ends[0]}
        points |= {full} if full > match.cached_len else set()
        spans = [*self._around(points), *self._retained(end)]
        spans = [(max(a, match.cached_len), min(b, end)) for a, b in spans]
        spans = [(a, b) for a, b in spans if a < b]
        for above in node.line():
            first, last = above.start // TOKEN, above.end // TOKEN
            new = [(max(a, first), min(b, last)) for a, b in spans if a < last and b > first]
            if new:
                above.live = tuple(_joined(sorted([*above.live, *new])))

    def _around(self, points: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield the span that a hit at each point needs."""
        yield from ((max(0, point - self._tail), point + self._peek) for point in points)

    def _retained(self, end: int) -> Iterator[tuple[int, int]]:
        """Yield the spans kept whatever the prompt, up to `end`."""
        step = self.rule.retention
        if step and self._tail + self._peek >= step:
            yield 0, end
        elif step:
            yield from self._around(range(step, end + step, step))

    def _no_life(self) -> Live:
        return ()

    def _split(self, live: Live, at: int) -> tuple[Live, Live]:
        point = at // TOKEN
        upper = tuple((a, min(b, point)) for a, b in live if a < point)
        return upper, tuple((max(a, point), b) for a, b in live if b > point)


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return sorted spans with those that touch made one."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
