"""Lengths: one number for every row, or a distribution from which each row draws. All are in tokens."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, Field, PrivateAttr, Tag, ValidationInfo, model_validator

from wlgen.errors import error
from wlgen.spec.inputs import Inputs
from wlgen.spec.popularity import Weight, chosen
from wlgen.streams import Coordinates, below, part, words
from wlgen.strict.jsonl import parse_lines
from wlgen.strict.model import Strict, key, refusal
from wlgen.workload.bounds import Tokens

Lengths = NDArray[np.int64]
UNIFORMS = 12  # the sum of 12 uniform numbers in [0, 1), less 6, has mean 0 and variance 1
TRIES = 64  # draws outside min and max before a row takes the mean
MOST_ROWS = 10**7  # in one spec: the plan of so many rows fits in memory
MOST_DIGITS = 16  # of a number in a column: int() raises on thousands of digits


class Normal(Strict):
    """A normal distribution between min and max: a length outside them is drawn again."""

    mean: Tokens = key("The mean, before min and max cut the tails off.", unit="tokens", example="4096")
    stddev: Tokens = key("The standard deviation.", unit="tokens", example="1024")
    min: Tokens = key("The least length that is drawn.", unit="tokens", example="512")
    max: Tokens = key("The greatest length that is drawn.", unit="tokens", example="8192")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.min <= self.mean <= self.max:
            found = f"min {self.min}, mean {self.mean}, max {self.max}"
            raise refusal(expected="min <= mean <= max", found=found, key="mean")
        return self


class Bin(Strict):
    """Lengths from low to high, both included, all equally likely."""

    low: Tokens = key("The least length of the bin.", unit="tokens", example="1024")
    high: Tokens = key("The greatest length of the bin.", unit="tokens", example="2047")
    count: Weight = key(
        "How often a length falls into the bin, beside the other bins' counts.", example="120"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high < self.low:
            raise refusal(expected=f"high of at least low {self.low}", found=str(self.high), key="high")
        return self


class Column(Strict):
    """A column of a CSV or JSONL file: row 0 takes its first number, and after its last it starts again."""

    least: ClassVar[int] = 1

    path: Annotated[str, Field(min_length=1)] = key(
        "The file, relative to the spec. ~ and $VARIABLES are expanded. The built set keeps a copy.",
        example="lengths.csv",
    )
    column: str = key(
        "The column's name in the CSV's first line, or the key in each line of a JSONL file.",
        example="tokens",
    )
    sha256: str | None = key(
        "The file's SHA-256 in hex. A manifest holds it; in a spec it makes a changed file an error.",
        example="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        default=None,
    )
    _numbers: list[int] = PrivateAttr(default_factory=list)

    @property
    def numbers(self) -> list[int]:
        """The column's numbers, read with the spec."""
        return self._numbers

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> Self:
        inputs: Inputs | None = info.context
        if inputs is None:  # `spec.checks` validates parts of a spec alone, and reads no files
            return self
        kept = inputs.take(self.path, self.sha256)
        column = self.model_copy(update={"path": kept.path, "sha256": kept.sha256})
        column._numbers = inputs.numbers(lambda: column_values(self, kept.content))  # noqa: SLF001 (its own)
        return column


class Distribution(Strict):
    """Lengths that differ from row to row. Exactly one key but weights: weights belongs to choice."""

    uniform: Annotated[list[Tokens], Field(min_length=2, max_length=2)] | None = key(
        "[least, most]: every length between the two, both included, is equally likely.",
        unit="tokens",
        example="[1024, 4096]",
        default=None,
    )
    normal: Normal | None = key(
        "A normal distribution, cut at min and max.",
        example="{mean: 4096, stddev: 1024, min: 512, max: 8192}",
        default=None,
    )
    choice: Annotated[list[Tokens], Field(min_length=1)] | None = key(
        "One of these lengths, drawn anew for each row.", unit="tokens", example="[1024, 8192]", default=None
    )
    weights: list[Weight] | None = key(
        "How often each length of choice is drawn. Left out, all are equally likely.",
        example="[3, 1]",
        default=None,
    )
    histogram: Annotated[list[Bin], Field(min_length=1)] | None = key(
        "Bins of lengths, each with a count as its weight.",
        example="[{low: 1, high: 1023, count: 70}, {low: 1024, high: 2047, count: 30}]",
        default=None,
    )
    values: Annotated[list[Tokens], Field(min_length=1)] | None = key(
        "The length of each row, in order; after the last it starts again.",
        unit="tokens",
        example="[300, 250, 400]",
        default=None,
    )
    column: Column | None = key(
        "The length of each row from a column of a CSV or JSONL file.",
        example="{path: lengths.csv, column: tokens}",
        default=None,
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [k for k in Distribution.model_fields if k != "weights"]
        given = [k for k in kinds if getattr(self, k) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            remedy = "Keep one of them: a length is drawn in one way."
            raise refusal(expected=f"one of {', '.join(kinds)}", found=found, remedy=remedy)
        if self.uniform and self.uniform[0] > self.uniform[1]:
            remedy = f"Write [{self.uniform[1]}, {self.uniform[0]}]."
            raise refusal(expected="[least, most]", found=str(self.uniform), remedy=remedy, key="uniform")
        if self.weights is not None:
            self._check_weights(self.weights)
        if self.histogram is not None and not sum(b.count for b in self.histogram):
            raise refusal(expected="at least one bin with a count above 0", found="none", key="histogram")
        return self

    @property
    def listed(self) -> list[int]:
        """The lengths that stand in the spec or in a file, [] where they are drawn."""
        return self.column.numbers if self.column else self.values or []

    def _check_weights(self, weights: list[float]) -> None:
        if self.choice is None or len(weights) != len(self.choice):
            count = (
                f"{len(self.choice)} weights, one a choice" if self.choice else "no weights without choice"
            )
            raise refusal(expected=count, found=str(len(weights)), key="weights")
        if not sum(weights):
            raise refusal(expected="at least one weight above 0", found=str(weights), key="weights")


def _kind(value: object) -> str:
    # pydantic then checks the value as one of the two, and a wrong mapping is not also reported as no number.
    return "distribution" if isinstance(value, dict | Distribution) else "tokens"


Length: TypeAlias = Annotated[
    Annotated[Tokens, Tag("tokens")] | Annotated[Distribution, Tag("distribution")], Discriminator(_kind)
]


def draw(length: int | Distribution, stream: Coordinates, count: int) -> Lengths:
    """Return the first `count` lengths, shape (count,). The first 320 of 640 lengths are the 320 lengths."""
    if isinstance(length, int):
        return np.full(count, length, dtype=np.int64)
    if length.normal:
        return _normal(length.normal, stream, count)
    if length.choice:
        weights = length.weights or [1] * len(length.choice)
        return np.array(length.choice, dtype=np.int64)[chosen(weights, words(stream, count))]
    if listed := length.listed:
        return np.resize(np.array(listed, dtype=np.int64), count)
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
    ends = [*(length.uniform or ()), *(length.choice or ()), *length.listed]
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


def column_values(column: Column, content: bytes) -> list[int]:
    """Return the whole numbers in a column of a file; WlgenError names the first line without one."""
    rows = _json_rows if column.path.endswith((".jsonl", ".json")) else _csv_rows
    values = []
    try:
        for line, row in rows(content, column.path):
            if column.column not in row:
                known = ", ".join(map(str, row)) or "none"
                expected = f"the column {column.column}"
                raise error(f"{column.path}:{line}", expected=expected, found=f"the columns {known}")
            values.append(_whole(row[column.column], f"{column.path}:{line} {column.column}", column.least))
    except (UnicodeDecodeError, csv.Error) as failure:
        raise error(column.path, expected="a CSV or JSONL file", found=str(failure)) from failure
    if not values:
        raise error(column.path, expected=f"numbers in the column {column.column}", found="no rows")
    return values


def _csv_rows(content: bytes, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    del path
    reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
    # line_num, not a count of rows: csv skips empty lines, and a quoted value may fill several.
    yield from ((reader.line_num, row) for row in reader)


def _json_rows(content: bytes, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    def row(value: object, place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise error(place, expected="a JSON object a line", found=type(value).__name__)
        return value

    yield from enumerate(parse_lines(content.splitlines(), path, row), 1)


def _whole(value: object, place: str, least: int) -> int:
    text = str(value).strip()
    if not (text.isascii() and text.isdigit() and len(text) < MOST_DIGITS and int(text) >= least):
        expected = f"a whole number of at least {least}, of fewer than {MOST_DIGITS} digits"
        raise error(place, expected=expected, found=repr(value)[:80])
    return int(text)


def _normal(normal: Normal, stream: Coordinates, count: int) -> Lengths:
    """Draw from a normal distribution as the sum of twelve uniform numbers.

    The arithmetic is in integers, so that every machine draws the same lengths. The sum of twelve reaches
    six standard deviations from the mean and no further.
    """
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
