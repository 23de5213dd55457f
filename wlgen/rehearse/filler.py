"""The text of answers: one sentence that says what it is, over and over, cut to exactly n tokens."""

from __future__ import annotations

import numpy as np

from wlgen.encodings import Encoding
from wlgen.rehearse.settings import Ids

SENTENCE = " This text stands for an answer: wlgen rehearse runs no model."


class Filler:
    """The sentence's tokens and the text of each, repeated without end."""

    def __init__(self, encoding: Encoding) -> None:
        encoded = encoding.tokenizer.encode(SENTENCE, add_special_tokens=False)
        self._ids = np.array(encoded.ids, dtype=np.uint32)
        # Each token's text starts where the text before it ends, however the tokenizer marks spaces.
        ends = [end for _, end in encoded.offsets]
        ends[-1] = len(SENTENCE)
        starts = [0, *ends[:-1]]
        self._pieces = [SENTENCE[start:end] for start, end in zip(starts, ends, strict=True)]

    def ids(self, tokens: int) -> Ids:
        """Return the ids of the first `tokens` tokens."""
        return np.resize(self._ids, tokens)

    def text(self, start: int, stop: int) -> str:
        """Return the text of tokens start to stop."""
        size = len(self._pieces)
        return "".join(self._pieces[n % size] for n in range(start, stop))
