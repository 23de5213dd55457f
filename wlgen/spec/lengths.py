"""Lengths: one int, or one distribution. All quantities are tokens."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Annotated, Any, Self, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import Discriminator, Field, Tag, model_validator

from wlgen.errors import error
from wlgen.spec.popularity import Weight, chosen
from wlgen.streams import Coordinates, below, part, words
from wlgen.strict.model import Strict, refusal

Tokens = Annotated[int, Field(ge=1, le=2**31)]
Lengths = NDArray[np.int64]
UNIFORMS = 12  # whose sum less 6 has mean 0 and variance 1
TRIES = 64  # draws of a truncated normal before its mean is taken
MOST_DIGITS = 16  # of a number in a column: int() of thousands of them raises


class Normal(Strict):
    """A normal distribution, truncated: draws outside min to max are drawn again."""

    mean: Tokens
    stddev: Tokens
    min: Tokens
    max: Tokens

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.min <= self.mean <= self.max:
            found = f"min {self.min}, mean {self.mean}, max {self.max}"
            raise refusal(expected="min <= mean <= max", found=found, key="mean")
        return self


class Bin(Strict):
    """Lengths from `low` to `high`, both included, with a count as weight."""

    low: Tokens
    high: Tokens
    count: Weight

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high < self.low:
            raise refusal(expected=f"high of at least low {self.low}", found=str(self.high), key="high")
        return self


class Column(Strict):
    """A column of a CSV or JSONL file, a number a row, taken in order and again from the start.

    sha256: of the file, which a manifest keeps.
    """

    path: Annotated[str, Field(min_length=1)]
    column: str
    sha256: str | None = None


class Distribution(Strict):
    """One distribution of lengths; `weights` goes with `choice`."""

    uniform: Annotated[list[Tokens], Field(min_length=2, max_length=2)] | None = None
    normal: Normal | None = None
    choice: Annotated[list[Tokens], Field(min_length=1)] | None = None
    weights: list[Weight] | None = None
    histogram: Annotated[list[Bin], Field(min_length=1)] | None = None
    values: Annotated[list[Tokens], Field(min_length=1)] | None = None
    column: Column | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [k for k in Distribution.model_fields if k != "weights"]
        given = [k for k in kinds if getattr(self, k) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise refusal(expected=f"one of {', '.join(kinds)}", found=found, remedy="A length is one thing.")
        if self.uniform and self.uniform[0] > self.uniform[1]:
            remedy = f"Write [{self.uniform[1]}, {self.uniform[0]}]."
            raise refusal(expected="[least, most]", found=str(self.uniform), remedy=remedy, key="uniform")
        if self.weights is not None:
            self._check_weights(self.weights)
        if self.histogram is not None and not sum(b.count for b in self.histogram):
            raise refusal(expected="bins of which one has a count above 0", found="none", key="histogram")
        return self

    def _check_weights(self, weights: list[float]) -> None:
        if self.choice is None or len(weights) != len(self.choice):
            count = (
                f"{len(self.choice)} weights, one a choice" if self.choice else "no weights without choice"
            )
            raise refusal(expected=count, found=str(len(weights)), key="weights")
        if not sum(weights):
            raise refusal(expected="weights of which one is above 0", found=str(weights), key="weights")


def _kind(value: object) -> str:
    # Told apart before either is checked, so that a wrong value is told against what it was meant to be.
    return "distribution" if isinstance(value, dict | Distribution) else "tokens"


Length: TypeAlias = Annotated[
    Annotated[Tokens, Tag("tokens")] | Annotated[Distribution, Tag("distribution")], Discriminator(_kind)
]


def draw(length: int | Distribution, stream: Coordinates, count: int) -> Lengths:
    """Return `count` lengths, shape (count,): those of fewer are the start of those of more.

    A column has been read before: its values stand beside it.
    """
    if isinstance(length, int):
        return np.full(count, length, dtype=np.int64)
    if length.normal:
        return _normal(length.normal, stream, count)
    if length.choice:
        weights = length.weights or [1] * len(length.choice)
        return np.array(length.choice, dtype=np.int64)[chosen(weights, words(stream, count))]
    if length.values:
        return np.resize(np.array(length.values, dtype=np.int64), count)
    low, high = length.uniform or (0, 0)
    bins = length.histogram or [Bin(low=low, high=high, count=1)]
    which = chosen([b.count for b in bins], words(part(stream, "bin"), count))
    lows = np.array([b.low for b in bins], dtype=np.int64)[which]
    widths = np.array([b.high - b.low + 1 for b in bins], dtype=np.uint64)[which]
    return lows + below(words(stream, count), widths)


def longest(length: int | Distribution) -> int:
    """Return the longest length that can be drawn."""
    if isinstance(length, int):
        return length
    if length.normal:
        return length.normal.max
    ends = [*(length.uniform or ()), *(length.choice or ()), *(length.values or ())]
    ends += [b.high for b in length.histogram or ()]
    return int(max(ends))


def describe(lengths: Lengths) -> dict[str, Any]:
    """Return min, p50, p90, max and eight bins [low, high, count] of lengths, as JSON values."""
    ordered = np.sort(lengths)
    last = len(ordered) - 1
    low, high = int(ordered[0]), int(ordered[-1])
    edges = [low + (high + 1 - low) * i // 8 for i in range(9)]
    counts = np.diff(np.searchsorted(ordered, edges)).tolist()
    bins = [[a, b - 1, n] for a, b, n in zip(edges, edges[1:], counts, strict=False) if b > a]
    return {
        "min": low,
        "p50": int(ordered[last // 2]),
        "p90": int(ordered[last * 9 // 10]),
        "max": high,
        "bins": bins,
    }


def column_values(column: Column, content: bytes, *, least: int = 1) -> list[int]:
    """Return the whole numbers in a column of a file's content; WlgenError names a line without one."""
    rows = _json_rows if column.path.endswith((".jsonl", ".json")) else _csv_rows
    values = []
    try:
        for line, row in rows(content, column.path):
            if column.column not in row:
                known = ", ".join(map(str, row)) or "none"
                expected = f"the column {column.column}"
                raise error(f"{column.path}:{line}", expected=expected, found=f"the columns {known}")
            values.append(_whole(row[column.column], f"{column.path}:{line} {column.column}", least))
    except (UnicodeDecodeError, csv.Error) as failure:
        raise error(column.path, expected="a CSV or JSONL file", found=str(failure)) from failure
    if not values:
        raise error(column.path, expected=f"numbers in the column {column.column}", found="no rows")
    return values


def _csv_rows(content: bytes, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    del path
    reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
    yield from ((reader.line_num, row) for row in reader)  # it skips empty lines, and a row may fill several


def _json_rows(content: bytes, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, text in enumerate(content.splitlines(), 1):
        try:
            row = orjson.loads(text)
        except orjson.JSONDecodeError as failure:
            raise error(f"{path}:{line}", expected="a JSON object a line", found=str(failure)) from failure
        if not isinstance(row, dict):
            raise error(f"{path}:{line}", expected="a JSON object a line", found=type(row).__name__)
        yield line, row


def _whole(value: object, place: str, least: int) -> int:
    text = str(value).strip()
    if not (text.isascii() and text.isdigit() and len(text) < MOST_DIGITS and int(text) >= least):
        expected = f"a whole number of at least {least}, of fewer than {MOST_DIGITS} digits"
        raise error(place, expected=expected, found=repr(value)[:80])
    return int(text)


def _normal(normal: Normal, stream: Coordinates, count: int) -> Lengths:
    """Draw by the sum of twelve uniforms (Irwin-Hall), in integers; tails beyond 6 stddev do not exist."""
    lengths = np.full(count, -1, dtype=np.int64)
    for attempt in range(TRIES):
        left = np.flatnonzero(lengths < 0)
        if not len(left):
            break
        highs = (words(part(stream, attempt), count * UNIFORMS) >> np.uint64(40)).astype(np.int64)
        sums = highs.reshape(count, UNIFORMS).sum(axis=1)[left] - (UNIFORMS // 2 << 24)
        drawn = normal.mean + ((sums * normal.stddev) >> 24)
        good = (normal.min <= drawn) & (drawn <= normal.max)
        lengths[left[good]] = drawn[good]
    return np.where(lengths < 0, normal.mean, lengths)
