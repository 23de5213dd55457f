"""Whole multiples: the arithmetic of pages and hit quanta. All quantities are tokens."""

from __future__ import annotations

from fractions import Fraction

MOST_TOKENS = 2**24  # in one prompt: no model of 2026 reads more, and a plan of such prompts fits in memory


def floor_to(tokens: int, quantum: int) -> int:
    """Return the largest multiple of `quantum` that is at most `tokens` (both at least 0)."""
    return tokens // quantum * quantum


def ceil_to(tokens: int, quantum: int) -> int:
    """Return the least multiple of `quantum` that is at least `tokens`."""
    return -(-tokens // quantum) * quantum


def least_tokens(ratio: Fraction, prompt_len: int) -> int:
    """Return the least count of tokens that is at least `ratio` of `prompt_len`, in exact arithmetic."""
    return -(-ratio.numerator * prompt_len // ratio.denominator)


def percent(part: int, whole: int, bound: Fraction | float | None = None) -> str:
    """Return part/whole as a percentage with four decimals, which never reaches a bound that it misses.

    117888 of 131076 reads 89.9387 %. 899999999 of 1000000000 reads 89.9999 %, not 90.0000 %, since a bound
    is most often a round figure such as 90 %. bound: the ratio that part/whole must reach, if there is one.
    """
    exact, nearest = part * 1_000_000 // whole, (2 * part * 1_000_000 + whole) // (2 * whole)
    round_figure = nearest > exact and nearest % 10 == 0
    asked = None if bound is None else Fraction(str(bound))
    reaches = asked is not None and part < asked * whole and nearest >= asked * 1_000_000
    shown = exact if round_figure or reaches else nearest
    return f"{shown // 10_000}.{shown % 10_000:04d} %"


def percent_of(ratio: float, bound: Fraction | float | None = None) -> str:
    """Return a ratio as `percent` does; 0.29 is 29 hundredths here, not the nearest binary fraction."""
    exact = Fraction(str(ratio))
    return percent(exact.numerator, exact.denominator, bound)
