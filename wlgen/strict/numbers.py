"""Numbers as people write them in YAML: what YAML 1.1 makes of each, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

MOST_DIGITS = 20  # of a 64-bit number
_BASES = {"0x": (16, "hexadecimal"), "0b": (2, "binary"), "0": (8, "octal")}


def odd_number(text: str) -> tuple[str, str]:
    """Return what YAML reads in an unquoted number that is not plain decimal or too large, and a remedy."""
    digits = text.lstrip("+-").lower()
    if ":" in digits:
        return "a number to base 60", "Quote it if it is text, or write plain digits."
    prefix = next((prefix for prefix in _BASES if digits.startswith(prefix)), "")
    bare = digits.removeprefix(prefix).replace("_", "")
    if "." not in digits and prefix and 0 < len(bare) <= MOST_DIGITS:
        base, name = _BASES[prefix]
        value = int(bare, base)
        meant = int(bare) if prefix == "0" else value  # 012 was meant as 12, but 0x10 as 16
        return f"the {name} number {value}", f"Write {meant}, or quote it if it is text."
    if "_" in digits and len(digits) <= MOST_DIGITS:
        plain = text.replace("_", "")
        return f"the number {plain}, without its underscores", f"Write {plain}, or quote it if it is text."
    return "a number out of range", "Write a finite number of at most 64 bits, or quote it if it is text."


def number_remedy(text: str, *, quoted: bool) -> str:
    """Return what to write in place of a text where a number was expected, or ''."""
    if quoted and re.fullmatch(r"[-+]?\d+(\.\d+)?", text):
        return "Remove the quotes."
    matches = ((re.fullmatch(pattern, text.strip()), write) for pattern, write in _MEANT)
    return next((write(match) for match, write in matches if match), "")


def _thousands(match: re.Match[str]) -> str:
    count, power = int(match[1]), 1 if match[2] in "kK" else 2
    return f"Write {count * 1024**power} if 1K is 1024, or {count * 1000**power} if it is 1000."


_MEANT: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (
        r"\d{1,20}(\.\d{1,20})?[eE][-+]?\d{1,2}",  # 1.1 wants a point and a sign: 1.0e+6
        lambda match: f"YAML reads it as text: write {Decimal(match[0]):f}.",
    ),
    (r"0+(\d{1,20})", lambda match: f"YAML reads it as text: write {match[1]}."),  # 08, no octal number
    (r"0o([0-7]{1,20})", lambda match: f"YAML reads it as text: write {int(match[1], 8)}."),
    (r"\d{1,3}([,' ]\d{3}){1,6}", lambda match: f"Write {re.sub('[^0-9]', '', match[0])}."),
    (r"(\d{1,12}) ?([kKmM])(i|iB|B)?", _thousands),
    (r"(\d{1,3}(\.\d{1,20})?) ?%", lambda match: f"Write {(Decimal(match[1]) / 100).normalize():f}."),
    (r"(\d{1,20}) ?tok(en)?s?", lambda match: f"Write {match[1]}: lengths are tokens."),
)
