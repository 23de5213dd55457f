"""Arrivals: when each row of a round is sent, in whole milliseconds from the round's start."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Context, Decimal
from fractions import Fraction
from itertools import accumulate, islice, pairwise
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from wlgen.errors import error
from wlgen.spec.inputs import own_name
from wlgen.spec.lengths import MOST_ROWS, Column
from wlgen.streams import Coordinates, part, words
from wlgen.strict.model import Strict, key, refusal

MOST_MS = 10**12  # 32 years
Rows = Annotated[int, Field(ge=1, le=MOST_ROWS)]
Milliseconds = Annotated[int, Field(ge=1, le=MOST_MS)]
Rate = Annotated[float | int, Field(gt=0, le=10**6)]
_DECIMAL = Context(prec=20)  # decimal rounds ln and sqrt correctly: every machine draws the same times


class Bursts(Strict):
    """Rows that arrive in bursts."""

    size: Rows = key("Rows that arrive at the same moment.", unit="rows", example="8")
    every_ms: Milliseconds = key("The time from one burst to the next.", unit="milliseconds", example="1000")


class TimeColumn(Column):
    """A column of times in milliseconds, which never falls from one line to the next."""

    least: ClassVar[int] = 0


class Arrivals(Strict):
    """When the rows of a round are sent: at a rate, in bursts, or at the times of a file's column."""

    rate: Rate | None = key(
        "Rows a second, all ranks together.", unit="rows/second", example="10", default=None
    )
    process: Literal["constant", "poisson", "gamma"] = key(
        "How rows at a rate are spaced: evenly, or at random as in a Poisson or gamma process.",
        example="poisson",
        default="constant",
    )
    burstiness: Annotated[float | int, Field(gt=0, le=1000)] | None = key(
        "The shape of the gamma process: 1 is Poisson, less is burstier. Only with process: gamma.",
        example="0.5",
        default=None,
    )
    bursts: Bursts | None = key(
        "Rows that arrive together, burst after burst.", example="{size: 8, every_ms: 1000}", default=None
    )
    column: TimeColumn | None = key(
        "A column of a CSV or JSONL file with the time of each row, in milliseconds.",
        example="{path: times.csv, column: ms}",
        default=None,
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [key for key in ("rate", "bursts", "column") if getattr(self, key) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of the three"
            remedy = "Write {rate: 10}, for example."
            raise refusal(expected="one of rate, bursts, column", found=found, remedy=remedy)
        if (self.process == "gamma") != (self.burstiness is not None):
            expected = "burstiness with process: gamma, and only there"
            raise refusal(expected=expected, found=f"process: {self.process}", key="burstiness")
        return self


def timestamps(arrivals: Arrivals, stream: Coordinates, count: int) -> list[int]:
    """Return the first `count` arrival times in milliseconds, each at least the one before it.

    The first 320 of 640 times are the 320 times. WlgenError if a column has too few times, or falling ones.
    """
    if arrivals.column:
        return _from_column(arrivals.column, count)
    if arrivals.bursts:
        return [i // arrivals.bursts.size * arrivals.bursts.every_ms for i in range(count)]
    gap = Fraction(1000) / Fraction(str(arrivals.rate))
    if arrivals.process == "constant":
        return [int(i * gap) for i in range(count)]
    shape = Decimal(str(arrivals.burstiness or 1))
    scale = _DECIMAL.divide(Decimal(gap.numerator), gap.denominator * shape)
    steps = _exponentials(stream, count) if shape == 1 else _gammas(shape, stream, count)
    ends = accumulate((scale * step for step in steps), initial=Decimal(0))
    return [int(time) for time in islice(ends, count)]


def _from_column(column: Column, count: int) -> list[int]:
    times = column.numbers
    found = f"{len(times)} times" if len(times) < count else "falling times"
    if len(times) < count or any(b < a for a, b in pairwise(times)):
        expected = f"{count} times in milliseconds that never fall from one line to the next"
        raise error(own_name(column.path), expected=expected, found=found)
    return [time - times[0] for time in times[:count]]


def _exponentials(stream: Coordinates, count: int) -> Iterator[Decimal]:
    return (-_DECIMAL.ln(_unit(word)) for word in words(stream, count).tolist())


def _gammas(shape: Decimal, stream: Coordinates, count: int) -> Iterator[Decimal]:
    """Yield numbers from the gamma distribution of this shape and of scale 1.

    The method is that of Marsaglia and Tsang (2000), with their boost for shapes below 1.
    """
    d = shape + (shape < 1) - _DECIMAL.divide(Decimal(1), Decimal(3))
    c = _DECIMAL.divide(Decimal(1), _DECIMAL.sqrt(9 * d))
    for i in range(count):
        units = map(_unit, words(part(stream, i), 256).tolist())
        boost = _DECIMAL.power(next(units), 1 / shape) if shape < 1 else Decimal(1)
        while True:
            x = _normal(units)
            v = (1 + c * x) ** 3
            if v > 0 and _DECIMAL.ln(next(units)) < x * x / 2 + d - d * v + d * _DECIMAL.ln(v):
                yield boost * d * v
                break


def _normal(units: Iterator[Decimal]) -> Decimal:
    """Draw from the normal distribution by Marsaglia's polar method."""
    while True:
        x, y = 2 * next(units) - 1, 2 * next(units) - 1
        s = x * x + y * y
        if 0 < s < 1:
            return x * _DECIMAL.sqrt(_DECIMAL.divide(-2 * _DECIMAL.ln(s), s))


def _unit(word: int) -> Decimal:
    """Map a random word of 64 bits to a number above 0 and below 1."""
    return _DECIMAL.divide(Decimal((word >> 11) * 2 + 1), Decimal(2**54))
