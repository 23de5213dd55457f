"""Made-up ids: what a replay takes for tokens whose text does not matter, or does not exist yet.

Each stream of tokens begins with an id of its own, and all its other tokens have the same id. So two prompts
share ids exactly as far as they share streams: 1664 tokens of a prefix with 388 of row 1 behind them, and the
same with 388 of row 2, share 1664 ids.
"""

from __future__ import annotations

import numpy as np

from wlgen.cache.rule import Ids

_ABOVE = 1 << 21  # above every id of a vocabulary
INNER = _ABOVE - 2  # every token of a stream but its first
OUTPUT = _ABOVE - 3  # every token of an answer that no prompt repeats, but its first and its last
END = _ABOVE - 1  # the last token of an answer: the model samples it and never computes it
NO_TEXT: Ids = np.array([END], dtype=np.uint32)  # an answer of one token


class MadeUp:
    """The first id of each stream, given in the order in which streams are asked for."""

    def __init__(self) -> None:
        self._firsts: dict[object, int] = {}

    def first(self, stream: object) -> int:
        """Return the id with which a stream begins; no other stream has it."""
        return _ABOVE + self._firsts.setdefault(stream, len(self._firsts))

    def run(self, stream: object, tokens: int) -> Ids:
        """Return the first ids of a stream: shape (tokens,)."""
        ids = np.full(tokens, INNER, dtype=np.uint32)
        ids[:1] = self.first(stream)
        return ids
