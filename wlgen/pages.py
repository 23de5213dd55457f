"""Whole multiples: the arithmetic of pages and hit quanta. All quantities are tokens."""

from __future__ import annotations

from fractions import Fraction

MOST_TOKENS = 2**24  # of a prompt: no model of 2026 reads more, and a plan of it fits in memory


def floor_to(tokens: int, quantum: int) -> int:
    """Return the largest multiple of `quantum` that is at most `tokens` (both at least 0)."""
    return tokens // quantum * quantum


def ceil_to(tokens: int, quantum: int) -> int:
    """Return the least multiple of `quantum` that is at least `tokens`."""
    return -(-tokens // quantum) * quantum


def least_tokens(ratio: Fraction, prompt_len: int) -> int:
    """Return the least count of tokens that is at least `ratio` of `prompt_len`, in exact arithmetic."""
    return -(-ratio.numerator * prompt_len // ratio.denominator)


def percent(part: int, whole: int) -> str:
    """Return part/whole as a percentage with four decimals. 89.99999 reads 89.9999: it must not read 90."""
    parts, exact = part * 1_000_000, part * 1_000_000 // whole
    nearest = (2 * parts + whole) // (2 * whole)
    shown = exact if nearest // 10_000 > exact // 10_000 else nearest
    return f"{shown // 10_000}.{shown % 10_000:04d} %"
