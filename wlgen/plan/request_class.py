"""Request classes: what the rows of each class share, solved in whole pages and quanta, in tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from wlgen.cache.rule import CacheRule
from wlgen.encodings import Framing
from wlgen.spec.model import Requests
from wlgen.spec.prefix import Level
from wlgen.strict.problems import KeyPath
from wlgen.workload.bounds import Bound


@dataclass(frozen=True, kw_only=True)  # without slots: what it derives is asked for by every row, and kept
class RequestClass:
    """One class of a spec's requests, with its framing and cache rule.

    path: where its keys stand in the spec. chain: tokens of each level of its prefix; None for a last level
    whose length each row's bound decides. least_own: the tokens of its own that the task needs in a row with
    a given output_len.
    """

    number: int
    requests: Requests
    path: KeyPath
    rule: CacheRule
    framing: Framing
    chain: tuple[int | None, ...]
    least_own: Callable[[int], int]

    @property
    def name(self) -> str:
        """The class's name, "" if it is the spec's only class."""
        return self.requests.name

    @cached_property
    def levels(self) -> list[Level]:
        """The levels of the prefix; none if rows share the framing head only."""
        cached = self.requests.cached
        return self.requests.prefix.chain if cached.warm or cached.cold else []

    @cached_property
    def in_system(self) -> bool:
        """Whether the shared prefix is a system message."""
        return bool(self.levels) and self.requests.prefix.message == "system"

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of a request's messages, or those of a session's first turn."""
        return ("system", "user") if self.in_system else ("user",)

    @cached_property
    def bound(self) -> Bound:
        """What each check and formal row must find cached."""
        return self.requests.cached

    @cached_property
    def offset(self) -> int:
        """The framing tokens in front of a row's own part; all rows share them."""
        return sum(map(len, self.framing.ids[:-1]))

    @cached_property
    def tail_len(self) -> int:
        """The framing tokens behind the last message."""
        return len(self.framing.ids[-1])

    def prompt_len(self, body_len: int) -> int:
        """Return the tokens of a prompt whose messages have `body_len` tokens."""
        return body_len + self.framing.tokens

    def own_len(self, body_len: int, shared_len: int) -> int:
        """Return the tokens of a row's own part."""
        return body_len - (shared_len - self.offset)

    def shared_len(self, body_len: int) -> int:
        """Return shared_len of a row: the whole chain, or the least length that may keep its bound."""
        if not self.levels:
            return self.offset
        known = [tokens for tokens in self.chain if tokens is not None]
        if len(known) == len(self.chain):
            return self.offset + sum(known)
        least = self.bound.least(self.prompt_len(body_len))
        return max(self.rule.least_shared_len(least), self.offset + 1) if least else self.offset

    def cached_len(self, body_len: int, shared_len: int) -> int:
        """Return the tokens that the rule says a row finds cached once its prefix is held."""
        return self.rule.cached_len(shared_len, self.prompt_len(body_len))

    def best(self, body_len: int, output_len: int) -> int:
        """Return the most tokens of a row that can be cached while its own part still fits."""
        prompt_len = self.prompt_len(body_len)
        most = max(0, prompt_len - self.tail_len - self.least_own(output_len))
        known = [tokens for tokens in self.chain if tokens is not None]
        if len(known) == len(self.chain):
            most = min(most, self.offset + sum(known))
        return self.rule.cached_len(most, prompt_len)

    def seed_len(self, shared_len: int) -> int:
        """Return the length of a short seed: the prefix, at least one token of its own, and the tail."""
        return max(self.rule.least_seed_len(shared_len), shared_len + 1 + self.tail_len)

    def shortfall(self, body_len: int, output_len: int, shared_len: int) -> int:
        """Return by how many tokens a row misses its bound or room for its own part; 0 if it misses none."""
        cached, prompt_len = self.cached_len(body_len, shared_len), self.prompt_len(body_len)
        room = self.least_own(output_len) - self.own_len(body_len, shared_len)
        if self.requests.cached.cold or self.requests.cached.aggregate is not None:
            return max(0, room)
        return max(0, self.bound.least(prompt_len) - cached, cached - self.bound.most(prompt_len), room)


def chain_of(levels: list[Level], rule: CacheRule, offset: int, longest: int) -> tuple[int | None, ...]:
    """Return the tokens of each level. offset: framing tokens in front of it; longest: the longest prompt.

    Pages and ratios say where a level ends in the prompt, so the first level is shorter by the offset.
    """
    chain: list[int | None] = []
    for number, level in enumerate(levels):
        pages = level.pages or 0
        if level.ratio is not None:
            pages = int(level.ratio * longest) // rule.page_size
        tokens = level.tokens or pages * rule.page_size
        if number == 0 and pages:
            tokens = max(1, rule.least_shared_len(tokens) - offset)
        chain.append(tokens if level.has_length else None)
    return tuple(chain)
