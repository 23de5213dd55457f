"""The prompt that tells rules apart: when it is sent twice, most rules report different cached tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wlgen.cache.rule import CacheRule

_MULTIPLES = (1, 2, 3, 4, 5, 7)
_LONGEST = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """A prompt to send twice. prompt_len: its tokens. figures: what each rule then reports as cached.

    600 tokens sent twice are 576 for a quantum of 64, 512 for 128 or 256, and 0 for 1024: three figures.
    """

    prompt_len: int
    figures: tuple[int, ...]


def telling(rules: Sequence[CacheRule], longest: int = _LONGEST) -> Telling | None:
    """Return the shortest prompt that tells the most rules apart; None if no prompt tells two apart."""
    best: Telling | None = None
    most = 1
    for prompt_len in sorted(set(_lengths(rules, longest))):
        figures = tuple(rule.cached_len(prompt_len, prompt_len) for rule in rules)
        if len(set(figures)) > most:
            most = len(set(figures))
            best = Telling(prompt_len=prompt_len, figures=figures)
    return best


def _lengths(rules: Sequence[CacheRule], longest: int) -> Iterator[int]:
    """Yield lengths at which some rule's cached tokens change: around the multiples of its quantum."""
    for rule in rules:
        for times in _MULTIPLES:
            for beyond in (0, 1, 2, rule.lookahead, rule.lookahead + 1):
                length = times * rule.hit_quantum + beyond
                if 1 < length <= longest:
                    yield length
