"""Each fault, acted by hand on runs of many sets, and whether the audit names it.

Run: pytest -m slow tests/faults/test_matrix.py -s   (prints the table of the README; about two minutes)
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from kit.acted import World, faults

from wlgen.audit.explain import explain

RULES: dict[str, dict[str, Any]] = {
    "dense, page 1": {"engine": "sglang", "page_size": 1},
    "dense, page 16": {"engine": "sglang", "page_size": 16},
    "dense, page 64": {"engine": "sglang", "page_size": 64},
    "sliding window": {"engine": "sglang", "page_size": 16, "sliding_window": 64},
    "DeepSeek-V4 on an NPU": {"rule": "sglang-dsv4-npu"},
    "vLLM with MTP": {"engine": "vllm", "page_size": 64, "hit_quantum": 128, "speculative": True},
}
LEVELS = {"levels": [{"shared_by": "all", "tokens": 128}, {"shared_by": "group", "groups": 3}]}
SESSION = {"turns": 3, "user_len": 100, "assistant_len": 24}
SETS: dict[str, dict[str, Any]] = {
    "one prefix": {},
    "a prefix a rank": {"prefix": {"shared_by": "rank"}},
    "groups": {"prefix": {"shared_by": "group", "groups": 3}},
    "levels": {"prefix": LEVELS},
    "zero": {"cached": {"max_tokens": 14}},
    "chat": {"requests": {"session": SESSION}},
}
ACCEPTED = 0.99  # of the runs


def worlds(rule: dict[str, Any]) -> Iterator[tuple[str, World]]:
    """Yield each set under a rule, on 1, 2 and 8 ranks."""
    body = 4400 if "rule" in rule else 640
    for name, changes in SETS.items():
        for ranks in (1, 2, 8):
            content = {
                "cached": {"min_ratio": 0.4},
                "formal": {"total": 24},
                "body_len": body,
                "output_len": 8,
            }
            yield name, World.of(cache_rule=rule, dp_ranks=ranks, **content | changes)


def named(results: Any) -> tuple[set[str], set[str]]:
    """Return the causes that are named, and those that are named as rivals."""
    rivals = {rival.cause for each in results.causes for rival in each.rivals}
    return {each.cause for each in results.causes}, rivals


@pytest.mark.slow
def test_the_cause_is_named_alone_or_among_its_rivals():
    runs, alone, among, wrong, misses = Counter(), Counter(), Counter(), Counter(), []
    for rule_name, rule in RULES.items():
        for set_name, world in worlds(rule):
            for flight in (1,) if set_name == "chat" else (1, 16):
                for acted, results, twice in faults(world, flight):
                    view = world.scene(results, twice).view()
                    fault = acted if view.deviating else "clean"
                    causes, rivals = named(explain(view))
                    runs[fault] += 1
                    if fault == "clean":
                        wrong[fault] += bool(causes)
                        alone[fault] += not causes
                    else:
                        alone[fault] += fault in causes and not rivals
                        among[fault] += fault in causes | rivals and bool(rivals)
                        if fault not in causes | rivals:
                            misses.append(
                                (rule_name, set_name, world.plan.spec.dp_ranks, flight, fault, causes)
                            )
    lines = ["| fault | runs | named alone | among rivals | missed |", "|---|---|---|---|---|"]
    for fault in sorted(runs):
        missed = runs[fault] - alone[fault] - among[fault]
        lines.append(f"| {fault} | {runs[fault]} | {alone[fault]} | {among[fault]} | {missed} |")
    lines.append(f"| all | {runs.total()} | {alone.total()} | {among.total()} | {len(misses)} |")
    sys.stdout.write("\n".join(["", *lines, *map(str, misses), ""]))
    assert runs.total() >= 3000
    assert wrong["clean"] == 0
    assert len(misses) <= (1 - ACCEPTED) * runs.total()
