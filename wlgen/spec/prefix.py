"""Prefixes: which rows share a prefix, and how long each level of a chain of prefixes is."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from wlgen.spec.lengths import MOST_ROWS
from wlgen.spec.popularity import Popularity
from wlgen.strict.model import Strict, key, refusal
from wlgen.workload.bounds import Ratio, Tokens


class Level(Strict):
    """One level of a chain of prefixes: who shares it, and how long it is.

    The last level may leave its length out: each row's bound then decides it.
    """

    shared_by: Literal["all", "rank", "group"] = key(
        "Who shares the prefix: all rows, the rows of one rank, or the rows of one group.",
        example="group",
        default="all",
    )
    groups: Annotated[int, Field(ge=1, le=MOST_ROWS)] | None = key(
        "How many groups there are inside each group of the level above. Only with shared_by: group.",
        example="8",
        default=None,
    )
    popularity: Popularity | None = key(
        "How often rows fall into each group. Left out, the groups take turns. Only with shared_by: group.",
        example="{zipf: 1.1}",
        default=None,
    )
    ranks: Literal["all", "one"] | None = key(
        "Whether the rows of a group are on all ranks, which is the default, or on one. Only with shared_by: "
        "group.",
        example="one",
        default=None,
    )
    tokens: Tokens | None = key("The level's length.", unit="tokens", example="4096", default=None)
    pages: Tokens | None = key(
        "The level's length in pages of the cache rule.", unit="pages", example="32", default=None
    )
    ratio: Ratio | None = key(
        "The level's length as a share of the longest prompt of the class, rounded down to a page.",
        example="0.5",
        default=None,
    )

    @property
    def has_length(self) -> bool:
        """Whether the level says its length."""
        return self.tokens is not None or self.pages is not None or self.ratio is not None

    @model_validator(mode="after")
    def _groups_where_shared_by_group(self) -> Self:
        if self.shared_by == "group" and self.groups is None:
            remedy = "Add it, for example `groups: 8`."
            raise refusal(expected="the key groups", found="shared_by: group alone", remedy=remedy)
        if self.shared_by != "group":
            for name in ("groups", "popularity", "ranks"):
                if getattr(self, name) is not None:
                    found = f"{name}: {self.groups}" if name == "groups" else name
                    found += f" with shared_by: {self.shared_by}"
                    remedy = "Delete it, or write shared_by: group."
                    raise refusal(expected=f"no {name}", found=found, remedy=remedy, key=name)
        weights = self.popularity.weights if self.popularity else None
        if weights is not None and len(weights) != self.groups:
            expected, found = f"{self.groups} weights, one a group", str(len(weights))
            raise refusal(expected=expected, found=found, key="popularity")
        lengths = [name for name in ("tokens", "pages", "ratio") if getattr(self, name) is not None]
        if len(lengths) > 1:
            expected = "one of tokens, pages, ratio"
            raise refusal(expected=expected, found=" and ".join(lengths), key=lengths[1])
        return self


class Prefix(Level):
    """Which rows share one prefix: one level, or a chain of levels from the one that most rows share."""

    levels: Annotated[list[Level], Field(min_length=1)] | None = key(
        "A chain of prefixes, the one that most rows share first; then no other key of prefix but message.",
        example="[{tokens: 1024}, {shared_by: group, groups: 8}]",
        default=None,
    )
    message: Literal["user", "system"] | None = key(
        "The message that holds the shared prefix: the user's, which is the default, or a system message.",
        example="system",
        default=None,
    )

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = write(self)
        if self.levels is not None:
            del content["shared_by"]
        return content

    @property
    def chain(self) -> list[Level]:
        """The levels, from the one that most rows share."""
        return self.levels if self.levels is not None else [self]

    @model_validator(mode="after")
    def _levels_alone(self) -> Self:
        if self.levels is None:
            return self
        beside = [name for name in Level.model_fields if name in self.model_fields_set]
        if beside:
            remedy = "Move it into one of the levels."
            found = f"{beside[0]} beside levels"
            raise refusal(expected="levels alone", found=found, remedy=remedy, key=beside[0])
        for number, level in enumerate(self.levels):
            if number < len(self.levels) - 1 and not level.has_length:
                expected = "tokens, pages or ratio for each level but the last"
                raise refusal(expected=expected, found=f"none for level {number + 1}", key="levels")
            if number and level.shared_by == "all":
                expected = "rank or group for each level but the first"
                raise refusal(expected=expected, found=f"all for level {number + 1}", key="levels")
            above = self.levels[:number]
            if level.ranks == "one" and any(a.ranks == "one" or a.shared_by == "rank" for a in above):
                expected = "at most one level that fixes the rank of its rows"
                raise refusal(expected=expected, found=f"ranks: one for level {number + 1} too", key="levels")
        return self
