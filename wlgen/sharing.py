"""Sharing: what every two rows of a set share, proved from their ids without comparing every two rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import xxhash
from numpy.typing import NDArray

from wlgen.workload import Finding, Row

Ids = NDArray[np.uint32]


class Sharing:
    """Takes rows with their ids and finds the pairs that share other than planned.

    Two rows of a group share exactly shared_len tokens when their first shared_len tokens are the same (one
    hash a group) and the next token differs (one set a group). Groups share no more than the framing head
    when the tokens behind it differ.

    head_len: tokens of the framing head. crowded: rows that the build planned to share one token more, in a
    group with more rows than the vocabulary has first tokens; their first two tokens differ together.
    """

    def __init__(self, head_len: int, crowded: int) -> None:
        self._head_len = head_len
        self._crowded = crowded
        self._prefix: dict[str, tuple[int, str, str]] = {}
        self._behind: defaultdict[str, dict[tuple[int, ...], str]] = defaultdict(dict)
        self._first: dict[int, tuple[str, str]] = {}

    def add(self, row: Row, ids: Ids) -> Iterator[Finding]:
        """Yield what is wrong with a row beside the rows before it."""
        shared_len = min(max(row.shared_len, 0), len(ids))
        prefix = xxhash.xxh3_128_hexdigest(ids[:shared_len].tobytes())
        length, expected, other = self._prefix.setdefault(row.group, (shared_len, prefix, row.id))
        if shared_len != length:
            yield Finding(id=row.id, promise="shared_len", expected=length, got=shared_len)
        elif prefix != expected:
            yield Finding(
                id=row.id,
                promise="shared_len",
                expected=f"the first {length} tokens of {other}",
                got="others",
            )
        else:
            yield from self._check_behind(row, ids[shared_len : shared_len + 2].tolist())
        if len(ids) > self._head_len:
            yield from self._check_first(row, int(ids[self._head_len]))

    def _check_behind(self, row: Row, behind: list[int]) -> Iterator[Finding]:
        seen = self._behind[row.group]
        one = seen.setdefault(tuple(behind[:1]), row.id)
        two = seen.setdefault(tuple(behind), row.id)
        if one == row.id:
            return
        if two == row.id and self._crowded > 0:
            self._crowded -= 1
            return
        got = f"at least {row.shared_len + 1} with {one}"
        yield Finding(id=row.id, promise="shared_len", expected=row.shared_len, got=got)

    def _check_first(self, row: Row, token: int) -> Iterator[Finding]:
        group, other = self._first.setdefault(token, (row.group, row.id))
        if group != row.group:
            yield Finding(
                id=row.id,
                promise="shared_len",
                expected=f"at most {self._head_len} with group {group}",
                got=f"at least {self._head_len + 1} with {other}",
            )
