"""Refusals: why a spec has no plan, in pages and tokens, and the nearest spec that has a plan."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from wlgen.cache.rule import CacheRule
from wlgen.errors import WlgenError, error
from wlgen.pages import least_tokens, percent
from wlgen.plan.request_class import RequestClass
from wlgen.plan.rows import row_id
from wlgen.plan.table import Table, spread
from wlgen.spec.model import Spec
from wlgen.workload.bounds import Bound
from wlgen.workload.splits import Split

Ints = NDArray[np.int64]
TRIES = 8  # how often a ratio is corrected until whole quanta reach it
SHOWN = 3  # rows named in a message


def in_pages(tokens: int, rule: CacheRule) -> str:
    """Return a count of tokens in pages and quanta: '118784 tokens = 928 pages of 128 = 58 x 2048'."""
    pages = f"{tokens / rule.page_size:g} pages of {rule.page_size}"
    quanta = (
        f" = {tokens / rule.hit_quantum:g} x {rule.hit_quantum}" if rule.hit_quantum != rule.page_size else ""
    )
    return f"{tokens} tokens = {pages}{quanta}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The room that a bound leaves in a prompt.

    head: tokens that all prompts share. behind: tokens of a row's own part and the framing tail.
    """

    rule: CacheRule
    bound: Bound
    head: int
    behind: int

    def shared_len(self, cached_len: int) -> int:
        """Return the least shared_len of a warm set that makes at least `cached_len` tokens cached."""
        return max(self.rule.least_shared_len(cached_len), self.head + 1)

    def most_cached(self, prompt_len: int) -> int:
        """Return the most tokens that can be cached of a prompt that keeps `behind` and shares a token."""
        shared_len = prompt_len - self.behind
        return self.rule.cached_len(shared_len, prompt_len) if shared_len > self.head else 0

    def cached_len(self, tokens: int, prompt_len: int) -> int:
        """Return the tokens cached if a bound asks for at least `tokens` and the prompt is long enough."""
        return self.rule.cached_len(self.shared_len(tokens), prompt_len)

    def fits(self, prompt_len: int) -> bool:
        """Return whether prompts of this length can keep the bound; a bound of tokens must be met exactly."""
        least, tokens = self.bound.least(prompt_len), self.bound.tokens
        exact = tokens is None or (tokens == least and self.cached_len(tokens, prompt_len) == tokens)
        return exact and least <= self.most_cached(prompt_len)

    def nearest_fit(self, prompt_len: int) -> int | None:
        """Return the prompt length that fits and is nearest to `prompt_len`, which does not fit.

        With k quanta of Q tokens cached, a ratio r is kept by prompts from k * Q + lookahead + behind to
        k * Q / r tokens, once k is so large that this range is not empty.
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


def of_class(spec: Spec, of: RequestClass) -> Iterator[WlgenError]:
    """Yield why a class whose rows all have one length has no plan."""
    if 0 in of.chain:
        yield error(
            spec.at(*of.path, "prefix"),
            expected=f"at least one page of {of.rule.page_size} tokens for each level",
            found=f"none for level {of.chain.index(0) + 1}",
            remedy="Raise its ratio, or say its length in tokens.",
        )
    cached, body_len, output_len = of.requests.cached, of.requests.body_len, of.requests.output_len
    if not isinstance(body_len, int) or not isinstance(output_len, int):
        return
    prompt_len, own = of.prompt_len(body_len), of.least_own(output_len)
    room = Room(rule=of.rule, bound=of.bound, head=of.offset, behind=own + of.tail_len)
    if not of.levels:
        yield from _zero_misses(spec, of, body_len, output_len)
    elif cached.cold or cached.aggregate is not None or None not in of.chain:
        return  # `of_rows` checks these row by row
    elif of.bound.least(prompt_len) > room.most_cached(prompt_len):
        yield _out_of_reach(spec, of, room, prompt_len, output_len)
    elif not room.fits(prompt_len):
        yield _inexact(spec, of, room, prompt_len)


def of_rows(spec: Spec, of: RequestClass, table: Table) -> Iterator[WlgenError]:
    """Yield why rows of a class miss their bound, or why all of them together miss their aggregate."""
    mine = np.flatnonzero(table.request_class == of.number)
    if not len(mine):
        yield error(
            spec.at(*of.path),
            expected=f"a formal row of the class {of.name}",
            found=f"none among the {len(table.rank)} formal rows",
            remedy="Raise its weight or the formal rows.",
        )
        return
    shapes = np.c_[table.body_len[mine], table.output_len[mine], table.shared_len[mine]]
    unique, inverse = np.unique(shapes, axis=0, return_inverse=True)
    by_shape = np.array([of.shortfall(*map(int, shape)) for shape in unique])
    missed = by_shape[inverse.reshape(-1)]
    if missed.any():
        yield _rows_short(spec, of, table, mine[missed > 0], missed[missed > 0])
    elif of.requests.cached.aggregate is not None and (failure := _aggregate_missed(spec, of, table, mine)):
        yield failure
    elif of.levels and spec.splits.seed is not None:
        depths = {int(s) for s in table.shared_len[mine]} - {of.offset}
        failures = (
            _seed_misses(spec, of, depth, int(table.body_len[mine].max())) for depth in sorted(depths)
        )
        yield from [failure for failure in failures if failure][:1]


def _rows_short(spec: Spec, of: RequestClass, table: Table, rows: Ints, missed: Ints) -> WlgenError:
    """Name the rows that miss their bound or have no room for their own part, and by how much."""
    worst = rows[int(missed.argmax())]
    body_len, shared_len = int(table.body_len[worst]), int(table.shared_len[worst])
    output_len = int(table.output_len[worst])
    ids = [row_id(Split.FORMAL, int(table.rank[n]), int(table.place[n]), 0) for n in rows[:SHOWN]]
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    long = "a level longer than its row: " if of.own_len(body_len, shared_len) < 0 else ""
    name = f" of the class {of.name}" if of.name else ""
    return error(
        spec.at(*of.path),
        expected=f"each row{name} to find {_bound(of.bound)} cached and to keep {of.least_own(output_len)} "
        f"tokens of its own (the task {of.requests.task.name})",
        found=f"{long}{len(rows)} rows that miss it, by up to {int(missed.max())} tokens: "
        f"{', '.join(ids)}{more}; the worst has a prompt of {of.prompt_len(body_len)}, of which "
        f"{of.cached_len(body_len, shared_len)} are cached, at best {of.best(body_len, output_len)}",
        remedy="Raise the least body_len, shorten the prefix, or lower the bound or output_len.",
    )


def _bound(bound: Bound) -> str:
    if bound.max_tokens is not None:
        return f"at most {bound.max_tokens} tokens"
    parts = [_ratio(bound)] if bound.min_ratio is not None else []
    return (
        " and ".join([*parts, f"{bound.tokens} tokens"] if bound.tokens is not None else parts)
        or "its prefix"
    )


def _aggregate_missed(spec: Spec, of: RequestClass, table: Table, mine: Ints) -> WlgenError | None:
    """Refuse an aggregate that whole quanta cannot reach within its tolerance."""
    cached = of.requests.cached
    prompts = table.body_len[mine] + of.framing.tokens
    reached, whole = int(table.cached_len[mine].sum()), int(prompts.sum())
    asked = float(cached.aggregate or 0)
    tolerance = float(cached.tolerance)
    if abs(reached / whole - asked) <= tolerance:
        return None
    pairs = zip(table.body_len[mine].tolist(), table.output_len[mine].tolist(), strict=True)
    most = sum(of.best(*pair) for pair in pairs)
    nearest = _nearest_aggregate(of, table, mine, reached, tolerance)
    least = sum(of.cached_len(n, of.offset + of.in_system) for n in table.body_len[mine].tolist())
    return error(
        spec.at(*of.path, "cached", "aggregate"),
        expected=f"{asked * 100:g} % of {whole} prompt tokens cached, within {tolerance * 100:g} %",
        found=f"at nearest {percent(reached, whole)}; {percent(least, whole)} to {percent(most, whole)} can "
        f"be reached, in steps of {of.rule.hit_quantum} tokens over {len(mine)} rows, each rank by itself",
        remedy=f"The nearest that passes: aggregate: {nearest:.6f}, or a wider tolerance.",
    )


def _nearest_aggregate(of: RequestClass, table: Table, mine: Ints, reached: int, tolerance: float) -> float:
    """Return a ratio near `reached` that the rows do reach.

    A ratio near the highest may be missed: no later row makes up for a row that got fewer quanta than it
    could hold because those came nearest to the ratio.
    """
    body_len, output_len, rank = (column[mine] for column in (table.body_len, table.output_len, table.rank))
    whole = int((body_len + of.framing.tokens).sum())
    nearest = round(reached / whole, 6)
    for _ in range(TRIES):
        shared = spread(of, Fraction(str(nearest)), body_len, output_len, rank)
        pairs = zip(body_len.tolist(), shared.tolist(), strict=True)
        found = sum(of.cached_len(*pair) for pair in pairs) / whole
        if abs(found - nearest) <= tolerance:
            break
        nearest = round(found, 6)
    return nearest


def _inexact(spec: Spec, of: RequestClass, room: Room, prompt_len: int) -> WlgenError:
    """Explain that exactly bound.tokens cannot be cached, or that they are fewer than the ratio asks for."""
    rule, bound, tokens = room.rule, room.bound, room.bound.tokens or 0
    least = bound.least(prompt_len)
    if tokens < least:
        expected = f"{_ratio(bound)} of {prompt_len} prompt tokens = {least} cached for each request"
        found = f"tokens: {in_pages(tokens, rule)} = {percent(tokens, prompt_len)}"
    else:
        lowest = room.cached_len(1, prompt_len)
        expected = f"a multiple of the hit quantum {rule.hit_quantum}, from {lowest} on"
        found = f"tokens: {in_pages(tokens, rule)}"
    near = room.cached_len(least, prompt_len)
    remedy = (
        f"The nearest that passes is tokens: {near} ({in_pages(near, rule)} = {percent(near, prompt_len)})."
    )
    return error(spec.at(*of.path, "cached"), expected=expected, found=found, remedy=remedy)


def _by_ratio(bound: Bound, prompt_len: int) -> int:
    return 0 if bound.min_ratio is None else least_tokens(bound.min_ratio, prompt_len)


def _ratio(bound: Bound) -> str:
    return f"at least {float(bound.min_ratio or 0) * 100:g} %"


def _out_of_reach(spec: Spec, of: RequestClass, room: Room, prompt_len: int, output_len: int) -> WlgenError:
    """Explain a bound that no prefix reaches, with the best that one reaches and the nearest that works."""
    rule, bound, own = room.rule, room.bound, of.least_own(output_len)
    reached, works = room.most_cached(prompt_len), room.nearest_fit(prompt_len)
    ratio = reached * 10000 // prompt_len
    remedies = []
    if bound.tokens is not None and reached >= _by_ratio(bound, prompt_len):
        remedies += [f"tokens: {reached}"] if reached else []
    elif bound.tokens is None and ratio:
        remedies.append(f"min_ratio: {ratio / 10000}")
    if works is not None:
        remedies.append(f"body_len: {works - of.framing.tokens}")
    own_part = f"{own} tokens of its own (the task {of.requests.task.name} with output_len {output_len})"
    expected = (
        f"{bound.least(prompt_len)} of {prompt_len} prompt tokens cached for each request, and {own_part}"
    )
    if bound.min_ratio == 1:
        expected = f"a ratio below 1, since a prompt cannot be all prefix: each keeps {own_part}"
    return error(
        spec.at(*of.path, "cached"),
        expected=expected,
        found=f"at best {in_pages(reached, rule)} = {percent(reached, prompt_len)}: under the rule "
        f"{rule.name} hits come in multiples of {rule.hit_quantum}"
        + f", and speculation needs {rule.lookahead} more shared tokens"
        * rule.speculative,
        remedy=f"The nearest that passes: {' or '.join(remedies)}." if remedies else "Ask for a lower bound.",
    )


def _zero_misses(spec: Spec, of: RequestClass, body_len: int, output_len: int) -> Iterator[WlgenError]:
    """Refuse a class whose framing head alone exceeds its bound, or whose body is too short for its task."""
    rule, own = of.rule, of.least_own(output_len)
    cached_len = of.cached_len(body_len, of.offset)
    most = 0 if of.bound.tokens == 0 else of.bound.most(of.prompt_len(body_len))
    if cached_len > most:
        yield error(
            spec.at(*of.path, "cached"),
            expected=f"at most {most} cached tokens",
            found=f"{cached_len}, since every prompt begins with the {of.offset} tokens of the "
            f"chat framing, which fill whole pages of {rule.page_size}",
            remedy=f"Use max_tokens: {cached_len}, or an encoding without that framing ({{name: raw}}).",
        )
    if body_len < own:
        yield error(
            spec.at(*of.path, "body_len"),
            expected=f"at least {own} tokens for the task {of.requests.task.name} "
            f"with output_len {output_len}",
            found=str(body_len),
            remedy=f"Use body_len: {own}" + (" or a lower output_len." if output_len > 1 else "."),
        )


def _seed_misses(spec: Spec, of: RequestClass, shared_len: int, prompt_len: int) -> WlgenError | None:
    """Refuse seeds after which the first row of a rank would fall short."""
    seed, rule = spec.splits.seed, spec.cache
    if seed is None or shared_len <= of.offset:
        return None
    length = of.seed_len(shared_len) if seed.shape == "short" else prompt_len
    if rule.seed_fits(length, shared_len) or seed.per_rank > 1:
        return None
    return error(
        spec.at("splits", "seed"),
        expected=f"a seed that ends within {rule.hit_quantum} tokens behind the shared prefix of "
        f"{shared_len}, since the rule {rule.name} keeps reusable state only where a prompt ends",
        found=f"a seed of {length} tokens, after which the first row falls short",
        remedy="Use "
        + "shape: short, or " * (seed.shape == "full")
        + "per_rank: 2 (two seeds with different suffixes).",
    )
