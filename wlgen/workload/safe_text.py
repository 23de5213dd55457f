"""Safe text: what a body must not hold, because a client, a template or a tokenizer would change it."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from wlgen.encodings import Encoding

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from tokenizers.normalizers import Normalizer

# Clients' templates rewrite braces; control characters and U+FFFD do not survive JSON or re-encoding; some
# readers of JSONL end a line at U+2028 and U+2029.
_UNSAFE = re.compile("[{}\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufffd\ud800-\udfff]")
_PLAIN = (string.ascii_letters + string.digits + " .,:;'!?-()\n").encode()


class Hygiene:
    """What a body must not hold under one encoding, whose tokenizer has added tokens such as "<|im_end|>".

    A tokenizer looks for most added tokens in the text itself, and for those marked `normalized` in the
    normalized text: if that is in lower case, "Quiet River" holds the token "quiet river". It does not look
    for a token marked `single_word` inside a longer word: "art" in "party".
    """

    def __init__(self, encoding: Encoding) -> None:
        tokenizer = encoding.tokenizer
        added = [t for t in tokenizer.get_added_tokens_decoder().values() if t.content.strip()]
        self._normalizer = tokenizer.normalizer
        self._as_written = [t for t in added if not (t.normalized and self._normalizer)]
        self._normalized = [t for t in added if t.normalized and self._normalizer]
        # A normalizer that does not change ASCII need not be run over an ASCII text, nor over the tokens.
        self._plain_changes = bool(self._normalized) and not _keeps_ascii(self._normalizer)
        plain = set(_PLAIN.decode())
        self._plain_special = [t for t in added if set(t.content) <= plain]

    @cached_property
    def _any_as_written(self) -> re.Pattern[str]:
        return _any_of((t, t.content) for t in self._as_written)

    @cached_property
    def _any_normalized(self) -> re.Pattern[str]:
        return _any_of((t, self._normal(t.content)) for t in self._normalized)

    @cached_property
    def _any_plain(self) -> re.Pattern[str]:
        return _any_of((t, t.content) for t in self._plain_special)

    def _normal(self, text: str) -> str:
        return str(self._normalizer.normalize_str(text)) if self._normalizer else text

    def fault(self, text: str) -> str | None:
        """Return what is wrong with a body's text, or None. For plain ASCII text one scan decides."""
        if not text:
            return "an empty text"
        if text[0].isspace() or text[-1].isspace():
            return "white space at the start or the end, which templates trim"
        if not self._plain_changes and text.isascii() and not text.encode().translate(None, _PLAIN):
            found = self._plain_special and self._any_plain.search(text)
            return f"the special token {found[0]!r}" if found else None
        return self._fault_of_any(text)

    def _fault_of_any(self, text: str) -> str | None:
        unsafe = _UNSAFE.search(text)
        if unsafe:
            return f"the character {unsafe[0]!r} at {unsafe.start()}"
        special = self._any_as_written.search(text)
        if special:
            return f"the special token {special[0]!r} at {special.start()}"
        special = self._any_normalized.search(self._normal(text)) if self._normalized else None
        if special:
            return f"the special token {special[0]!r}, as the tokenizer normalizes text"
        if not unicodedata.is_normalized("NFC", text):
            return "text that is not NFC"
        return None


def _keeps_ascii(normalizer: Normalizer) -> bool:
    kinds = set(re.findall(rb'"type":"(\w+)"', normalizer.__getstate__()))
    return kinds <= {b"Sequence", b"NFC", b"NFD", b"NFKC", b"NFKD"}


def _any_of(tokens: Iterable[tuple[AddedToken, str]]) -> re.Pattern[str]:
    """Return a pattern that finds these added tokens in a text; each token comes with its content there."""
    patterns = (
        rf"(?<!\w){re.escape(content)}(?!\w)" if token.single_word else re.escape(content)
        for token, content in tokens
    )
    return re.compile("|".join(patterns) or r"(?!)")
