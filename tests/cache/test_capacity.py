"""Under a capacity the caches evict as a real server does, request by request."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from kit.rules import made_rule

from wlgen.engines import new_cache

SEEN = Path(__file__).parent.parent / "samples" / "sglang" / "capacity.json"
PAGE, CHUNK, CAPACITY = 16, 512, 24_000


def sent_requests(count: int = 100, longest: int = 8000, seed: int = 7) -> list[tuple[int, list[int], int]]:
    """Return (rank, ids, output_len) of what the real server was sent: new prompts, siblings and repeats."""
    draw = random.Random(seed)  # noqa: S311 (the same requests again, no secret)

    def tokens(n: int) -> list[int]:
        return [draw.randrange(1000, 120000) for _ in range(n)]

    found = []
    for rank in (0, 1):
        prefixes, past = [tokens(draw.randrange(200, 1800)) for _ in range(6)], []
        for _ in range(count):
            kind = draw.random()
            if past and kind < 0.45:
                ids = list(draw.choice(past[-45:]))
                ids += tokens(draw.randrange(0, 400)) if draw.random() < 0.5 else []
            elif kind < 0.8:
                shared = draw.choices(prefixes, [6, 5, 4, 3, 2, 1])[0]
                ids = shared + tokens(draw.randrange(50, longest - 1800))
            else:
                ids = tokens(draw.randrange(300, longest))
            past.append(ids[:longest])
            found.append((rank, past[-1], draw.randrange(1, 6)))
    return found


def hits(chunk: int) -> list[list[int]]:
    rule = made_rule(name="x", engine="sglang", page_size=PAGE)
    caches = [new_cache(rule, CAPACITY, chunk=chunk) for _ in range(2)]
    found: list[list[int]] = [[], []]
    for number, (rank, ids, output_len) in enumerate(sent_requests()):
        match = caches[rank].match(np.array(ids, dtype=np.uint32))
        caches[rank].insert(match, np.arange(output_len, dtype=np.uint32) + (1 << 31) + 8 * number)
        caches[rank].check()
        assert caches[rank].held_len <= CAPACITY
        found[rank].append(match.cached_len)
    return found


def test_each_of_200_requests_hits_what_a_real_sglang_reported():
    assert hits(CHUNK) == json.loads(SEEN.read_text())["cached_tokens"]


def test_a_prompt_that_enters_whole_would_be_lost_whole():
    """With one leaf a prompt the same requests hit less: 3 of the 200 at least are not the server's."""
    seen = json.loads(SEEN.read_text())["cached_tokens"]
    whole = hits(chunk=8192)
    differ = [n for rank in (0, 1) for n in range(100) if whole[rank][n] != seen[rank][n]]
    assert len(differ) >= 3


@pytest.mark.parametrize("window", [0, 64])
@pytest.mark.parametrize("quantum", [16, 64])
def test_an_eviction_takes_the_end_of_a_long_prompt_and_leaves_its_first_chunks(window, quantum):
    """Every rule of SGLang: a prompt of 256 tokens in chunks of 64, pushed out in part by another of 64."""
    rule = made_rule(name="x", engine="sglang", page_size=16, hit_quantum=quantum, sliding_window=window)
    cache = new_cache(rule, 320, chunk=64)
    long, other = np.arange(257, dtype=np.uint32), np.arange(5000, 5064, dtype=np.uint32)
    for ids in (long, other):
        cache.insert(cache.match(ids), ids[:1])
        cache.check()
    left = 256 - sum(evicted.tokens for evicted in cache.take_evicted())
    assert 0 < left < 256
    match = cache.match(long)
    cache.insert(match, long[:1])
    assert match.held_len == left
