"""Random streams and their coordinates, which are part of the format of a set.

A stream is named by its coordinates, a short tuple such as ("row", "formal", 3, 7, 0). Its words are the raw
64-bit outputs of Philox4x64-10 keyed by a blake2b hash of that tuple, so they are the same on every machine
and with every version of numpy. Fixed integer arithmetic maps words to ranges; numpy's Generator is never
used, since its streams may change.

The functions below are the only place where coordinates are written. Changing any of them changes the bytes
of sets that people have built. Only `text` carries the name of the format: a later format would write other
texts, but would draw the same plan (classes, groups, lengths, order, arrivals) and lexicon (bank, leads).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FORMAT = "wlgen/1"
Coordinates: TypeAlias = tuple[str | int, ...]
Words: TypeAlias = NDArray[np.uint64]


def text(random_seed: int, stream: Coordinates) -> Coordinates:
    """Return the stream that draws a segment's text; `stream` is the segment's own name."""
    return (FORMAT, random_seed, *stream)


def row(split: str, rank: int, index: int, round_: int) -> Coordinates:
    """Return the name of the text that only this row has: row `index` of one rank's file."""
    return ("row", split, rank, index, round_)


def prefix(class_name: str, groups: Iterable[int]) -> Coordinates:
    """Return the name of a prefix: its class ("" in a spec of one class), then its group at each level."""
    return ("prefix", class_name, *groups) if class_name else ("prefix", *groups)


def message(rank: int, session: int, round_: int, number: int) -> Coordinates:
    """Return the name of a session's message: 0 is the user's first, 1 the answer, 2 the user's second."""
    return ("session", rank, session, round_, number)


def answer_to(stream: Coordinates) -> Coordinates:
    """Return the name of the message that follows the message `stream` in its session."""
    *session, number = stream
    return (*session, int(number) + 1)


def block(number: int, round_: int) -> Coordinates:
    """Return the name of a trace's block; round 0 is left out, since older sets have no rounds."""
    return ("block", number, round_) if round_ else ("block", number)


def block_number(stream: Coordinates) -> int:
    """Return the number of the block that `block` named."""
    return int(stream[1])


def classes(random_seed: int) -> Coordinates:
    """Return the stream that draws each row's class."""
    return ("class", random_seed)


def groups(random_seed: int, class_number: int, depth: int) -> Coordinates:
    """Return the stream that draws each row's group at one level of its prefix."""
    return ("group", random_seed, class_number, depth)


def lengths(random_seed: int, class_number: int, key: str) -> Coordinates:
    """Return the stream that draws each row's length; key: body_len or output_len."""
    return (key, random_seed, class_number)


def order(random_seed: int, of: str | int) -> Coordinates:
    """Return the stream that shuffles the rows of rank `of`, or the requests of split `of` in a replay."""
    return ("order", random_seed, of)


def arrivals(random_seed: int) -> Coordinates:
    """Return the stream that draws the times between rows."""
    return ("arrivals", random_seed)


def bank(random_seed: int) -> Coordinates:
    """Return the stream that draws the sentences of a lexicon."""
    return ("bank", random_seed)


def leads(random_seed: int) -> Coordinates:
    """Return the stream that shuffles the words with which a text may begin."""
    return ("leads", random_seed)


def part(stream: Coordinates, name: str | int) -> Coordinates:
    """Return a stream that belongs to another: the passage of a row, the second try at a length."""
    return (*stream, name)


def words(coordinates: Coordinates, count: int) -> Words:
    """Return the first `count` words of a stream, shape (count,). The first 4 of 8 words are the 4 words."""
    # Setting the state of an old Philox takes a quarter of the time of making one, which asks for entropy.
    _PHILOX.generator.state = {
        "bit_generator": "Philox",
        "state": {"counter": _ZEROS, "key": _key(coordinates)},
        "buffer": _ZEROS,
        "buffer_pos": 4,
        "has_uint32": 0,
        "uinteger": 0,
    }
    found: Words = _PHILOX.generator.random_raw(count)
    return found


class _Philox(threading.local):
    """Each thread's own generator: `words` sets its state and reads from it, in two steps."""

    def __init__(self) -> None:
        self.generator = np.random.Philox(key=0)


_PHILOX = _Philox()
_ZEROS = np.zeros(4, dtype=np.uint64)
_HALF = np.uint64(32)  # bits of a word


def below(stream: Words, bound: int | NDArray[np.uint64]) -> NDArray[np.int64]:
    """Map each word to a whole number in [0, bound): its upper 32 bits x bound / 2**32, rounded down.

    bound is at most 2**32. The bias is at most bound / 2**32, which no text here can show.
    """
    found = stream >> _HALF
    found = found * (np.uint64(bound) if isinstance(bound, int) else bound)
    found >>= _HALF
    return found.view(np.int64)


def permutation(coordinates: Coordinates, count: int) -> NDArray[np.int64]:
    """Return a permutation of range(count): the stable order of the stream's words."""
    return np.argsort(words(coordinates, count), kind="stable")


def _key(coordinates: Coordinates) -> Words:
    # The separator and the type letter keep ("a", 1) and ("a1",) or ("a", "1") apart.
    text = "\x1f".join([f"s{c}" if isinstance(c, str) else f"i{c}" for c in coordinates])
    return np.frombuffer(hashlib.blake2b(text.encode(), digest_size=16).digest(), dtype="<u8")
