"""Bounds: what a request must find cached. A spec, a plan, a manifest and an audit read this one model."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, PlainSerializer, model_validator

from wlgen.pages import MOST_TOKENS, least_tokens
from wlgen.strict.model import Strict, key, refusal


def _exact(value: object) -> object:
    # 0.9 in YAML means nine tenths, not the nearest binary double.
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return Fraction(str(value)) if number else value


Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]


class _AsNumber:
    """Describes a ratio in a JSON Schema. Pydantic's WithJsonSchema would share one mapping among keys."""

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        del schema, handler
        return {"type": "number", "minimum": 0, "maximum": 1}


CachedTokens = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
Ratio = Annotated[
    Fraction,
    BeforeValidator(_exact),
    Field(ge=0, le=1),
    PlainSerializer(float),
    _AsNumber(),
]


class Bound(Strict):
    """What each check and formal row of a class must find cached, in tokens or as a ratio of its prompt_len.

    `min_ratio: 0.9` asks for 117,969 cached tokens of a prompt of 131,076: 117,968 are 89.9997 % and fail.
    Of the keys only min_ratio and tokens may stand together.
    """

    left_out = frozenset({"tolerance"})

    min_ratio: Ratio | None = key(
        "The least share of its prompt that each check and formal row must find cached.",
        unit="cached tokens / prompt tokens",
        example="0.9",
        default=None,
    )
    tokens: CachedTokens | None = key(
        "The cached tokens that each check and formal row must find: a multiple of the rule's hit quantum.",
        unit="tokens",
        example="118784",
        default=None,
    )
    max_tokens: CachedTokens | None = key(
        "The most cached tokens that a row may find. 0 makes a zero set: rows share the chat framing only.",
        unit="tokens",
        example="0",
        default=None,
    )
    aggregate: Ratio | None = key(
        "The share of all formal prompt tokens of the class that must be cached, all rows together. No "
        "single row has a bound, so a row may find 0.",
        unit="cached tokens / prompt tokens",
        example="0.5",
        default=None,
    )
    tolerance: Ratio = key(
        "How far the plan may miss the aggregate. Only with aggregate.",
        unit="cached tokens / prompt tokens",
        example="0.01",
        default=Fraction(5, 1000),
    )
    cold: Literal[True] | None = key(
        "No bound, no seeds and no checks: each row finds what the rows before it on its rank have left.",
        example="true",
        default=None,
    )

    @property
    def warm(self) -> bool:
        """Whether rows share more than the framing head, so that there is something to seed."""
        return bool(self.min_ratio or self.tokens or self.aggregate)

    def least(self, prompt_len: int) -> int:
        """Return the least cached tokens that meet the bound."""
        by_ratio = 0 if self.min_ratio is None else least_tokens(self.min_ratio, prompt_len)
        return max(by_ratio, self.tokens or 0)

    def most(self, prompt_len: int) -> int:
        """Return the most cached tokens that meet the bound."""
        return prompt_len if self.max_tokens is None else self.max_tokens

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        given = [k for k in Bound.model_fields if k != "tolerance" and getattr(self, k) is not None]
        if not given:
            remedy = "Write {min_ratio: 0.9} for a warm set, {max_tokens: 0} for a zero set."
            expected = "one of min_ratio, tokens, max_tokens, aggregate, cold"
            raise refusal(expected=expected, found="none of the five", remedy=remedy)
        if len(given) > 1 and given != ["min_ratio", "tokens"]:
            alone = next(name for name in ("max_tokens", "aggregate", "cold") if name in given)
            remedy = "Only min_ratio and tokens, which both bound a row from below, may stand together."
            raise refusal(expected=f"{alone} alone", found=" and ".join(given), remedy=remedy)
        if "tolerance" in self.model_fields_set and self.aggregate is None:
            remedy = "Delete it, or ask for an aggregate."
            raise refusal(
                expected="no tolerance without aggregate", found="one", remedy=remedy, key="tolerance"
            )
        return self


UNBOUNDED = Bound(cold=True)
"""The bound of rows that promise no figure: rows of cold classes and of traces."""
