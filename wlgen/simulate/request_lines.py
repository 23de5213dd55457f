"""A JSONL file of requests: {id, dp_rank, input_ids | messages | prompt, output_len, cache_salt} a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from wlgen.cache.ranks import Request
from wlgen.cache.rule import Ids
from wlgen.encodings import Encoding, Message
from wlgen.errors import Problem, WlgenError, error, regular

_END = 1 << 31  # token ids lie below it
_MOST_PROBLEMS = 20
_REMEDY = "A line is {id, dp_rank, input_ids or messages or prompt}; output_len is 1 where absent."


def read_requests(path: Path, dp_ranks: int | None, encoding: Callable[[], Encoding]) -> Iterator[Request]:
    """Yield the file's requests in order; WlgenError lists the lines, at most 20, that are none.

    After a bad line nothing is yielded, but the rest is checked. dp_ranks: how many ranks there are, None for
    as many as the file names. encoding: asked for once a row has text.
    """
    lines = _Lines(dp_ranks, encoding)
    problems: list[Problem] = []
    try:
        with regular(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    request = lines.request(line, f"{path}:{number}")
                except WlgenError as failure:
                    problems.extend(failure.problems)
                    if len(problems) >= _MOST_PROBLEMS:
                        break
                    continue
                if not problems:
                    yield request
    except OSError as failure:
        found = failure.strerror or str(failure)
        raise error(str(path), expected="a built set or a JSONL file", found=found) from failure
    if problems:
        raise WlgenError(*problems)


class _Lines:
    """Turns lines into requests; WlgenError where a line is none."""

    def __init__(self, dp_ranks: int | None, encoding: Callable[[], Encoding]) -> None:
        self._dp_ranks = dp_ranks
        self._load = encoding

    def request(self, line: bytes, place: str) -> Request:
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as failure:
            raise error(place, expected="a JSON row", found=str(failure), remedy=_REMEDY) from failure
        if not isinstance(row, dict):
            raise error(place, expected="a JSON object", found=type(row).__name__, remedy=_REMEDY)
        rank, output_len = row.get("dp_rank", 0), row.get("output_len", 1)
        end = self._dp_ranks or rank
        if type(rank) is not int or rank < 0 or (self._dp_ranks is not None and rank >= self._dp_ranks):
            ranks = "of at least 0" if self._dp_ranks is None else f"from 0 to {end - 1}"
            raise error(f"{place} dp_rank", expected=f"a rank {ranks}", found=repr(rank))
        if type(output_len) is not int or output_len < 1:
            raise error(f"{place} output_len", expected="at least 1 token", found=repr(output_len))
        ids = self._ids(row, place)
        salt = str(row.get("cache_salt") or "")
        return Request(str(row.get("id", place)), rank, ids, output_len, salt=salt)

    def _ids(self, row: dict[str, Any], place: str) -> Ids:
        for key in ("input_ids", "prompt"):
            if isinstance(row.get(key), list):
                return _token_ids(row[key], f"{place} {key}")
        if isinstance(row.get("prompt"), str):
            return _token_ids(self._encoding.encode(row["prompt"]), f"{place} prompt")
        if isinstance(row.get("messages"), list):
            messages = _messages(row["messages"], f"{place} messages")
            return _token_ids(self._encoding.prompt_ids(messages), f"{place} messages")
        found = f"the keys {', '.join(row)}" if row else "no key"
        raise error(place, expected="input_ids, messages or prompt", found=found, remedy=_REMEDY)

    @cached_property
    def _encoding(self) -> Encoding:
        return self._load()


def _messages(found: list[Any], place: str) -> list[Message]:
    parts = [(m.get("role"), m.get("content")) if isinstance(m, dict) else (None, None) for m in found]
    if not parts or not all(isinstance(part, str) for message in parts for part in message):
        raise error(place, expected="messages with a role and a content of text", found=repr(found)[:60])
    return [Message(str(role), str(content)) for role, content in parts]


def _token_ids(ids: list[Any], place: str) -> Ids:
    expected = f"token ids from 0 to {_END - 1}, at least one"
    try:
        found = np.array(ids)
    except ValueError as failure:  # lists of several lengths
        raise error(place, expected=expected, found="lists of lists") from failure
    if found.ndim != 1 or not len(found) or found.dtype.kind != "i":
        raise error(place, expected=expected, found=repr(ids)[:60])
    if found.min() < 0 or found.max() >= _END:
        raise error(place, expected=expected, found=str(found.min() if found.min() < 0 else found.max()))
    return found.astype(np.uint32)
