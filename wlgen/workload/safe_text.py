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

# Braces are rewritten by clients' templating; controls and U+FFFD do not survive JSON or re-encoding; at
# U+2028 and U+2029 some readers of JSONL break a line.
_UNSAFE = re.compile("[{}\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufffd\ud800-\udfff]")
_PLAIN = (string.ascii_letters + string.digits + " .,:;'!?-()\n").encode()


class Hygiene:
    """The rules for one encoding, whose tokenizer says which strings it takes for added tokens.

    A tokenizer looks for some added tokens in the text itself, and for those that are `normalized` in what
    its normalizer makes of the text: where that lower-cases, "Quiet River" holds the token "quiet river".
    One that is `single_word` is none inside a longer word: "art" in "party".
    """

    def __init__(self, encoding: Encoding) -> None:
        tokenizer = encoding.tokenizer
        added = [t for t in tokenizer.get_added_tokens_decoder().values() if t.content.strip()]
        self._normalizer = tokenizer.normalizer
        self._as_written = [t for t in added if not (t.normalized and self._normalizer)]
        self._normalized = [t for t in added if t.normalized and self._normalizer]
        # A normalizer that keeps ASCII text as it is needs not be run over such a text, nor over its tokens.
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
        """Return what is wrong with a body's text, or None. Plain ASCII text is judged by one scan."""
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
    """Return the pattern of added tokens in a text, given each one's content in such a text."""
    patterns = (
        rf"(?<!\w){re.escape(content)}(?!\w)" if token.single_word else re.escape(content)
        for token, content in tokens
    )
    return re.compile("|".join(patterns) or r"(?!)")
