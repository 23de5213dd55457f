"""Popularity: how often each of several groups, lengths or bins is drawn, the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from functools import cache
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from wlgen.streams import Words
from wlgen.strict.model import Strict, key, refusal

Weight = Annotated[float | int, Field(ge=0, le=2**31, allow_inf_nan=False)]
_EXACT = Context(prec=28)  # decimal rounds powers the same way on every machine


class Popularity(Strict):
    """How often rows fall into each group. `{zipf: 1}` gives 3 groups 6/11, 3/11 and 2/11 of the rows."""

    zipf: Annotated[float | int, Field(gt=0, le=10)] | None = key(
        "The exponent of a Zipf law: group g, counted from 0, has the weight 1 / (g + 1) ** zipf.",
        example="1.1",
        default=None,
    )
    weights: Annotated[list[Weight], Field(min_length=1)] | None = key(
        "One weight for each group, in the order of the groups. They need not sum to 1.",
        example="[5, 3, 2]",
        default=None,
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.zipf is None) == (self.weights is None):
            found = "neither" if self.zipf is None else "both"
            raise refusal(expected="zipf or weights", found=found, remedy="Write {zipf: 1.1}, for example.")
        if self.weights is not None and not sum(self.weights):
            raise refusal(expected="at least one weight above 0", found=str(self.weights), key="weights")
        return self

    def of(self, groups: int) -> list[Any]:
        """Return the weight of each group."""
        return self.weights if self.weights is not None else zipf_weights(groups, str(self.zipf))


@cache
def zipf_weights(groups: int, exponent: str) -> list[Decimal]:
    """Return 1 / (g + 1) ** exponent for each group."""
    power = Decimal(exponent)
    return [_EXACT.divide(Decimal(1), _EXACT.power(Decimal(g + 1), power)) for g in range(groups)]


def chosen(weights: Sequence[Any], stream: Words) -> NDArray[np.int64]:
    """Map each random word to an index of `weights`, each as often as its share of their sum.

    Shares are whole steps of 2**-32: of the weights 1 and 2 the first is chosen by 1431655765 of 2**32 words.
    """
    exact = [Decimal(str(w)) for w in weights]
    total = sum(exact)
    ends, running = [], Decimal(0)
    for weight in exact:
        running = _EXACT.add(running, weight)
        ends.append(int(_EXACT.divide(_EXACT.multiply(running, Decimal(2**32)), total)))
    ends[-1] = 2**32
    return np.searchsorted(np.array(ends, dtype=np.uint64), stream >> np.uint64(32), side="right")
