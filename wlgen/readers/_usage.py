"""The server's counts under each of the names that engines, clients and gateways give them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from wlgen.readers._door import Part


class Counts(NamedTuple):
    """Tokens the server reports; None where it does not: unknown, never 0."""

    prompt: int | None = None
    cached: int | None = None
    output: int | None = None


def counts(usage: Part) -> Counts:
    """Return the counts of a usage block, of SGLang's meta_info, or of a gateway's spelling of either.

    Anthropic's input_tokens leaves out what was read from and written to the cache, so both are added back;
    beside prompt_tokens the same keys are only another spelling.
    """
    cached = _first(
        usage.part("prompt_tokens_details").count("cached_tokens"),
        usage.part("input_tokens_details").count("cached_tokens"),
        usage.count("cached_tokens"),
        usage.count("prompt_cache_hit_tokens"),
        usage.count("cache_read_input_tokens"),
    )
    prompt = usage.count("prompt_tokens")
    if prompt is None and (prompt := usage.count("input_tokens")) is not None:
        for key in ("cache_read_input_tokens", "cache_creation_input_tokens"):
            prompt += usage.count(key) or 0
    return Counts(prompt, cached, _first(usage.count("completion_tokens"), usage.count("output_tokens")))


def text_sha256(sent: object) -> str | None:
    """Return the hash of the last message's text of what was sent: messages, a body with them, or a prompt.

    A prompt given as token ids has no text, hence None.
    """
    if isinstance(sent, Mapping):
        sent = sent.get("messages") or sent.get("prompt") or sent.get("text")
    if isinstance(sent, list) and sent and isinstance(sent[-1], Mapping):
        sent = sent[-1].get("content", sent[-1].get("prompt"))
        if isinstance(sent, list):  # content parts: [{"type": "text", "text": ...}]
            texts = (part.get("text") for part in sent if isinstance(part, Mapping))
            sent = "".join(text for text in texts if isinstance(text, str))
    # Half a surrogate pair, which json.loads lets pass, has no UTF-8; its hash is then that of no row.
    return hashlib.sha256(sent.encode(errors="surrogatepass")).hexdigest() if isinstance(sent, str) else None


def _first(*found: int | None) -> int | None:
    return next((value for value in found if value is not None), None)
