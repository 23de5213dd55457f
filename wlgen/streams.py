"""The random stream, which is part of the format: the same on every machine and numpy version.

Words are the raw 64-bit outputs of Philox4x64-10 keyed by a blake2b hash of the coordinates. Mapping to
ranges is fixed integer arithmetic here; numpy's Generator is never used, since its streams may change.
"""

from __future__ import annotations

import hashlib
import threading
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Coordinates: TypeAlias = tuple[str | int, ...]
Words: TypeAlias = NDArray[np.uint64]


def words(coordinates: Coordinates, count: int) -> Words:
    """Return the first `count` words of a stream, shape (count,). More words extend, never change, fewer."""
    # Setting the state takes a quarter of the time of a new Philox, which asks the system for entropy first.
    _PHILOX.generator.state = {
        "bit_generator": "Philox",
        "state": {"counter": _ZEROS, "key": _key(coordinates)},
        "buffer": _ZEROS,
        "buffer_pos": 4,
        "has_uint32": 0,
        "uinteger": 0,
    }
    return np.asarray(_PHILOX.generator.random_raw(count), dtype=np.uint64)


class _Philox(threading.local):
    """One generator a thread."""

    def __init__(self) -> None:
        self.generator = np.random.Philox(key=0)


_PHILOX = _Philox()
_ZEROS = np.zeros(4, dtype=np.uint64)


def below(stream: Words, bound: int | NDArray[np.uint64]) -> NDArray[np.int64]:
    """Map each word to [0, bound) by the high half of a 32 x 32 bit product; bound is at most 2**32.

    The bias is at most bound / 2**32, which no text here can show.
    """
    high = stream >> np.uint64(32)
    product = high * np.asarray(bound, dtype=np.uint64)
    return (product >> np.uint64(32)).astype(np.int64)


def permutation(coordinates: Coordinates, count: int) -> NDArray[np.int64]:
    """Return a permutation of range(count): the stable order of the stream's words."""
    return np.argsort(words(coordinates, count), kind="stable")


def _key(coordinates: Coordinates) -> Words:
    # The separator and the type letter keep ("a", 1) and ("a1",) or ("a", "1") apart.
    text = "\x1f".join([f"s{c}" if isinstance(c, str) else f"i{c}" for c in coordinates])
    return np.frombuffer(hashlib.blake2b(text.encode(), digest_size=16).digest(), dtype="<u8")
