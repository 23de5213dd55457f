"""Numbers that people write in ways YAML does not read as numbers: what each may mean, and what to write."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal


def number_remedy(text: str, *, quoted: bool) -> str:
    """Return a remedy for text where a number was expected, or ''. For 16K it offers 16384 and 16000."""
    if quoted and re.fullmatch(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?", text):
        return "Remove the quotes."
    matches = ((re.fullmatch(pattern, text.strip()), write) for pattern, write in _MEANT)
    return next((write(match) for match, write in matches if match), "")


def _thousands(match: re.Match[str]) -> str:
    count, power = int(match[1]), 1 if match[2] in "kK" else 2
    return f"Write {count * 1024**power} if 1K is 1024, or {count * 1000**power} if it is 1000."


_MEANT: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (r"0+([1-9]\d{0,19})", lambda match: f"Write {match[1]}."),  # 012 is octal to some and decimal to others
    (r"0x([0-9a-fA-F]{1,16})", lambda match: f"Write {int(match[1], 16)}."),
    (r"0o([0-7]{1,20})", lambda match: f"Write {int(match[1], 8)}."),
    (r"0b([01]{1,64})", lambda match: f"Write {int(match[1], 2)}."),
    (r"\d{1,20}(_\d{1,20}){1,6}(\.\d{1,20})?", lambda match: f"Write {match[0].replace('_', '')}."),
    (r"\d{1,3}([,' ]\d{3}){1,6}", lambda match: f"Write {re.sub('[^0-9]', '', match[0])}."),
    (r"(\d{1,12}) ?([kKmM])(i|iB|B)?", _thousands),
    (r"(\d{1,3}(\.\d{1,20})?) ?%", lambda match: f"Write {(Decimal(match[1]) / 100).normalize():f}."),
    (r"(\d{1,20}) ?tok(en)?s?", lambda match: f"Write {match[1]}: lengths are tokens."),
)
