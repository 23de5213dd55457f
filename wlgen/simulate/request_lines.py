"""A JSONL file of requests: plain lines, or the lines of any client that `wlgen export` writes for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from wlgen.cache.ranks import Request
from wlgen.cache.rule import Ids
from wlgen.encodings import Encoding, Message
from wlgen.errors import error
from wlgen.export.folder import MARKER
from wlgen.strict.jsonl import read_lines

TextAs: TypeAlias = Literal["chat", "raw"]
_END = 1 << 31  # token ids lie below it
_REMEDY = "A line is {id, dp_rank, input_ids or messages or prompt}; output_len is 1 where absent."
_INNER = ("body", "payload", "extra")  # where clients keep the request, or part of it
_NAMES = ("id", "wl_id", "custom_id", "request_id", "rid", "session_id")
_RANKS = ("dp_rank", "routed_dp_rank", "data_parallel_rank")
_RANK_HEADER = "x-data-parallel-rank"
_LENGTHS = (
    "output_len",
    "max_tokens",
    "max_completion_tokens",
    "output_tokens",
    "output_length",
    "completion_tokens",
    "output_tokens_count",
)
_TEXTS = ("prompt", "question", "text_input", "text")
_RANK_FILE = re.compile(r"rank-(\d+)\.jsonl")


@dataclass(kw_only=True)
class Reading:
    """How a file was read, for the report: its kinds of prompt, and how its lines found their ranks."""

    prompts: set[str] = field(default_factory=set)
    routing: str = ""

    def lines(self) -> list[str]:
        """Return lines that say how the file was read."""
        return [*sorted(self.prompts), *([self.routing] if self.routing else [])]


def read_requests(
    path: Path,
    dp_ranks: int | None,
    encoding: Callable[[], Encoding],
    *,
    first_rank: int | None,
    text_as: TextAs | None,
    reading: Reading,
) -> Iterator[Request]:
    """Yield the file's requests in order; WlgenError lists the lines that are not requests.

    dp_ranks: how many ranks there are; None: as many as the file names. encoding: returns the encoding, and
    is called only if a row has text. first_rank: send to the ranks in turn from this rank on, whatever the
    lines say. If no line names a rank, lines go to the ranks in turn from rank 0; if only some do, it is an
    error. text_as: how to read a text that is neither ids nor messages: as one user message, or as a raw
    prompt; None: as the file's kind tells.
    """
    exported = (path.parent / MARKER).exists() or (path.parent.parent / MARKER).exists()
    lines = _Lines(dp_ranks, encoding, text_as or ("chat" if exported else None), reading)
    if exported and (of_rank := _RANK_FILE.fullmatch(path.name)):
        lines.file_rank = int(of_rank[1])
    wanted = "a JSON row"
    file_of = "a built set or a JSONL file"
    turn = first_rank or 0
    for request, named in read_lines(path, lines.request, expected=wanted, file_of=file_of, remedy=_REMEDY):
        in_turn = dp_ranks is not None and (first_rank is not None or not named)
        yield request._replace(dp_rank=turn % dp_ranks) if in_turn and dp_ranks else request
        turn += 1
        if not reading.routing:
            reading.routing = _routing(dp_ranks, first_rank, named=named)


def _routing(dp_ranks: int | None, first_rank: int | None, *, named: bool) -> str:
    if first_rank is not None:
        return f"ranks: in turn over {dp_ranks}, from rank {first_rank}, as --unpinned says"
    if named:
        return "ranks: each line names its own"
    if dp_ranks is None or dp_ranks == 1:
        return "ranks: no line names one, so all go to one cache (--dp-ranks sends them in turn)"
    return f"ranks: no line names one, so they go to {dp_ranks} ranks in turn, from rank 0"


class _Lines:
    """Turns lines into requests; WlgenError if a line is not a request."""

    def __init__(
        self, dp_ranks: int | None, encoding: Callable[[], Encoding], text_as: TextAs | None, reading: Reading
    ) -> None:
        self.file_rank: int | None = None
        self._dp_ranks = dp_ranks
        self._load = encoding
        self._text_as = text_as
        self._reading = reading
        self._named: bool | None = None  # whether the first line named a rank

    def request(self, line: object, place: str) -> tuple[Request, bool]:
        """Return a line's request, and whether it names its rank."""
        if not isinstance(line, dict):
            raise error(place, expected="a JSON object", found=type(line).__name__, remedy=_REMEDY)
        row = dict(line)
        for key in _INNER:
            row |= line[key] if isinstance(line.get(key), dict) else {}
        rank, output_len = self._rank(row, place), _first(row, _LENGTHS)
        output_len = 1 if output_len is None else output_len
        if type(output_len) is not int or output_len < 1:
            raise error(f"{place} output_len", expected="at least 1 token", found=repr(output_len))
        ids = self._ids(row, place)
        salt = str(row.get("cache_salt") or "")
        name = _first(row, _NAMES)
        self._check_routing(rank, place)
        request = Request(place if name is None else str(name), rank or 0, ids, output_len, salt=salt)
        return request, rank is not None

    def _rank(self, row: Mapping[str, Any], place: str) -> int | None:
        rank = _first(row, _RANKS)
        headers = row.get("headers")
        if rank is None and isinstance(headers, dict):
            of_header = [v for key, v in headers.items() if str(key).lower() == _RANK_HEADER]
            rank = int(of_header[0]) if of_header and str(of_header[0]).isdecimal() else None
        rank = self.file_rank if rank is None else rank
        if rank is not None and not self._good(rank):
            ranks = "of at least 0" if self._dp_ranks is None else f"from 0 to {self._dp_ranks - 1}"
            raise error(f"{place} dp_rank", expected=f"a rank {ranks}", found=repr(rank))
        return rank

    def _check_routing(self, rank: int | None, place: str) -> None:
        if self._named is None:
            self._named = rank is not None
        elif self._named != (rank is not None):
            expected = "a dp_rank in each line or in none"
            found = "no rank" if rank is None else f"the rank {rank} after lines without one"
            remedy = "--unpinned 0 with --dp-ranks sends all lines to ranks in turn."
            raise error(place, expected=expected, found=found, remedy=remedy)

    def _good(self, rank: object) -> bool:
        return type(rank) is int and rank >= 0 and (self._dp_ranks is None or rank < self._dp_ranks)

    def _ids(self, row: Mapping[str, Any], place: str) -> Ids:
        for key in ("input_ids", "prompt"):
            if isinstance(row.get(key), list):
                self._reading.prompts.add("prompts: token ids")
                return _token_ids(row[key], f"{place} {key}")
        if isinstance(row.get("messages"), list):
            messages = _messages(row["messages"], f"{place} messages")
            self._reading.prompts.add(f"prompts: messages, rendered by the encoding {self._encoding.name}")
            return _token_ids(self._encoding.prompt_ids(messages), f"{place} messages")
        text = _first(row, _TEXTS)
        if isinstance(text, str):
            return self._text_ids(text, place)
        if isinstance(row.get("hash_ids"), list):
            self._reading.prompts.add("prompts: blocks of hash_ids, equal tokens where the hashes are equal")
            return _block_ids(row, place)
        found = f"the keys {', '.join(row)}" if row else "no key"
        raise error(place, expected="input_ids, messages or prompt", found=found, remedy=_REMEDY)

    def _text_ids(self, text: str, place: str) -> Ids:
        chat = self._text_as == "chat" and self._encoding.chat
        if chat:
            how = f"text, rendered as one user message by the encoding {self._encoding.name}"
            ids = self._encoding.prompt_ids([Message("user", text)])
        else:
            how = "raw text, no chat template (--text chat renders each as one user message)"
            ids = self._encoding.encode(text)
        self._reading.prompts.add(f"prompts: {how}")
        return _token_ids(ids, f"{place} prompt")

    @cached_property
    def _encoding(self) -> Encoding:
        return self._load()


def _first(row: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((row[key] for key in keys if row.get(key) is not None), None)


def _messages(found: list[Any], place: str) -> list[Message]:
    parts = [(m.get("role"), m.get("content")) if isinstance(m, dict) else (None, None) for m in found]
    if not parts or not all(isinstance(part, str) for message in parts for part in message):
        raise error(place, expected="messages with a role and a content of text", found=repr(found)[:60])
    return [Message(str(role), str(content)) for role, content in parts]


def _block_ids(row: Mapping[str, Any], place: str) -> Ids:
    """Return made-up ids of a Mooncake line: in each block one id repeated, the last block cut to length."""
    length, size, hashes = row.get("input_length"), row.get("block_size", 512), row["hash_ids"]
    fit = type(length) is int and type(size) is int and size > 0 and -(-length // size) == len(hashes) > 0
    if not fit or not all(type(h) is int and 0 <= h < _END for h in hashes):
        expected = "input_length, and a hash id from 0 on for each block of block_size (512) tokens"
        found = f"input_length {length!r} and {len(hashes)} hash_ids"
        raise error(f"{place} hash_ids", expected=expected, found=found)
    return np.repeat(np.array(hashes, dtype=np.uint32), size)[:length]


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
