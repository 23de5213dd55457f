"""Safe text: what a body must not hold, because a client, a template or a tokenizer would change it."""

from __future__ import annotations

import re
import string
import unicodedata
from functools import cached_property

from wlgen.encodings import Encoding

# Braces are rewritten by clients' templating; controls and U+FFFD do not survive JSON or re-encoding; at
# U+2028 and U+2029 some readers of JSONL break a line.
_UNSAFE = re.compile("[{}\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufffd\ud800-\udfff]")
_PLAIN = (string.ascii_letters + string.digits + " .,:;'!?-()\n").encode()


class Hygiene:
    """The rules for one encoding: its special tokens are read from the tokenizer."""

    def __init__(self, encoding: Encoding) -> None:
        added = encoding.tokenizer.get_added_tokens_decoder().values()
        self._special = [token.content for token in added if token.content.strip()]
        plain = set(_PLAIN.decode())
        self._plain_special = [token for token in self._special if set(token) <= plain]

    @cached_property
    def _any_special(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self._special)) or r"(?!)")

    def fault(self, text: str) -> str | None:
        """Return what is wrong with a body's text, or None. Plain ASCII text is judged by one scan."""
        if not text:
            return "an empty text"
        if text[0].isspace() or text[-1].isspace():
            return "white space at the start or the end, which templates trim"
        if text.isascii() and not text.encode().translate(None, _PLAIN):
            found = next((t for t in self._plain_special if t in text), None)
            return f"the special token {found!r}" if found else None
        return self._fault_of_any(text)

    def _fault_of_any(self, text: str) -> str | None:
        unsafe = _UNSAFE.search(text)
        if unsafe:
            return f"the character {unsafe[0]!r} at {unsafe.start()}"
        special = self._any_special.search(text)
        if special:
            return f"the special token {special[0]!r} at {special.start()}"
        if not unicodedata.is_normalized("NFC", text):
            return "text that is not NFC"
        return None
