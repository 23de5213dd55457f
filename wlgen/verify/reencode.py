"""Re-encode: the ids that the reference tokenizer gives for rows' texts, each encoded whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from wlgen.encodings import Encoding
from wlgen.workload.rows import Row

BATCH_CHARACTERS = 4_000_000

Ids = NDArray[np.uint32]


def encoded_rows(encoding: Encoding, rows: Iterable[Row]) -> Iterator[tuple[Row, Ids]]:
    """Yield each row with the server's ids of its rendered messages, shape (tokens,), in order.

    The tokenizer takes about 4 million characters at a time, on all cores.
    """
    batch: list[tuple[Row, str]] = []
    characters = 0
    for row in rows:
        batch.append((row, encoding.render(row.messages)))
        characters += len(batch[-1][1])
        if characters > BATCH_CHARACTERS:
            yield from _encoded(encoding, batch)
            batch, characters = [], 0
    yield from _encoded(encoding, batch)


def _encoded(encoding: Encoding, batch: list[tuple[Row, str]]) -> Iterator[tuple[Row, Ids]]:
    texts = [text for _, text in batch]
    found = encoding.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    for (row, _), encoded in zip(batch, found, strict=True):
        yield row, np.array(encoded.ids, dtype=np.uint32)
