"""The server's counts under each of the names that engines, clients and gateways give them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any, NamedTuple


class Counts(NamedTuple):
    """Tokens the server reports; None where it does not: unknown, never 0."""

    prompt: int | None = None
    cached: int | None = None
    output: int | None = None


def counts(usage: object) -> Counts:
    """Return the counts of a usage block, of SGLang's meta_info, or of a gateway's spelling of either.

    Anthropic's input_tokens leaves out what was read from and written to the cache, so both are added back;
    beside prompt_tokens the same keys are only another spelling.
    """
    if not isinstance(usage, Mapping):
        return Counts()
    cached = _first(
        _in(usage, "prompt_tokens_details", "cached_tokens"),
        _in(usage, "input_tokens_details", "cached_tokens"),
        count(usage.get("cached_tokens")),
        count(usage.get("prompt_cache_hit_tokens")),
        count(usage.get("cache_read_input_tokens")),
    )
    prompt = count(usage.get("prompt_tokens"))
    if prompt is None and (prompt := count(usage.get("input_tokens"))) is not None:
        for key in ("cache_read_input_tokens", "cache_creation_input_tokens"):
            prompt += count(usage.get(key)) or 0
    output = _first(count(usage.get("completion_tokens")), count(usage.get("output_tokens")))
    return Counts(prompt, cached, output)


def count(value: object) -> int | None:
    """Return a count of tokens, or None for what is not one (absent, null, a string, negative)."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and value >= 0 else None


def seconds(value: object, scale: float = 1.0) -> float | None:
    """Return a time times `scale`, or None for what is not one (absent, null, a string, NaN)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value * scale


def text_sha256(sent: object) -> str | None:
    """Return the hash of the last message's text of what was sent: messages, a body with them, or a prompt.

    A prompt given as token ids has no text, hence None.
    """
    if isinstance(sent, Mapping):
        sent = sent.get("messages") or sent.get("prompt") or sent.get("text")
    if isinstance(sent, list) and sent and isinstance(sent[-1], Mapping):
        sent = sent[-1].get("content", sent[-1].get("prompt"))
        if isinstance(sent, list):  # content parts: [{"type": "text", "text": ...}]
            sent = "".join(str(part.get("text", "")) for part in sent if isinstance(part, Mapping))
    return hashlib.sha256(sent.encode()).hexdigest() if isinstance(sent, str) else None


def _in(usage: Mapping[str, Any], block: str, key: str) -> int | None:
    inner = usage.get(block)
    return count(inner.get(key)) if isinstance(inner, Mapping) else None


def _first(*found: int | None) -> int | None:
    return next((value for value in found if value is not None), None)
