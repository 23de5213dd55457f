"""The arithmetic of pages is exact, and a percentage never looks better than it is."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wlgen.pages import ceil_to, floor_to, least_tokens, percent, percent_of

tokens = st.integers(0, 2**40)
quanta = st.integers(1, 2**20)


@given(tokens, quanta)
def test_floor_and_ceil_are_the_multiples_around(count, quantum):
    low, high = floor_to(count, quantum), ceil_to(count, quantum)
    assert low % quantum == high % quantum == 0
    assert low <= count <= high
    assert high - low == (0 if count % quantum == 0 else quantum)


@given(st.fractions(0, 1), st.integers(1, 2**32))
def test_least_tokens_is_the_first_count_that_meets_the_ratio(ratio, prompt_len):
    least = least_tokens(ratio, prompt_len)
    assert least >= ratio * prompt_len
    assert least == 0 or least - 1 < ratio * prompt_len


@pytest.mark.parametrize(
    ("ratio", "prompt_len", "least"),
    [("0.9", 131076, 117969), ("0.9", 1280, 1152), ("0.9", 10, 9), ("0.1", 30, 3), ("1", 7, 7), ("0", 7, 0)],
)
def test_nine_tenths_are_nine_tenths(ratio, prompt_len, least):
    """In doubles 0.1 * 30 is 3.0000000000000004, and its ceiling 4."""
    assert least_tokens(Fraction(ratio), prompt_len) == least


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [
        (118784, 131076, "90.6222 %"),
        (117888, 131076, "89.9387 %"),
        (118016, 131076, "90.0363 %"),
        (1, 3, "33.3333 %"),
        (2, 3, "66.6667 %"),
        (0, 5, "0.0000 %"),
        (5, 5, "100.0000 %"),
        (8_999_999, 10_000_000, "89.9999 %"),  # 89.99999 must not read 90
        (99_999_999, 100_000_000, "99.9999 %"),
    ],
)
def test_percentages_with_four_decimals(part, whole, shown):
    assert percent(part, whole) == shown


@given(st.integers(1, 10**9), st.data())
def test_a_percentage_is_within_its_last_digit_and_never_reaches_a_whole_number_too_early(whole, data):
    part = data.draw(st.integers(0, whole))
    shown = Fraction(percent(part, whole).removesuffix(" %"))
    true = Fraction(100 * part, whole)
    assert abs(shown - true) < Fraction(1, 10_000)
    assert shown // 1 == true // 1


def test_no_printed_ratio_reaches_a_bound_that_the_exact_one_misses():
    assert percent(899_999_999, 10**9) == "89.9999 %"
    assert percent(904_999_999, 10**9) == "90.4999 %"
    assert percent(117_888, 131_076) == "89.9387 %"
    assert percent(117_888, 131_076, Fraction(899_387, 10**6)) == "89.9386 %"
    assert percent(118_784, 131_076, Fraction(9, 10)) == "90.6222 %"
    assert percent_of(0.29) == "29.0000 %"
    assert percent_of(0.89999999, 0.9) == "89.9999 %"
    assert percent_of(0.9, 0.9) == "90.0000 %"


@given(st.integers(1, 10**7), st.integers(0, 10**6).map(lambda n: Fraction(n, 10**6)), st.data())
def test_a_printed_ratio_and_its_bound_stand_as_the_exact_ones_do(whole, bound, drawn):
    part = drawn.draw(st.integers(0, whole))
    shown = Fraction(percent(part, whole, bound).removesuffix(" %")) / 100
    assert (shown >= bound) == (Fraction(part, whole) >= bound)
