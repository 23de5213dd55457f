"""The caches by brute force report what those of wlgen report, so that one may judge the other."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from kit.naive import naive
from kit.rules import made_rule

from wlgen.engines import new_cache

RULES: list[dict[str, Any]] = [
    {"engine": "sglang", "page_size": 1},
    {"engine": "sglang", "page_size": 16},
    {"engine": "sglang", "page_size": 64, "speculative": True},
    {"engine": "sglang", "page_size": 16, "sliding_window": 64},
    {"engine": "sglang", "page_size": 16, "hit_quantum": 64, "sliding_window": 32},
    {"engine": "sglang", "page_size": 16, "hit_quantum": 128},
    {"engine": "vllm", "page_size": 16},
    {"engine": "vllm", "page_size": 64, "speculative": True},
    {"engine": "vllm", "page_size": 64, "sliding_window": 128},
    {"engine": "vllm", "page_size": 64, "hit_quantum": 128, "speculative": True},
    {"engine": "vllm", "page_size": 256, "window_page": 64, "sliding_window": 128, "speculative": True},
]


@pytest.mark.parametrize("numbers", RULES, ids=lambda numbers: "-".join(map(str, numbers.values())))
def test_sixty_random_prompts_find_the_same(numbers):
    rule, chance = made_rule(name="", **numbers), random.Random(5)  # noqa: S311 (a trial, no secret)
    for _ in range(12):
        real, brute = new_cache(rule), naive(rule)
        sent: list[Any] = []
        for number in range(60):
            ids = np.arange(chance.randrange(20, 1500), dtype=np.uint32) + (number + 1) * 10_000
            if sent and chance.random() < 0.9:
                other = chance.choice(sent)
                shared = min(len(other), chance.choice((len(other), 16 * chance.randrange(60), 250, 700)))
                ids = np.concatenate((other[:shared], ids[: chance.choice((1, 5, 400))]))
            sent.append(ids)
            match, found = real.match(ids), brute.match(ids)
            assert (match.cached_len, match.held_len) == (found.hit, found.held)
            outputs = chance.choice((1, 8))
            real.insert(match, np.arange(outputs, dtype=np.uint32) + (1 << 31) + number * 100)
            brute.insert(found, outputs)
