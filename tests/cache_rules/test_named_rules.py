"""The named rules: what a spec may set, what the engine forces, and the arithmetic that a plan uses."""

from __future__ import annotations

import pytest
from kit.rules import made_rule
from pydantic import BaseModel, ValidationError

from wlgen import cache_rules, registry
from wlgen.cache.rule import CacheRule
from wlgen.errors import WlgenError

NAMED = (
    "sglang",
    "sglang-dsv4-cuda",
    "sglang-dsv4-npu",
    "vllm",
    "vllm-ascend-dsv4",
    "vllm-dsv4",
)


def rule_of(name: str, **options: object) -> CacheRule:
    module = registry.load(cache_rules, name, place="spec")
    made: CacheRule = module.rule(module.Options(**options), place="spec")
    return made


def dense(page_size: int, engine: str = "sglang", **others: object) -> CacheRule:
    return made_rule(name=engine, engine=engine, page_size=page_size, hit_quantum=page_size, **others)  # type: ignore[arg-type]


def test_the_named_rules_are_these():
    assert registry.names(cache_rules) == sorted(NAMED)


@pytest.mark.parametrize("name", NAMED)
def test_every_rule_keeps_the_folders_contract(name):
    """Options is a strict model whose defaults make the rule, which carries the rule's own name."""
    module = registry.load(cache_rules, name, place="spec")
    assert issubclass(module.Options, BaseModel)
    rule = rule_of(name)
    assert rule.name == name
    assert rule.hit_quantum % rule.page_size == 0
    assert module.__doc__
    with pytest.raises(ValidationError):
        module.Options(page_size="128")
    with pytest.raises(ValidationError):
        module.Options(paeg_size=128)


@pytest.mark.parametrize(
    ("name", "options", "page_size", "hit_quantum"),
    [
        ("sglang", {}, 1, 1),
        ("sglang", {"page_size": 64}, 64, 64),
        ("sglang-dsv4-npu", {}, 128, 2048),
        ("sglang-dsv4-npu", {"page_size": 128}, 128, 2048),
        ("sglang-dsv4-cuda", {}, 256, 256),
        ("vllm", {}, 16, 16),
        ("vllm", {"page_size": 16, "hit_quantum": 64}, 16, 64),
        ("vllm-dsv4", {}, 256, 256),
        ("vllm-ascend-dsv4", {}, 128, 16384),
        ("vllm-ascend-dsv4", {"page_size": 32}, 32, 4096),
    ],
)
def test_sizes_are_the_engines(name, options, page_size, hit_quantum):
    rule = rule_of(name, **options)
    assert (rule.page_size, rule.hit_quantum) == (page_size, hit_quantum)


@pytest.mark.parametrize(
    ("name", "page_size", "reason"),
    [
        ("sglang-dsv4-npu", 64, "128: SGLang forces it for DeepSeek-V4 on an NPU"),
        ("sglang-dsv4-cuda", 128, "256: SGLang forces it for DeepSeek-V4 on CUDA"),
        ("vllm-dsv4", 16, "256: vLLM forces --block-size for DeepSeek-V4"),
        ("vllm-ascend-dsv4", 64, "128 or 32"),
    ],
)
def test_a_size_that_the_engine_forces_is_refused_with_the_reason(name, page_size, reason):
    with pytest.raises(ValidationError, match=reason):
        rule_of(name, page_size=page_size)


@pytest.mark.parametrize("options", [{"page_size": 16, "hit_quantum": 40}, {"retention": 24}])
def test_numbers_of_a_hybrid_that_are_no_multiples_are_refused(options):
    with pytest.raises(WlgenError, match=r"spec: expected .* multiple of .* The next one is"):
        rule_of("vllm", **options)


@pytest.mark.parametrize("name", ["sglang", "sglang-dsv4-npu", "sglang-dsv4-cuda", "vllm", "vllm-dsv4"])
def test_speculation_is_off_unless_asked_for(name):
    assert not rule_of(name).speculative
    assert rule_of(name, speculative=True).speculative


@pytest.mark.parametrize(
    ("length", "shared", "cached"),
    [
        (1024, 1024, {1: 1023, 64: 960, 128: 896, 256: 768}),
        (1000, 700, {1: 700, 64: 640, 128: 640, 256: 512}),
        (16388, 16388, {1: 16387, 64: 16384, 128: 16384, 256: 16384}),
        (131076, 118784, {1: 118784, 64: 118784, 128: 118784, 256: 118784}),
    ],
)
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_dense_cached_len_at_each_page_size(engine, length, shared, cached):
    """Figures read off both engines' own classes."""
    assert {p: dense(p, engine).cached_len(shared, length) for p in cached} == cached


def test_the_last_token_is_always_computed():
    """An identical prompt of exactly k pages hits k - 1."""
    assert dense(128).cached_len(1280, 1280) == 1152


@pytest.mark.parametrize(("shared", "cached"), [(128, 0), (129, 128), (1281, 1280), (1280, 1152)])
def test_sglang_bigrams_need_one_token_more(shared, cached):
    assert dense(128, speculative=True).cached_len(shared, 5000) == cached


@pytest.mark.parametrize(("shared", "cached"), [(255, 0), (256, 128), (1280, 1152)])
def test_vllm_speculation_gives_up_a_block(shared, cached):
    assert dense(128, "vllm", speculative=True).cached_len(shared, 5000) == cached


def test_deepseek_v4_on_an_npu_hits_multiples_of_2048():
    rule = rule_of("sglang-dsv4-npu")
    assert rule.cached_len(14848, 16388) == 14336
    assert rule.cached_len(1024, 1024) == 0
    assert rule.least_shared_len(117969) == 118784


def test_vllm_deepseek_v4_with_mtp_needs_a_block_of_the_window_only():
    """The draft's group has blocks of 64: a hit of 256 needs 320 shared tokens, not 512."""
    rule = rule_of("vllm-dsv4", speculative=True)
    assert [rule.cached_len(shared, 5000) for shared in (256, 319, 320, 575, 576)] == [0, 0, 256, 256, 512]
    assert rule.cached_len(320, 320) == 256  # the dropped block may hold the last token


def test_ascend_quanta_and_what_mtp_adds():
    assert rule_of("vllm-ascend-dsv4").most_cached(16384) == 0
    assert rule_of("vllm-ascend-dsv4", page_size=32).most_cached(16384) == 12288  # 75 %
    assert rule_of("vllm-ascend-dsv4").most_cached(131072) == 114688  # 87.5 %
    assert rule_of("vllm-ascend-dsv4", page_size=32, speculative=True).least_shared_len(117965) == 122880


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("speculative", [False, True])
def test_least_shared_len_is_least(name, speculative):
    """It reaches the cached tokens, and one token less does not."""
    rule = rule_of(name, speculative=speculative)
    for wanted in (1, rule.hit_quantum, rule.hit_quantum + 1, 3 * rule.hit_quantum):
        least = rule.least_shared_len(wanted)
        assert rule.cached_len(least, 2**20) >= wanted
        assert rule.cached_len(least - 1, 2**20) < wanted
    assert rule.least_shared_len(0) == 0


def test_a_dense_rule_takes_any_seed_that_is_longer_than_the_prefix():
    rule = dense(128)
    assert [rule.seed_fits(n, 1000) for n in (999, 1000, 1001, 16388)] == [False, False, True, True]
    assert rule.least_seed_len(1000) == 1001
    assert not rule.seed_reason


def test_a_hybrid_rule_takes_seeds_that_end_within_the_prefixs_last_quantum():
    rule = rule_of("sglang-dsv4-npu")
    assert [n for n in range(118780, 131076) if rule.seed_fits(n, 118784)][::2047] == [118785, 120832]
    assert rule.least_seed_len(118784) == 118785
    assert "sglang-dsv4-npu" in rule.seed_reason
    assert "2048" in rule.seed_reason


def test_a_speculative_vllm_hybrid_needs_a_seed_one_quantum_longer():
    """It keeps state one quantum below the prompt's end, so a prefix of 321 needs a seed of 512 tokens."""
    rule = rule_of("vllm-dsv4", speculative=True)
    assert rule.least_seed_len(321) == 512
    assert not rule.seed_fits(322, 321)
    assert "one quantum before" in rule.seed_reason


def test_kept_points_make_any_seed_fit_where_the_hit_is_one():
    rule = rule_of("vllm-dsv4", retention=512)
    assert rule.seed_fits(5000, 1024)
    assert not rule.seed_fits(5000, 1280)


def test_a_rule_is_plain_values():
    """The manifest keeps the numbers alone and makes the rule again from them."""
    rule = rule_of("vllm-dsv4", speculative=True)
    assert list(rule.numbers) == [
        "name",
        "engine",
        "page_size",
        "hit_quantum",
        "speculative",
        "sliding_window",
        "window_page",
        "retention",
    ]
    assert made_rule(**rule.numbers) == rule
