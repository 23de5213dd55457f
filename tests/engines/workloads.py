"""Random workloads for a cache, made to hit its corners, and the hits that wlgen gives for them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from wlgen.cache.rule import CacheRule, PrefixCache
from wlgen.engines import new_cache

VOCABULARY = 50


def requests(seed: int, count: int, *, page_size: int, longest: int, ranks: int = 2) -> list[dict[str, Any]]:
    """Return requests: new prompts, prefixes that end mid-page, repeats, answers continued, salts."""
    rng = random.Random(seed)  # noqa: S311 (not for secrets)

    def tokens(most: int) -> list[int]:
        return [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, most))]

    prefixes: list[list[int]] = []
    made: list[dict[str, Any]] = []
    for _ in range(count):
        kind = rng.random()
        if made and kind < 0.15:
            ids = list(rng.choice(made)["ids"])
        elif made and kind < 0.3:
            before = rng.choice(made)
            ids = before["ids"] + before["outputs"] + tokens(2 * page_size)
        elif prefixes and kind < 0.9:
            prefix = rng.choice(prefixes)
            ids = prefix[: rng.choice([len(prefix), rng.randint(1, len(prefix))])] + tokens(longest // 2)
        else:
            ids = tokens(longest)
            prefixes.append(ids)
        ids = ids[:longest]
        if rng.random() < 0.3:  # an end on a page is where off-by-ones live
            ids = ids[: max(1, len(ids) // page_size * page_size)]
        outputs = tokens(rng.choice([1, 1, 1, 2, 40]))
        salt = rng.choice(["", "", "", "a"])
        made.append({"rank": rng.randrange(ranks), "ids": ids, "outputs": outputs, "salt": salt})
    return made


def hits(
    rule: CacheRule, sent: Sequence[dict[str, Any]], *, chunk: int = 8192, capacity: int | None = None
) -> list[int]:
    """Return what wlgen says is cached for each request, with the caches' integrity checked after each."""
    ranks: dict[int, PrefixCache] = {}
    found = []
    for request in sent:
        cache = ranks.setdefault(request["rank"], new_cache(rule, capacity, chunk=chunk))
        match = cache.match(np.array(request["ids"], dtype=np.uint32), salt=request["salt"])
        cache.insert(match, np.array(request["outputs"], dtype=np.uint32))
        cache.check()
        found.append(match.cached_len)
    return found
