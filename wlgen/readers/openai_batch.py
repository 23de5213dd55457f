"""OpenAI batch output: plain lines whose custom_id is the row's id, each with a whole response."""

from __future__ import annotations

import re

from wlgen.readers.plain import read

BLIND = ""

__all__ = ["claims", "read"]

_OPENING = re.compile(rb'\s*\{\s*"(id|custom_id)"\s*:\s*"[^"]*"\s*,\s*"(custom_id|response)"')


def claims(opening: bytes) -> bool:
    """Return whether the file opens as a batch's line."""
    return _OPENING.match(opening) is not None and b'"custom_id"' in opening
