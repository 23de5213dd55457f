"""Rows of a set: one request each, one JSONL line each.

output/<name>/<split>/rank-<00>.jsonl              one row a line, UTF-8
output/<name>/<split>/round-<1>/rank-<00>.jsonl    the rows of a later round
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import orjson

from wlgen.encodings import Message
from wlgen.errors import error, regular
from wlgen.workload.splits import BY_NAME, SPLITS, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalKeys:
    """The keys that a row may lack, for each form of a row: planned, on the disk, exported, audited.

    A line leaves out a key that is None. request_class: for a spec with several classes. session, turn: for a
    conversation. timestamp_ms: the time since the round began. cached_len_recorded: the cached tokens if the
    model answered each earlier turn with the recorded text.
    """

    request_class: str | None = None
    session: str | None = None
    turn: int | None = None
    timestamp_ms: int | None = None
    cached_len_recorded: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(OptionalKeys):
    """One request. Its fields, in this order, and then the optional ones, are the keys of a JSONL line.

    All lengths are in tokens.

    id: unique in the workload, "formal-r03-000007". group: the name that all rows of one prefix have.
    body_len: tokens of the messages' text. prompt_len: tokens of the prompt, framing included. shared_len:
    tokens of the longest prefix that the row shares with its group, framing head included. cached_len: the
    tokens that the rule says the server will report as cached.
    prompt_sha256: the hash of the prompt ids as little-endian uint32.
    """

    id: str
    split: Split
    dp_rank: int
    group: str
    round: int
    messages: tuple[Message, ...]
    body_len: int
    prompt_len: int
    shared_len: int
    cached_len: int
    output_len: int
    prompt_sha256: str

    @property
    def text_sha256(self) -> str:
        """The sha256 of the last message's text, by which a client's record finds its row."""
        return hashlib.sha256(self.messages[-1].content.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken promise: the row's id (or a place, if no row broke it), what was expected and found."""

    id: str
    promise: str
    expected: int | str
    got: int | str


def row_file(split: str, rank: int, round_: int = 0) -> str:
    """Return the path of a rank's file inside the set's folder."""
    return f"{split}/" + (f"round-{round_}/" if round_ else "") + f"rank-{rank:02d}.jsonl"


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of one file; WlgenError names the first line that is not a row."""
    try:
        with regular(path).open("rb") as lines:
            for number, line in enumerate(lines, 1):
                yield parse_row(line, place=f"{path}:{number}")
    except OSError as failure:
        raise error(str(path), expected="a readable file of the set", found=str(failure)) from failure


def parse_row(line: bytes, *, place: str) -> Row:
    """Return the row of one JSONL line; the keys must be exactly those of Row, in order."""
    remedy = "Rebuild the set with `wlgen build`."
    try:
        values = orjson.loads(line)
    except orjson.JSONDecodeError as failure:
        raise error(place, expected="a whole JSON row", found=str(failure), remedy=remedy) from failure
    keys = list(values) if isinstance(values, dict) else [type(values).__name__]
    if keys != [name for name in ROW_TYPES if name not in OPTIONAL_KEYS or name in keys]:
        expected = f"the keys {', '.join(name for name in ROW_TYPES if name not in OPTIONAL_KEYS)}"
        raise error(place, expected=expected, found=", ".join(keys), remedy=remedy)
    for key, kind in ROW_TYPES.items():
        if key in values and type(values[key]) is not kind:
            raise error(f"{place} {key}", expected=kind.__name__, found=repr(values[key])[:80], remedy=remedy)
    try:
        messages = tuple(Message(**m) for m in values.pop("messages"))
    except TypeError as failure:
        raise error(f"{place} messages", expected="[{role, content}, ...]", found=str(failure)) from failure
    split = BY_NAME.get(name := values.pop("split"))
    if split is None:
        raise error(f"{place} split", expected=" or ".join(SPLITS), found=repr(name)[:80], remedy=remedy)
    if unfit := next((key for key in _NAMES if not (values.get(key) or "").isprintable()), None):
        found = ascii(values[unfit])[:80]
        raise error(f"{place} {unfit}", expected="printable characters", found=found, remedy=remedy)
    if not all(type(part) is str for message in messages for part in message):
        raise error(f"{place} messages", expected="a role and a content of text", found="another type")
    return Row(split=split, messages=messages, **values)


def json_types(kind: type[Any]) -> dict[str, type]:
    """Return the JSON type of each field of a dataclass."""
    plain: dict[str, type] = {
        "str": str,
        "int": int,
        "float": float,
        "bool": bool,
        "Split": str,
    }
    lists = ("tuple", "Sequence")
    return {
        field.name: plain.get(
            str(field.type).removesuffix(" | None"), list if str(field.type).startswith(lists) else dict
        )
        for field in fields(kind)
    }


_NAMES = ("id", "group", "request_class", "session")  # which reports repeat
OPTIONAL_KEYS = tuple(field.name for field in fields(OptionalKeys))
# The JSON type of each key of a line, in the line's order: the optional keys stand last.
ROW_TYPES = dict(sorted(json_types(Row).items(), key=lambda item: item[0] in OPTIONAL_KEYS))
KEYS = tuple(ROW_TYPES)
