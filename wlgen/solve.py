"""From a spec to its plan: the least shared prefix that keeps the bound, or the reason why none does."""

from __future__ import annotations

from wlgen.cache_rules import CacheRule
from wlgen.encodings import Encoding, Framing
from wlgen.errors import WlgenError, error
from wlgen.pages import floor_to, percent
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
    prompt_len = requests.body_len + framing.tokens
    shared_len = _shared_len(spec, bound, framing, prompt_len)
    cached_len = spec.cache.cached_len(shared_len, prompt_len)
    if cached_len > bound.most(prompt_len):
        raise _hits_the_head(spec, bound, framing, cached_len)
    unique = prompt_len - shared_len - len(framing.ids[-1])
    if cached_len < bound.least(prompt_len) or (unique < least_own and bound.min_ratio):
        raise _out_of_reach(spec, bound, framing, least_own)
    if unique < least_own:
        raise _no_room(spec, unique, least_own)
    seed_len = _seed_len(spec, framing, shared_len, prompt_len)
    return Plan(
        spec=spec,
        framing=framing,
        bound=bound,
        shared_len=shared_len,
        cached_len=cached_len,
        seed_len=seed_len,
    )


def in_pages(tokens: int, rule: CacheRule) -> str:
    """Say a count of tokens in pages and quanta: '118784 tokens = 928 pages of 128 = 58 x 2048'."""
    pages = f"{tokens / rule.page_size:g} pages of {rule.page_size}"
    quanta = (
        f" = {tokens / rule.hit_quantum:g} x {rule.hit_quantum}" if rule.hit_quantum != rule.page_size else ""
    )
    return f"{tokens} tokens = {pages}{quanta}"


def _shared_len(spec: Spec, bound: Bound, framing: Framing, prompt_len: int) -> int:
    """Return the least shared_len that may keep the bound, framing head included."""
    rule, head = spec.cache, len(framing.ids[0])
    least = bound.least(prompt_len)
    if least == 0:
        return head
    if bound.tokens is not None:
        _refuse_inexact(spec, bound, prompt_len)
    return max(rule.least_shared_len(least), head + 1)


def _refuse_inexact(spec: Spec, bound: Bound, prompt_len: int) -> None:
    """Raise where exactly bound.tokens cannot be cached, or are fewer than the ratio asks for."""
    rule, tokens = spec.cache, bound.tokens or 0
    least = Bound(min_ratio=bound.min_ratio).least(prompt_len)
    passes = rule.cached_len(rule.least_shared_len(max(least, tokens)), prompt_len)
    if tokens >= least and passes == tokens:
        return
    if tokens < least:
        expected = f"at least {_ratio(bound)} of {prompt_len} prompt tokens = {least} cached for each request"
        found = f"tokens: {in_pages(tokens, rule)} = {percent(tokens, prompt_len)}"
    else:
        expected = f"a multiple of the hit quantum {rule.hit_quantum} below prompt_len {prompt_len}"
        found = f"tokens: {in_pages(tokens, rule)}"
    near = passes if passes >= least else rule.most_cached(prompt_len)
    remedy = (
        f"The nearest that passes is tokens: {near} ({in_pages(near, rule)} = {percent(near, prompt_len)})."
    )
    raise error(spec.at("requests", "cached"), expected=expected, found=found, remedy=remedy)


def _ratio(bound: Bound) -> str:
    return f"{float(bound.min_ratio or 0) * 100:g} %"


def _out_of_reach(spec: Spec, bound: Bound, framing: Framing, own: int) -> WlgenError:
    """Explain a bound that no prefix can reach, with the best that one can and the nearest that works."""
    rule, requests = spec.cache, spec.requests
    behind = own + len(framing.ids[-1])
    prompt_len = requests.body_len + framing.tokens

    def best(length: int) -> int:
        return rule.cached_len(max(0, length - behind), length)

    reached = best(prompt_len)
    longer = (floor_to(prompt_len, rule.hit_quantum) + k * rule.hit_quantum + behind for k in range(256))
    works = next((n for n in longer if n > prompt_len and best(n) >= bound.least(n)), None)
    remedies = [f"min_ratio: {reached * 10000 // prompt_len / 10000}"] if reached else []
    remedies += [f"body_len: {works - framing.tokens}"] if works else []
    return error(
        spec.at("requests", "cached"),
        expected=f"{bound.least(prompt_len)} of {prompt_len} prompt tokens cached for each request, "
        f"and {own} tokens of its own (the task {requests.task.name} with output_len {requests.output_len})",
        found=f"at best {in_pages(reached, rule)} = {percent(reached, prompt_len)}: under the rule "
        f"{rule.name} hits come in multiples of {rule.hit_quantum}" + ", less one" * rule.speculative,
        remedy=f"The nearest that passes: {' or '.join(remedies)}." if remedies else "Use a longer body_len.",
    )


def _hits_the_head(spec: Spec, bound: Bound, framing: Framing, cached_len: int) -> WlgenError:
    return error(
        spec.at("requests", "cached", "max_tokens"),
        expected=f"at most {bound.max_tokens} cached tokens",
        found=f"{cached_len}, since every prompt begins with the {len(framing.ids[0])} tokens of the "
        f"chat framing, which fill whole pages of {spec.cache.page_size}",
        remedy=f"Use max_tokens: {cached_len}, or an encoding without that framing ({{name: raw}}).",
    )


def _no_room(spec: Spec, unique: int, own: int) -> WlgenError:
    requests = spec.requests
    return error(
        spec.at("requests"),
        expected=f"a unique part of at least {own} tokens for the task {requests.task.name} "
        f"with output_len {requests.output_len}",
        found=f"{max(0, unique)} tokens behind the shared prefix",
        remedy=f"Lower output_len by {own - unique}, raise body_len, or use the task words.",
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
        remedy="Use shape: short, or per_rank: 2 (two full seeds with different suffixes).",
    )
