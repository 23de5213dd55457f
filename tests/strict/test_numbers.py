"""A text where a number belongs: what the person meant."""

from __future__ import annotations

import pytest

from wlgen.strict.numbers import number_remedy


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("1_000", "Write 1000."),
        ("1_0.5", "Write 10.5."),
        ("012", "Write 12."),
        ("08", "Write 8."),
        ("0x10", "Write 16."),
        ("0o17", "Write 15."),
        ("0b11", "Write 3."),
        ("16,384", "Write 16384."),
        ("1 048 576", "Write 1048576."),
        ("16K", "Write 16384 if 1K is 1024, or 16000 if it is 1000."),
        ("2 MiB", "Write 2097152 if 1K is 1024, or 2000000 if it is 1000."),
        ("62.5 %", "Write 0.625."),
        ("100%", "Write 1."),
        ("512 tokens", "Write 512: lengths are tokens."),
        ("many", ""),
        ("1,2", ""),
        ("9" * 5000, ""),
    ],
)
def test_a_number_in_another_notation_is_rewritten(text, remedy):
    assert number_remedy(text, quoted=False) == remedy


def test_a_quoted_number_loses_its_quotes():
    assert number_remedy("16384", quoted=True) == "Remove the quotes."
    assert number_remedy("1e6", quoted=True) == "Remove the quotes."
