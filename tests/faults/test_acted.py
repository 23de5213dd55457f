"""A few runs of the matrix, quick enough for each change: one prefix a rank, and sessions."""

from __future__ import annotations

import pytest
from kit.acted import Acting, World

from wlgen.audit.explain import explain

RULES = {
    "dense": {"engine": "sglang", "page_size": 16},
    "sliding window": {"engine": "sglang", "page_size": 16, "sliding_window": 64},
}
SETS = {
    "a prefix a rank": {"prefix": {"shared_by": "rank"}},
    "chat": {"requests": {"session": {"turns": 3, "user_len": 100, "assistant_len": 24}}},
}
SPEC = {"cached": {"min_ratio": 0.4}, "formal": {"total": 24}, "body_len": 640, "output_len": 8}


@pytest.mark.parametrize("kind", SETS)
@pytest.mark.parametrize("rule", RULES)
def test_rows_on_other_ranks_and_small_caches_are_told(kind, rule):
    world = World.of(cache_rule=RULES[rule], dp_ranks=2, **SPEC | SETS[kind])
    acting = Acting(world, 1)
    for part in (acting.routed, acting.emptied):
        for fault, results, twice in part():
            view = world.scene(results, twice).view()
            if view.deviating:
                causes = explain(view).causes
                assert fault in {named.cause for each in causes for named in (each, *each.rivals)}
