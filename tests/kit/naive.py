"""Prefix caches by brute force: sets of page names instead of trees, so that nothing is shared with wlgen.

A page is named by a hash of all tokens up to its end. A prompt of 640 tokens in pages of 64 has ten names; a
cache is the set of the names that it holds, and for a hybrid model the smaller set of those it may resume at.
It holds all it is given, and prefills each prompt of at most one chunk. test_naive.py compares the figures
with those of wlgen/cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

DECODED = 128  # tokens that leave SGLang's window before a decoding request frees them
_NAMES: dict[tuple[bytes, int, int], list[int]] = {}


def names_of(ids: Any, page: int, ahead: int = 0) -> list[int]:
    """Return the name of each whole page of a prompt. ahead: 1 where units are pairs of tokens."""
    key = (ids.tobytes(), page, ahead)
    found = _NAMES.get(key)
    if found is None:
        if len(_NAMES) > 5000:
            _NAMES.clear()
        tokens, name = ids.tolist(), 0
        found = []
        for end in range(page, len(tokens) - ahead + 1, page):
            name = hash((name, tuple(tokens[end - page : end + ahead])))
            found.append(name)
        _NAMES[key] = found
    return found


class Found(NamedTuple):
    """What a prompt found. hit, held: tokens that it may use, and that are held."""

    hit: int
    held: int
    ids: Any


@dataclass
class Dense:
    """One kind of attention: whatever is held can be hit. sglang: pairs of tokens under speculation."""

    page: int
    ahead: int = 0
    drop: int = 0
    held: set[int] = field(default_factory=set)

    def match(self, ids: Any) -> Found:
        names = names_of(ids, self.page, self.ahead)
        most = (len(ids) - 1 - self.ahead) // self.page
        whole = _run(names[: max(0, most)], self.held)
        return Found(max(0, whole * self.page - self.drop), whole * self.page, ids)

    def insert(self, found: Found, _output_len: int) -> None:
        self.held.update(names_of(found.ids, self.page, self.ahead))


@dataclass
class SglangWindow:
    """Full attention beside a window of `window` tokens, hits at multiples of `quantum`."""

    page: int
    quantum: int
    window: int
    ahead: int = 0
    held: set[int] = field(default_factory=set)
    live: set[int] = field(default_factory=set)

    def match(self, ids: Any) -> Found:
        names = names_of(ids, self.page, self.ahead)
        whole = _run(names[: max(0, (len(ids) - 1 - self.ahead) // self.page)], self.held)
        for end in range(whole, 0, -1):
            first = max(0, end - -(-self.window // self.page))
            if end * self.page % self.quantum == 0 and self.live.issuperset(names[first:end]):
                return Found(end * self.page, whole * self.page, ids)
        return Found(0, whole * self.page, ids)

    def insert(self, found: Found, output_len: int) -> None:
        prompt, total = len(found.ids) - self.ahead, len(found.ids) + output_len - 1 - self.ahead
        junction = found.held // self.quantum * self.quantum
        branches = found.hit < junction <= prompt
        end, freed = (junction if branches else prompt), 0
        if output_len > 1:
            whole = end // self.quantum * self.quantum if self.quantum != self.page else end
            freed = self._freed(found.hit, whole - 1, freed)
        protected = self._add(found, found.hit, end, freed)
        if output_len == 1:
            return
        if branches:
            freed = self._freed(protected, prompt - 1, freed)
        if self.window:
            at = max(prompt + 1, freed + self.window + DECODED)
            while at < total:
                freed = self._freed(protected, at, freed)
                at = max(at + 1, freed + self.window + DECODED)
        self._add(found, protected, total, freed)

    def _freed(self, protected: int, reader: int, freed: int) -> int:
        if not self.window or reader - self.window < freed + 1:
            return freed
        tail = max(self.page, -(-self.window // self.page) * self.page)
        return max(freed, protected, max(0, reader - tail) // self.page * self.page)

    def _add(self, found: Found, protected: int, end: int, freed: int) -> int:
        """Hold the prompt up to `end`, live from where it was freed; return where that ends."""
        if self.quantum != self.page:
            end = end // self.quantum * self.quantum
        whole = end // self.page
        if not whole:
            return protected
        names = names_of(found.ids, self.page, self.ahead)[:whole]
        self.held.update(names)
        self.live.update(names[max(protected, freed) // self.page :])
        return whole * self.page


@dataclass
class VllmHybrid:
    """Full attention beside groups that keep tails only; `peek`: a block more that speculation matches."""

    page: int
    quantum: int
    tail: int
    peek: int = 0
    drop: int = 0
    held: set[int] = field(default_factory=set)
    live: set[int] = field(default_factory=set)

    def match(self, ids: Any) -> Found:
        names = names_of(ids, self.page)
        most = len(ids) if self.peek else len(ids) - 1
        held = _run(names[: most // self.page], self.held) * self.page
        end = min(held, self._full(held, len(ids)) + self.peek)
        for hit in range((end - self.peek) // self.quantum * self.quantum, 0, -self.quantum):
            first = max(0, hit - self.tail)
            if self._alive(names, first, hit + self.peek):
                starts = first == 0 and hit < self.tail and self.peek and self.page != self.quantum
                return Found(hit - self.quantum if starts else hit, held, ids)
            if self.peek and self._alive(names, 0, hit + self.peek):
                return Found(hit - (self.quantum if self.page != self.quantum else 0), held, ids)
        return Found(0, held, ids)

    def insert(self, found: Found, output_len: int) -> None:
        prompt, total = len(found.ids), len(found.ids) + output_len - 1
        end = total // self.quantum * self.quantum
        if self.peek and end:
            end = min(total, end + self.peek) // self.page * self.page
        names = names_of(found.ids, self.page)
        self.held.update(names[: end // self.page])
        points = {(prompt - 1) // self.quantum * self.quantum}
        if self.peek:
            points = {max(0, n // self.quantum * self.quantum - self.quantum) for n in (prompt - 1, prompt)}
        if (full := self._full(found.held, prompt)) > found.hit:
            points.add(full)
        for point in points:
            first, last = max(found.hit, point - self.tail), min(point + self.peek, end)
            self.live.update(names[first // self.page : last // self.page])

    def _full(self, held: int, prompt: int) -> int:
        most = held if self.drop else min(held, prompt - 1)
        return max(0, most // self.quantum * self.quantum - self.drop)

    def _alive(self, names: Sequence[int], first: int, last: int) -> bool:
        return self.live.issuperset(names[first // self.page : last // self.page])


def _run(names: Sequence[int], held: set[int]) -> int:
    """Return how many names from the first on are held without a gap."""
    return next((n for n, name in enumerate(names) if name not in held), len(names))


def naive(rule: Any) -> Dense | SglangWindow | VllmHybrid:
    """Return an empty cache of a rule's numbers, which are read and never asked to compute."""
    page, quantum = rule.page_size, rule.hit_quantum
    hybrid = bool(rule.sliding_window) or quantum != page
    if rule.engine == "sglang":
        ahead = int(rule.speculative)
        return SglangWindow(page, quantum, rule.sliding_window, ahead) if hybrid else Dense(page, ahead)
    if not hybrid:
        return Dense(page, drop=quantum if rule.speculative else 0)
    block = rule.window_page or page
    peek = block if rule.speculative else 0
    tail = -(-max(1, rule.sliding_window - 1) // block) * block
    return VllmHybrid(block, quantum, tail, peek, quantum if rule.speculative and not rule.window_page else 0)
