"""Classes: what the rows of each request class share, solved in whole pages and quanta. All are tokens."""

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
    """One class of requests, its framing and rule beside what the spec says.

    path: where its keys stand in the spec. chain: tokens of each level of its prefix, None for a last level
    that is as long as each row's bound asks. least_own: tokens of its own that the task needs in a row, given
    its output_len.
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
        """The class's name, "" where the spec has one class."""
        return self.requests.name

    @cached_property
    def levels(self) -> list[Level]:
        """The levels of the prefix; none where rows share the framing head only."""
        cached = self.requests.cached
        return self.requests.prefix.chain if cached.warm or cached.cold else []

    @cached_property
    def in_system(self) -> bool:
        """Whether the shared prefix is a system message."""
        return bool(self.levels) and self.requests.prefix.message == "system"

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of a request's messages (of the first turn of a session)."""
        return ("system", "user") if self.in_system else ("user",)

    @cached_property
    def bound(self) -> Bound:
        """What each check and formal row must find cached."""
        return self.requests.cached

    @cached_property
    def offset(self) -> int:
        """Framing tokens in front of, and shared with, a row's own part."""
        return sum(map(len, self.framing.ids[:-1]))

    @cached_property
    def tail_len(self) -> int:
        """Framing tokens behind the last message."""
        return len(self.framing.ids[-1])

    def prompt_len(self, body_len: int) -> int:
        """Return the tokens of a prompt of `body_len` tokens of messages."""
        return body_len + self.framing.tokens

    def own_len(self, body_len: int, shared_len: int) -> int:
        """Return the tokens of a row's own part."""
        return body_len - (shared_len - self.offset)

    def shared_len(self, body_len: int) -> int:
        """Return shared_len of a row: the whole chain, or the least that may keep its bound."""
        if not self.levels:
            return self.offset
        known = [tokens for tokens in self.chain if tokens is not None]
        if len(known) == len(self.chain):
            return self.offset + sum(known)
        least = self.bound.least(self.prompt_len(body_len))
        return max(self.rule.least_shared_len(least), self.offset + 1) if least else self.offset

    def cached_len(self, body_len: int, shared_len: int) -> int:
        """Return what the rule says of a row whose prefix is held."""
        return self.rule.cached_len(shared_len, self.prompt_len(body_len))

    def best(self, body_len: int, output_len: int) -> int:
        """Return the most that can be cached of a row that keeps room for its own part."""
        prompt_len = self.prompt_len(body_len)
        most = max(0, prompt_len - self.tail_len - self.least_own(output_len))
        known = [tokens for tokens in self.chain if tokens is not None]
        if len(known) == len(self.chain):
            most = min(most, self.offset + sum(known))
        return self.rule.cached_len(most, prompt_len)

    def seed_len(self, shared_len: int) -> int:
        """Return the tokens of a short seed: the prefix, at least one token of its own, the tail."""
        return max(self.rule.least_seed_len(shared_len), shared_len + 1 + self.tail_len)

    def shortfall(self, body_len: int, output_len: int, shared_len: int) -> int:
        """Return by how many tokens a row misses its bound or the room for its own part, 0 for neither."""
        cached, prompt_len = self.cached_len(body_len, shared_len), self.prompt_len(body_len)
        room = self.least_own(output_len) - self.own_len(body_len, shared_len)
        if self.requests.cached.cold or self.requests.cached.aggregate is not None:
            return max(0, room)
        return max(0, self.bound.least(prompt_len) - cached, cached - self.bound.most(prompt_len), room)


def chain_of(levels: list[Level], rule: CacheRule, offset: int, longest: int) -> tuple[int | None, ...]:
    """Return the tokens of each level's stream. offset: framing in front of it; longest: the longest prompt.

    Pages and ratios say where a level ends in the prompt, so the first level is shorter by the framing.
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
