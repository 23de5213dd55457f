"""Replayed caches: the engines' worked examples, kept points, salts, eviction, integrity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kit.rules import made_rule

from wlgen.cache.rule import Evicted, PrefixCache
from wlgen.engines import new_cache
from wlgen.streams import words

ONE = np.zeros(1, dtype=np.uint32)


def tokens(name: str, count: int) -> np.ndarray:
    """Return `count` tokens of a stream; other names share nothing."""
    return (words((name,), count) % np.uint64(1 << 30)).astype(np.uint32)


def cache_of(
    page_size: int, engine: str = "sglang", *, capacity: int | None = None, chunk: int = 8192, **others: Any
) -> PrefixCache:
    quantum = others.pop("hit_quantum", page_size)
    rule = made_rule(name=engine, engine=engine, page_size=page_size, hit_quantum=quantum, **others)
    return new_cache(rule, capacity, chunk=chunk)


def send(cache: PrefixCache, ids: np.ndarray, outputs: np.ndarray = ONE, *, salt: str = "") -> int:
    match = cache.match(ids, salt=salt)
    cache.insert(match, outputs)
    cache.check()
    return match.cached_len


ENGINES = pytest.mark.parametrize("engine", ["sglang", "vllm"])


@ENGINES
@pytest.mark.parametrize(("page_size", "cached"), [(1, 1023), (64, 960), (128, 896), (256, 768)])
def test_a_repeated_prompt(engine, page_size, cached):
    cache = cache_of(page_size, engine)
    assert [send(cache, tokens("a", 1024)) for _ in range(3)] == [0, cached, cached]


@ENGINES
@pytest.mark.parametrize(("page_size", "cached"), [(1, 700), (64, 640), (128, 640), (256, 512)])
def test_siblings_hit_the_whole_pages_that_they_share(engine, page_size, cached):
    cache = cache_of(page_size, engine)
    siblings = [np.concatenate((tokens("p", 700), tokens(name, 300))) for name in "abc"]
    assert [send(cache, ids) for ids in siblings] == [0, cached, cached]


@ENGINES
def test_outputs_but_the_last_can_be_hit(engine):
    """Prompt + outputs - 1 tokens have KV: 100 + 29 - 1 = 128 make a page, 100 + 28 - 1 do not."""
    for output_len, cached in ((29, 128), (28, 0)):
        cache = cache_of(128, engine)
        prompt, outputs = tokens("p", 100), tokens("o", output_len)
        send(cache, prompt, outputs)
        assert send(cache, np.concatenate((prompt, outputs, tokens("next", 50)))) == cached


@ENGINES
def test_a_salt_isolates_the_whole_prefix(engine):
    cache = cache_of(16, engine)
    prompt = tokens("p", 100)
    found = [send(cache, prompt, salt=salt) for salt in ("", "x", "x", "")]
    assert found == [0, 0, 96, 96]


def test_bigrams_of_a_shared_prefix():
    """To hit k pages, k * P + 1 tokens are needed."""
    cache = cache_of(128, speculative=True)
    send(cache, np.concatenate((tokens("p", 1281), tokens("a", 500))))
    assert send(cache, np.concatenate((tokens("p", 1281), tokens("b", 500)))) == 1280
    assert send(cache, np.concatenate((tokens("p", 1280), tokens("c", 500)))) == 1152


def test_vllm_speculation_drops_the_last_block():
    cache = cache_of(128, "vllm", speculative=True)
    send(cache, tokens("p", 1000))
    assert send(cache, tokens("p", 1000)) == 768


@pytest.mark.parametrize(
    ("shared", "length", "found"),
    [(118784, 131076, [0, 114688, 118784, 118784]), (14848, 16388, [0, 8192, 14848, 14848])],
)
def test_sglang_with_a_window_after_a_full_seed(shared, length, found):
    """The first sibling falls back to a chunk's end; it makes the junction, and later ones hit in full."""
    cache = cache_of(128, sliding_window=128)
    rows = [np.concatenate((tokens("p", shared), tokens(name, length - shared))) for name in "abcd"]
    assert [send(cache, ids, tokens("o", 1024)) for ids in rows] == found


def test_vllm_with_a_window_after_a_full_seed():
    """0, then 0 for the first sibling, then full."""
    cache = cache_of(128, "vllm", sliding_window=128)
    rows = [np.concatenate((tokens("p", 14848), tokens(name, 1540))) for name in "abcd"]
    assert [send(cache, ids, tokens("o", 100)) for ids in rows] == [0, 0, 14848, 14848]


@ENGINES
@pytest.mark.parametrize("more", [1, 3, 100])
def test_a_seed_that_ends_just_behind_the_prefix_gives_the_full_hit_at_once(engine, more):
    cache = cache_of(128, engine, sliding_window=128)
    send(cache, np.concatenate((tokens("p", 14848), tokens("seed", more))))
    assert send(cache, np.concatenate((tokens("p", 14848), tokens("a", 1540)))) == 14848


def test_a_vllm_seed_of_exactly_the_prefix_loses_a_quantum():
    cache = cache_of(128, "vllm", sliding_window=128)
    send(cache, tokens("p", 14848))
    assert send(cache, np.concatenate((tokens("p", 14848), tokens("a", 1540)))) == 14720


@ENGINES
def test_two_full_seeds_with_different_ends_work_too(engine):
    cache = cache_of(128, engine, sliding_window=128)
    rows = [np.concatenate((tokens("p", 14848), tokens(name, 1540))) for name in "abc"]
    assert [send(cache, ids, tokens("o", 2)) for ids in rows][2] == 14848


def test_the_npu_hits_and_inserts_multiples_of_2048():
    cache = cache_of(128, hit_quantum=2048, sliding_window=128)
    assert send(cache, tokens("short", 1024)) == 0
    assert send(cache, tokens("short", 1024)) == 0
    assert cache.held_len == 0
    send(cache, np.concatenate((tokens("p", 14848), tokens("seed", 1))))
    assert cache.held_len == 14336
    assert send(cache, np.concatenate((tokens("p", 14848), tokens("a", 1540)))) == 14336


def test_sglang_without_a_window_can_resume_at_every_quantum():
    cache = cache_of(128, hit_quantum=2048)
    send(cache, np.concatenate((tokens("p", 14848), tokens("a", 6000))), tokens("o", 500))
    assert send(cache, np.concatenate((tokens("p", 14848), tokens("b", 6000)))) == 14336


def test_a_prefix_of_whole_blocks_never_hits_after_a_long_seed_with_vllms_mtp():
    """State is kept at the junction 2048, but MTP needs 64 tokens behind it, which no sibling shares."""
    cache = cache_of(256, "vllm", sliding_window=128, window_page=64, speculative=True)
    rows = [np.concatenate((tokens("p", 2048), tokens(name, 3000))) for name in "abcde"]
    assert [send(cache, ids) for ids in rows] == [0] * 5
    assert send(cache, np.concatenate((tokens("p", 2048), tokens("seed", 1)))) == 0
    assert send(cache, np.concatenate((tokens("p", 2048), tokens("f", 3000)))) == 1792


@pytest.mark.parametrize(("retention", "found"), [(0, 0), (1024, 2048), (256, 2816)])
def test_retention_keeps_points_between_prompt_ends(retention, found):
    cache = cache_of(256, "vllm", sliding_window=128, retention=retention)
    send(cache, np.concatenate((tokens("p", 2900), tokens("seed", 3000))))
    assert send(cache, np.concatenate((tokens("p", 2900), tokens("a", 3000)))) == found


@ENGINES
def test_the_least_recently_used_goes_first(engine):
    cache = cache_of(16, engine, capacity=208)
    for name in (
        "a",
        "b",
        "a",
        "c",
    ):  # 64 tokens each; the third still fits, with the page more that SGLang asks for
        send(cache, tokens(name, 64))
    send(cache, tokens("d", 64))  # pushes out b, which nobody used since
    assert {evicted.owner for evicted in cache.take_evicted()} == {1}
    assert send(cache, tokens("a", 64)) == 48
    assert cache.held_len <= 208


def test_sglang_drops_whole_leaves_and_vllm_single_blocks():
    """To make room for one more page, SGLang drops a whole prompt, vLLM the block at its end."""
    for engine, kept in (("sglang", 0), ("vllm", 48)):
        cache = cache_of(16, engine, capacity=64 + 16 + 16)
        send(cache, tokens("a", 64))
        send(cache, tokens("b", 32))
        send(cache, tokens("c", 16))
        assert send(cache, tokens("a", 80)) == kept


@ENGINES
def test_a_running_request_keeps_its_hit(engine):
    """What a request matched is pinned until it ends, however old it is."""
    cache = cache_of(16, engine, capacity=160)
    send(cache, tokens("a", 65))
    running = cache.match(tokens("a", 65))
    send(cache, tokens("b", 64))
    assert cache.evict(1000) == 64
    cache.insert(running, ONE)
    assert send(cache, tokens("a", 65)) == 64


@ENGINES
def test_requests_that_overlap_leave_a_whole_cache(engine):
    """A match stays good while other requests split the nodes it stands on."""
    for window in (0, 40):
        cache = cache_of(16, engine, sliding_window=window)
        send(cache, tokens("p", 300))
        long = cache.match(np.concatenate((tokens("p", 250), tokens("a", 100))))
        short = cache.match(np.concatenate((tokens("p", 120), tokens("b", 100))))
        cache.insert(short, tokens("o", 30))
        cache.insert(long, tokens("o", 30))
        cache.check()
        again = np.concatenate((tokens("p", 120), tokens("b", 100)))
        assert send(cache, again) == 208


def test_the_working_set_counts_distinct_pages_once():
    cache = cache_of(128)
    for name in "abc":
        send(cache, np.concatenate((tokens("p", 1280), tokens(name, 640))))
    assert cache.held_len == 1280 + 3 * 640


def test_who_was_evicted_is_told_once():
    cache = cache_of(16, capacity=64)
    send(cache, tokens("a", 64))
    send(cache, tokens("b", 64))
    assert cache.take_evicted() == [Evicted(0, 64)]
    assert cache.take_evicted() == []


@pytest.mark.parametrize("harm", ["unlink", "shorten", "count", "recent", "pins"])
def test_the_integrity_check_finds_harm(harm):
    cache = cache_of(16, "vllm")
    send(cache, np.concatenate((tokens("p", 64), tokens("a", 64))))
    send(cache, np.concatenate((tokens("p", 64), tokens("b", 64))))
    tree = cache._tree
    leaf = next(node for node in tree.nodes() if not node.children)
    if harm == "unlink":
        leaf.parent = tree.root("elsewhere")
    elif harm == "shorten":
        leaf.key = leaf.key[:-4]
    elif harm == "count":
        tree.held += 64
    elif harm == "recent":
        leaf.used = tree.clock + 1
    else:
        leaf.pins = -1
    with pytest.raises(AssertionError):
        cache.check()
