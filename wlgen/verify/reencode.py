"""Re-encode: the ids of texts by the reference tokenizer, a long common beginning once.

    text of a group's first row   |<-- same characters -->|<- MARGIN ->|...
    text of another row           |<-- same characters -->|<- MARGIN ->|...
                                  ids taken over         ^ cut: the rest is encoded

The cut is at a space where the tokenizer, run on the first row's two parts, gives the ids of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wlgen.encodings import Encoding
from wlgen.workload.rows import Row

MARGIN = 256  # characters that must be the same behind a cut
LEAST = 2048  # characters of a common beginning that are worth a cut
BATCH_CHARACTERS = 4_000_000

Ids = NDArray[np.uint32]


@dataclass(slots=True)
class _Start:
    """The beginning that a group's rows share: the text up to the cut and MARGIN behind, and its ids."""

    text: str
    cut: int = 0
    beginning: str = ""
    ids: Ids | None = None
    tried: bool = False


class _Asked(NamedTuple):
    row: Row
    before: Ids | None
    text: str


class Reencoder:
    """Gives rows with their ids, in order. whole: encode every text whole, whatever it shares."""

    def __init__(self, encoding: Encoding, *, whole: bool) -> None:
        self._encoding = encoding
        # Unless words are split before they are merged, merges may reach from the rest into the beginning.
        self._whole = whole or not _splits_words(encoding)
        self._starts: dict[str, _Start] = {}

    def ids(self, rows: Iterable[Row]) -> Iterator[tuple[Row, Ids]]:
        """Yield each row with the server's ids of its rendered messages, shape (tokens,)."""
        batch: list[_Asked] = []
        characters = 0
        for row in rows:
            batch.append(self._ask(row))
            characters += len(batch[-1].text)
            if characters > BATCH_CHARACTERS:
                yield from self._encoded(batch)
                batch, characters = [], 0
        yield from self._encoded(batch)

    def _encoded(self, batch: list[_Asked]) -> Iterator[tuple[Row, Ids]]:
        found = self._encoding.tokenizer.encode_batch_fast([a.text for a in batch], add_special_tokens=False)
        for asked, encoded in zip(batch, found, strict=True):
            ids = np.array(encoded.ids, dtype=np.uint32)
            yield asked.row, ids if asked.before is None else np.concatenate([asked.before, ids])

    def _ask(self, row: Row) -> _Asked:
        text = self._encoding.render(row.messages)
        if self._whole:
            return _Asked(row, None, text)
        start = self._starts.setdefault(row.group, _Start(text))
        if start.text is not text and not start.tried:
            self._learn(start, text)
        if start.ids is not None and text.startswith(start.beginning):
            return _Asked(row, start.ids, text[start.cut :])
        return _Asked(row, None, text)

    def _learn(self, start: _Start, text: str) -> None:
        """Find the cut from a group's first two rows, and prove it on the first."""
        start.tried = True
        common = _common(start.text, text)
        cut = start.text.rfind(" ", 0, max(0, common - MARGIN))
        if common >= LEAST and cut > 0:
            whole, before, rest = (
                self._encoding.encode(part) for part in (start.text, start.text[:cut], start.text[cut:])
            )
            if before + rest == whole:
                start.cut, start.beginning = cut, start.text[: cut + MARGIN]
                start.ids = np.array(before, dtype=np.uint32)
        start.text = ""


def _splits_words(encoding: Encoding) -> bool:
    """Return whether the pre-tokenizer splits at spaces. SentencePiece's do not: Metaspace(split=False)."""
    tokenizer, text = encoding.tokenizer, "The river and the lake and the sea"
    if tokenizer.pre_tokenizer is None:
        return False
    normal = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
    return len(tokenizer.pre_tokenizer.pre_tokenize_str(normal)) >= len(text.split())


def _common(one: str, other: str) -> int:
    """Return the length of the longest common beginning, by halving: comparing slices is a memcmp."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low
