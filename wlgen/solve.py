"""From a spec to its plan: the least shared prefix that keeps the bound, or the reason why none does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from wlgen.cache_rules import CacheRule
from wlgen.encodings import Encoding, Framing
from wlgen.errors import WlgenError, error
from wlgen.pages import percent
from wlgen.plan import Plan
from wlgen.spec import Spec
from wlgen.workload import Bound


def solve(spec: Spec, encoding: Encoding, least_own: int) -> Plan:
    """Return the plan of a spec; WlgenError says why none exists, in pages and tokens, and what would do.

    least_own: tokens of its own that the task needs in a check or formal row.
    """
    framing = encoding.frame(("user",))
    cached, requests = spec.requests.cached, spec.requests
    bound = Bound(min_ratio=cached.min_ratio, tokens=cached.tokens, max_tokens=cached.max_tokens)
    room = _Room(
        rule=spec.cache, bound=bound, head=len(framing.ids[0]), behind=least_own + len(framing.ids[-1])
    )
    prompt_len = requests.body_len + framing.tokens
    if not cached.warm:
        _check_zero(spec, bound, framing, least_own)
    elif bound.least(prompt_len) > room.most_cached(prompt_len):
        raise _out_of_reach(spec, room, framing, least_own)
    elif not room.fits(prompt_len):
        raise _inexact(spec, room, prompt_len)
    shared_len = room.shared_len(bound.least(prompt_len)) if cached.warm else room.head
    return Plan(
        spec=spec,
        framing=framing,
        bound=bound,
        shared_len=shared_len,
        cached_len=spec.cache.cached_len(shared_len, prompt_len),
        seed_len=_seed_len(spec, framing, shared_len, prompt_len),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """What a bound leaves to a prompt. head: tokens that all prompts share; behind: own and tail tokens."""

    rule: CacheRule
    bound: Bound
    head: int
    behind: int

    def shared_len(self, cached_len: int) -> int:
        """Return the least shared_len of a warm set with which at least `cached_len` tokens are cached."""
        return max(self.rule.least_shared_len(cached_len), self.head + 1)

    def most_cached(self, prompt_len: int) -> int:
        """Return the most that can be cached of a prompt that keeps its own tokens and shares one."""
        shared_len = prompt_len - self.behind
        return self.rule.cached_len(shared_len, prompt_len) if shared_len > self.head else 0

    def cached_len(self, tokens: int, prompt_len: int) -> int:
        """Return what is cached where at least `tokens` are asked for, and the prompt is long enough."""
        return self.rule.cached_len(self.shared_len(tokens), prompt_len)

    def fits(self, prompt_len: int) -> bool:
        """Return whether prompts of this length can keep the bound, with exactly bound.tokens where given."""
        least, tokens = self.bound.least(prompt_len), self.bound.tokens
        exact = tokens is None or (tokens == least and self.cached_len(tokens, prompt_len) == tokens)
        return exact and least <= self.most_cached(prompt_len)

    def nearest_fit(self, prompt_len: int) -> int | None:
        """Return the prompt length nearest to one that does not fit.

        k quanta keep a ratio r in prompts of k * Q + lookahead + behind to k * Q / r tokens, once k is large
        enough that there are any.
        """
        quantum, ratio = self.rule.hit_quantum, self.bound.min_ratio or Fraction(0)
        around = self.rule.lookahead + self.behind
        if self.bound.tokens is not None:
            lengths = [self.bound.tokens + around]
        elif ratio == 1:
            return None
        else:
            least = math.ceil(ratio * around / (quantum * (1 - ratio)))
            above = (prompt_len - around) // quantum + 1
            lengths = [quantum * max(least, above, 1) + around]
            if ratio:
                lengths.append(int(quantum * math.floor(ratio * prompt_len / quantum) / ratio))
        lengths = [max(length, self.head + 1 + self.behind) for length in lengths]
        fitting = [length for length in lengths if self.fits(length)]
        return min(fitting, key=lambda length: abs(length - prompt_len), default=None)


def in_pages(tokens: int, rule: CacheRule) -> str:
    """Say a count of tokens in pages and quanta: '118784 tokens = 928 pages of 128 = 58 x 2048'."""
    pages = f"{tokens / rule.page_size:g} pages of {rule.page_size}"
    quanta = (
        f" = {tokens / rule.hit_quantum:g} x {rule.hit_quantum}" if rule.hit_quantum != rule.page_size else ""
    )
    return f"{tokens} tokens = {pages}{quanta}"


def _check_zero(spec: Spec, bound: Bound, framing: Framing, own: int) -> None:
    """Raise where the framing head alone is cached past the bound, or the task does not fit."""
    requests, rule = spec.requests, spec.cache
    head, prompt_len = len(framing.ids[0]), requests.body_len + framing.tokens
    cached_len = rule.cached_len(head, prompt_len)
    most = 0 if bound.tokens == 0 else bound.most(prompt_len)
    if cached_len > most:
        raise error(
            spec.at("requests", "cached"),
            expected=f"at most {most} cached tokens",
            found=f"{cached_len}, since every prompt begins with the {head} tokens of the "
            f"chat framing, which fill whole pages of {rule.page_size}",
            remedy=f"Use max_tokens: {cached_len}, or an encoding without that framing ({{name: raw}}).",
        )
    if requests.body_len < own:
        raise error(
            spec.at("requests", "body_len"),
            expected=f"at least {own} tokens for the task {requests.task.name} "
            f"with output_len {requests.output_len}",
            found=str(requests.body_len),
            remedy=f"Use body_len: {own}" + (" or a lower output_len." if requests.output_len > 1 else "."),
        )


def _inexact(spec: Spec, room: _Room, prompt_len: int) -> WlgenError:
    """Say that exactly bound.tokens cannot be cached, or are fewer than the ratio asks for."""
    rule, bound, tokens = room.rule, room.bound, room.bound.tokens or 0
    least = bound.least(prompt_len)
    if tokens < least:
        expected = f"at least {_ratio(bound)} of {prompt_len} prompt tokens = {least} cached for each request"
        found = f"tokens: {in_pages(tokens, rule)} = {percent(tokens, prompt_len)}"
    else:
        lowest = room.cached_len(1, prompt_len)
        expected = f"a multiple of the hit quantum {rule.hit_quantum}, from {lowest} on"
        found = f"tokens: {in_pages(tokens, rule)}"
    near = room.cached_len(least, prompt_len)
    remedy = (
        f"The nearest that passes is tokens: {near} ({in_pages(near, rule)} = {percent(near, prompt_len)})."
    )
    return error(spec.at("requests", "cached"), expected=expected, found=found, remedy=remedy)


def _ratio(bound: Bound) -> str:
    return f"{float(bound.min_ratio or 0) * 100:g} %"


def _out_of_reach(spec: Spec, room: _Room, framing: Framing, own: int) -> WlgenError:
    """Explain a bound that no prefix can reach, with the best that one can and the nearest that works."""
    rule, bound, requests = room.rule, room.bound, spec.requests
    prompt_len = requests.body_len + framing.tokens
    reached, works = room.most_cached(prompt_len), room.nearest_fit(prompt_len)
    ratio = reached * 10000 // prompt_len
    remedies = []
    if bound.tokens is not None and reached >= Bound(min_ratio=bound.min_ratio).least(prompt_len):
        remedies += [f"tokens: {reached}"] if reached else []
    elif bound.tokens is None and ratio:
        remedies.append(f"min_ratio: {ratio / 10000}")
    if works is not None:
        remedies.append(f"body_len: {works - framing.tokens}")
    return error(
        spec.at("requests", "cached"),
        expected=f"{bound.least(prompt_len)} of {prompt_len} prompt tokens cached for each request, "
        f"and {own} tokens of its own (the task {requests.task.name} with output_len {requests.output_len})",
        found=f"at best {in_pages(reached, rule)} = {percent(reached, prompt_len)}: under the rule "
        f"{rule.name} hits come in multiples of {rule.hit_quantum}" + ", less one" * rule.speculative,
        remedy=f"The nearest that passes: {' or '.join(remedies)}." if remedies else "Ask for a lower bound.",
    )


def _seed_len(spec: Spec, framing: Framing, shared_len: int, prompt_len: int) -> int:
    """Return the tokens of a short seed prompt: the prefix, one token of its own at least, the tail."""
    rule, seed = spec.cache, spec.splits.seed
    least = max(rule.least_seed_len(shared_len), shared_len + 1 + len(framing.ids[-1]))
    if seed is None or shared_len == len(framing.ids[0]):
        return least
    length = least if seed.shape == "short" else prompt_len
    if rule.seed_fits(length, shared_len) or seed.per_rank > 1:
        return least
    raise error(
        spec.at("splits", "seed"),
        expected=f"a seed that ends within {rule.hit_quantum} tokens behind the shared prefix of "
        f"{shared_len}, since the rule {rule.name} keeps reusable state only where a prompt ends",
        found=f"a seed of {length} tokens, after which the first row falls short",
        remedy="Use "
        + "shape: short, or " * (seed.shape == "full")
        + "per_rank: 2 (two seeds with different suffixes).",
    )
