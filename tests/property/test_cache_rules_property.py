"""Cache rules on random workloads: what must hold whatever is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kit.rules import made_rule

from wlgen.cache.rule import CacheRule, PrefixCache
from wlgen.engines import new_cache

ONE = np.zeros(1, dtype=np.uint32)
PAGES = (1, 2, 4, 16)
# A machine that is busy with other work is no bug of a cache.
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Sent(NamedTuple):
    """One request of a random workload."""

    ids: tuple[int, ...]
    outputs: tuple[int, ...]


tokens = st.integers(0, 2)  # so few that prompts share prefixes
prompts = st.lists(tokens, min_size=1, max_size=80).map(tuple)
workloads = st.lists(
    st.builds(Sent, prompts, st.lists(tokens, min_size=1, max_size=6).map(tuple)), max_size=12
)
engines = st.sampled_from(("sglang", "vllm"))


def array(ids: Sequence[int]) -> np.ndarray:
    return np.array(ids, dtype=np.uint32)


@st.composite
def rules(draw: st.DrawFn, *, hybrid: bool | None = None) -> CacheRule:
    """Draw a rule: dense, or with a window and, where the engine has them, larger quanta and kept points.

    Not one whose window is wider than the quantum in finer blocks, of which cached_len says too much.
    """
    engine = draw(engines)
    page = draw(st.sampled_from(PAGES))
    sparse = draw(st.booleans()) if hybrid is None else hybrid
    quantum = page * draw(st.sampled_from((1, 1, 4))) if sparse else page
    window = draw(st.integers(2, 3 * page + 2) | st.just(0)) if sparse else 0
    if hybrid and quantum == page and not window:
        window = page
    finer = engine == "vllm" and page > 1 and quantum == page and window > 0 and draw(st.booleans())
    speculative = draw(st.booleans())
    if speculative and engine == "vllm" and (finer or quantum != page):
        window = min(window, quantum)
    return made_rule(
        name=engine,
        engine=engine,
        page_size=page,
        hit_quantum=quantum,
        speculative=speculative,
        sliding_window=window,
        window_page=page // 2 if finer else 0,
        retention=quantum * draw(st.integers(0, 3)) if engine == "vllm" and sparse else 0,
    )


def send(cache: PrefixCache, sent: Sent) -> int:
    match = cache.match(array(sent.ids))
    cache.insert(match, array(sent.outputs))
    cache.check()
    return match.cached_len


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the longest common prefix, token by token."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def kept(sent: Sent) -> tuple[int, ...]:
    """Return the tokens that a finished request has KV of."""
    return sent.ids + sent.outputs[:-1]


@steady
@given(rules(hybrid=False), workloads)
def test_a_dense_cache_is_a_brute_force_longest_common_prefix(rule, workload):
    """What is hit is what the arithmetic gives for the longest prefix shared with anything sent before."""
    cache = new_cache(rule)
    before: list[tuple[int, ...]] = []
    for sent in workload:
        shared = max((common(sent.ids, held[: rule_floor(rule, held)]) for held in before), default=0)
        assert send(cache, sent) == rule.cached_len(shared, len(sent.ids))
        before.append(kept(sent))


def rule_floor(rule: CacheRule, held: Sequence[int]) -> int:
    """Return how many tokens of a request are held: whole pages, or the tokens that whole bigrams span."""
    ahead = rule.lookahead if rule.engine == "sglang" else 0
    units = max(0, len(held) - ahead) // rule.page_size * rule.page_size
    return units + ahead if units else 0


@steady
@given(rules(), workloads)
def test_no_hit_is_longer_than_what_is_shared_or_ends_off_the_quantum(rule, workload):
    cache = new_cache(rule, chunk=32)
    before: list[tuple[int, ...]] = []
    for sent in workload:
        shared = max((common(sent.ids, held) for held in before), default=0)
        hit = send(cache, sent)
        assert hit <= rule.cached_len(shared, len(sent.ids)) <= min(shared, len(sent.ids) - 1)
        assert hit % rule.hit_quantum == 0
        before.append(kept(sent))


@steady
@given(rules(), st.integers(1, 5000), st.integers(0, 5000), st.integers(0, 5000))
def test_cached_len_grows_with_what_is_shared(rule, length, one, other):
    """Monotone in shared_len, at most min(shared, prompt - 1), and reached at least_shared_len."""
    low, high = sorted((one, other))
    assert rule.cached_len(low, length) <= rule.cached_len(high, length)
    assert 0 <= rule.cached_len(high, length) <= min(high, length - 1)
    wanted = rule.cached_len(high, length)
    assert rule.least_shared_len(wanted) <= high
    assert rule.cached_len(rule.least_shared_len(wanted), length) == wanted


@steady
@given(rules(), workloads, workloads)
def test_equal_workloads_give_equal_caches(rule, workload, other):
    """Recency is a logical clock: nothing of an earlier run is left, and no wall clock decides."""
    runs = []
    for _ in range(2):
        cache = new_cache(rule, 200, chunk=32)
        runs.append([send(cache, sent) for sent in [*workload, *other]] + [cache.take_evicted()])
    assert runs[0] == runs[1]


@steady
@given(rules(), workloads, st.integers(0, 60))
def test_a_capacity_is_kept_and_only_lowers_hits(rule, workload, spare):
    """Never more held than fits, and no hit above that of a cache without a limit where the rule is dense."""
    capacity = 96 + spare
    free, bounded = new_cache(rule, chunk=32), new_cache(rule, capacity, chunk=32)
    for sent in workload:
        most, hit = send(free, sent), send(bounded, sent)
        assert bounded.held_len <= capacity
        assert rule.hybrid or hit <= most


@steady
@given(rules(), workloads, st.integers(1, 200))
def test_evicting_frees_what_it_says(rule, workload, tokens_wanted):
    cache = new_cache(rule, chunk=32)
    for sent in workload:
        send(cache, sent)
    held = cache.held_len
    freed = cache.evict(tokens_wanted)
    cache.check()
    assert held - cache.held_len == freed == sum(evicted.tokens for evicted in cache.take_evicted())
    assert freed >= min(tokens_wanted, held)


@settings(steady, max_examples=300)
@given(rules(hybrid=True), st.data())
def test_the_first_sibling_of_a_seed_that_fits_hits_in_full(rule, data):
    """Whatever the chunk: the promise that the planner relies on when it chooses a seed's length."""
    shared = data.draw(st.integers(1, 150), "shared")
    longest = shared + 2 * rule.hit_quantum + 4
    seed_len = data.draw(st.sampled_from((rule.least_seed_len(shared), *range(shared + 1, longest))), "seed")
    assume(rule.seed_fits(seed_len, shared))
    chunk = data.draw(st.integers(1, 8), "chunk") * rule.page_size
    cache = new_cache(rule, chunk=chunk)
    prefix = np.arange(shared, dtype=np.uint32)
    for name, length in ((1, seed_len), (2, shared + 60), (3, shared + 70)):
        own = np.full(length - shared, 1000 + name, dtype=np.uint32)
        hit = cache.match(np.concatenate((prefix, own)))
        cache.insert(hit, ONE)
        if name > 1:
            assert hit.cached_len == rule.cached_len(shared, length)


@steady
@given(rules(hybrid=True), st.integers(1, 2000))
def test_there_is_a_seed_for_every_prefix(rule, shared):
    """The least seed fits, and nothing shorter does."""
    least = rule.least_seed_len(shared)
    assert rule.seed_fits(least, shared)
    assert not any(rule.seed_fits(n, shared) for n in range(shared, least))


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@steady
@given(first=prompts, second=prompts)
def test_salts_never_meet(engine, first, second):
    cache = new_cache(made_rule(name=engine, engine=engine, page_size=2, hit_quantum=2))
    for salt, ids in (("a", first), ("b", second)):
        match = cache.match(array(ids), salt=salt)
        assert match.cached_len == 0
        cache.insert(match, ONE)
