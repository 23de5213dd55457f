"""The rules named are those that explain every figure, and no other."""

from __future__ import annotations

import pytest
from kit.rules import made_rule

from wlgen.cache.rule import CacheRule
from wlgen.simulate.fitting import fitting_rules
from wlgen.simulate.infer import Observation

LENGTHS = [(600, 600), (487, 487), (375, 375), (187, 187), (513, 513), (514, 514), (777, 515), (641, 641)]


def observed(rule: CacheRule) -> list[Observation]:
    return [Observation(n, s, rule.cached_len(s, n)) for n, s in LENGTHS]


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("quantum", [1, 16, 64, 128])
@pytest.mark.parametrize("speculative", [False, True])
def test_the_rule_behind_the_figures_is_found(engine, quantum, speculative):
    rule = made_rule(
        name=engine, engine=engine, page_size=quantum, hit_quantum=quantum, speculative=speculative
    )
    found = fitting_rules(observed(rule), engine, None)[0]
    assert observed(found) == observed(rule)
    assert (found.hit_quantum, found.speculative) == (quantum, speculative)


def test_the_servers_own_page_size_is_kept_apart_from_the_quantum():
    rule = made_rule(name="vllm", engine="vllm", page_size=16, hit_quantum=64)
    found = fitting_rules(observed(rule), "vllm", 16)
    assert (found[0].page_size, found[0].hit_quantum) == (16, 64)


def test_a_named_rule_comes_first():
    seen = [Observation(4097, 4097, 4096), Observation(4096, 4096, 2048), Observation(1950, 1950, 0)]
    assert fitting_rules(seen, "sglang", 128)[0].name == "sglang-dsv4-npu"


def test_figures_that_contradict_each_other_have_no_rule():
    seen = [Observation(600, 600, 512), Observation(600, 600, 384)]
    assert fitting_rules(seen, "vllm", None) == []
