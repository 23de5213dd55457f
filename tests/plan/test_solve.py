"""The least prefix that keeps a bound, and refusals that name what would work."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from kit.sets import content_of, framed

from wlgen.errors import WlgenError
from wlgen.plan.refusals import in_pages
from wlgen.plan.rows import RowPlan
from wlgen.plan.solve import solve
from wlgen.spec import file as spec_file
from wlgen.spec.model import Requests, Spec
from wlgen.workload.bounds import Bound

COPY_1024 = 1090  # about what the task copy needs beside its passage of 1024 tokens


def plan_of(*, head=2, tail=2, own=2, split="formal", **changes: Any) -> RowPlan:
    """Return the first row of a split, which says what the plan is."""
    plan = solve(spec_file.from_content(content_of(**changes), "spec"), framed(head, tail), lambda *_: own)
    return next(plan.rows(split, 0))


def refusal(**changes: Any) -> str:
    with pytest.raises(WlgenError) as failure:
        plan_of(**changes)
    (problem,) = failure.value.problems
    return str(problem)


def sglang(page_size, *, hit_quantum=None, speculative=False):
    numbers = {"page_size": page_size, "hit_quantum": hit_quantum or page_size, "speculative": speculative}
    return {"engine": "sglang", **numbers}


WARM = {"body_len": 131072, "output_len": 1024, "own": COPY_1024}


def test_the_two_sets_of_the_design():
    npu = {"rule": "sglang-dsv4-npu"}
    warm = plan_of(**WARM, cache_rule=npu, cached={"min_ratio": 0.9})
    assert (warm.prompt_len, warm.shared_len, warm.cached_len) == (131076, 118784, 118784)
    zero = plan_of(body_len=16384, output_len=1024, own=COPY_1024, cache_rule=npu, cached={"max_tokens": 0})
    assert (zero.prompt_len, zero.shared_len, zero.cached_len) == (16388, 2, 0)


def test_ninety_percent_of_the_body_is_refused_with_its_true_share_and_the_nearest_that_passes():
    message = refusal(**WARM, cache_rule=sglang(128), cached={"tokens": 117888, "min_ratio": 0.9})
    assert "117888 tokens = 921 pages of 128 = 89.9387 %" in message
    assert "at least 90 % of 131076 prompt tokens = 117969 cached for each request" in message
    assert (
        "The nearest that passes is tokens: 118016 (118016 tokens = 922 pages of 128 = 90.0363 %)" in message
    )


@pytest.mark.parametrize(
    ("rule", "shared_len", "cached_len"),
    [
        (sglang(128), 118016, 118016),
        ({"rule": "sglang-dsv4-npu"}, 118784, 118784),
        ({"rule": "sglang-dsv4-npu", "speculative": True}, 118785, 118784),
        (sglang(128, speculative=True), 118017, 118016),
        ({"engine": "vllm", "page_size": 128, "speculative": True}, 118144, 118016),
        ({"engine": "vllm", "page_size": 16}, 117984, 117984),
        ({"rule": "vllm-dsv4"}, 118016, 118016),
        ({"rule": "vllm-ascend-dsv4", "page_size": 32}, 118784, 118784),
        ({"rule": "vllm-ascend-dsv4", "page_size": 32, "speculative": True}, 122880, 118784),
        (sglang(1), 117969, 117969),
    ],
)
def test_a_ratio_alone_takes_the_least_prefix_that_passes(rule, shared_len, cached_len):
    plan = plan_of(**WARM, cache_rule=rule, cached={"min_ratio": 0.9})
    assert (plan.shared_len, plan.cached_len) == (shared_len, cached_len)


def test_the_first_quantum_above_the_ratio_is_taken_where_the_ratio_is_met_exactly():
    """0.9 is nine tenths, not the double just above it."""
    plan = plan_of(body_len=1276, cache_rule=sglang(128), cached={"min_ratio": 0.9})
    assert (plan.prompt_len, plan.cached_len) == (1280, 1152)


@pytest.mark.parametrize(
    ("body_len", "rule", "best"),
    [
        (16384, {"engine": "vllm", "page_size": 4096}, "at best 12288 tokens = 3 pages of 4096 = 75.0000 %"),
        (16384, {"engine": "vllm", "page_size": 16384}, "at best 0 tokens = 0 pages of 16384 = 0.0000 %"),
        (
            131072,
            {"engine": "vllm", "page_size": 16384},
            "at best 114688 tokens = 7 pages of 16384 = 87.5000 %",
        ),
        (
            131072,
            {"rule": "vllm-ascend-dsv4"},
            "at best 114688 tokens = 896 pages of 128 = 7 x 16384 = 87.5000 %",
        ),
    ],
)
def test_ninety_percent_that_no_prefix_can_reach_is_refused_with_the_best(body_len, rule, best):
    message = refusal(head=0, tail=0, own=1, body_len=body_len, cache_rule=rule, cached={"min_ratio": 0.9})
    assert best in message


def test_16388_tokens_on_the_npu_need_a_prefix_of_16384_which_leaves_no_room_for_a_passage():
    npu = {"rule": "sglang-dsv4-npu"}
    assert plan_of(body_len=16384, own=2, cache_rule=npu, cached={"min_ratio": 0.9}).cached_len == 16384
    message = refusal(
        body_len=16384, output_len=1024, own=COPY_1024, cache_rule=npu, cached={"min_ratio": 0.9}
    )
    assert "at best 14336 tokens = 112 pages of 128 = 7 x 2048 = 87.4786 %" in message


def grid() -> Iterator[Spec]:
    """Yield specs of many rules, ratios and lengths; two seeds fit any rule."""
    for engine, page, times, speculative, ratio, body_len in itertools.product(
        ("sglang", "vllm"),
        (1, 3, 16, 64),
        (1, 2),
        (False, True),
        (0.1, 0.333, 0.5, 0.9, 0.99),
        (40, 127, 400),
    ):
        numbers = {"page_size": page, "hit_quantum": page * times, "speculative": speculative}
        changes = {"cache_rule": {"engine": engine, **numbers}, "cached": {"min_ratio": ratio}}
        yield spec_file.from_content(content_of(body_len=body_len, seed={"per_rank": 2}, **changes), "s")


def only(spec: Spec) -> Requests:
    (requests,) = spec.requests
    return requests


def with_body(spec: Spec, body_len: int) -> Spec:
    return spec.model_copy(update={"requests": (only(spec).model_copy(update={"body_len": body_len}),)})


def solved(spec: Spec, own: int) -> RowPlan | WlgenError:
    try:
        return next(solve(spec, framed(2, 2), lambda *_: own).rows("formal", 0))
    except WlgenError as refused:
        return refused


def test_the_least_passing_prefix_is_the_one_that_trying_every_length_finds():
    found = expected = 0
    for spec in grid():
        prompt_len = only(spec).body_len + 4
        least = only(spec).cached.min_ratio * prompt_len
        tried = (n for n in range(3, prompt_len - 3) if spec.cache.cached_len(n, prompt_len) >= least)
        plan = solved(spec, 2)
        assert (plan.shared_len if isinstance(plan, RowPlan) else None) == next(tried, None), spec.content
        found, expected = found + isinstance(plan, RowPlan), expected + 1
    assert 200 < found < expected


REMEDY = re.compile(r"(tokens|min_ratio|body_len): ([\d.]*\d)")


def test_each_remedy_passes_and_no_nearer_body_does():
    refused = [(spec, failure) for spec in grid() if isinstance(failure := solved(spec, 9), WlgenError)]
    assert len(refused) > 50
    for spec, failure in refused[::5]:
        remedies = dict(REMEDY.findall(failure.problems[0].remedy))
        if "min_ratio" in remedies:
            lower = only(spec).model_copy(update={"cached": Bound(min_ratio=float(remedies["min_ratio"]))})
            assert isinstance(solved(spec.model_copy(update={"requests": (lower,)}), 9), RowPlan)
        works = int(remedies["body_len"])
        assert isinstance(solved(with_body(spec, works), 9), RowPlan)
        away = abs(works - only(spec).body_len)
        for nearer in range(max(1, only(spec).body_len - away + 1), only(spec).body_len + away):
            assert isinstance(solved(with_body(spec, nearer), 9), WlgenError), (spec.content, nearer)


@pytest.mark.parametrize("tokens", [1, 15, 17, 100, 300, 319, 320, 321, 5000])
def test_a_count_that_cannot_be_cached_exactly_is_refused_with_one_that_can(tokens):
    changes = {"body_len": 316, "cache_rule": sglang(16)}
    remedies = dict(REMEDY.findall(refusal(**changes, cached={"tokens": tokens}).split(". ", 1)[1]))
    near = int(remedies["tokens"])
    assert plan_of(**changes, cached={"tokens": near}).cached_len == near


@pytest.mark.parametrize("tokens", [16, 32, 288, 304])
def test_a_count_of_whole_pages_is_cached_exactly(tokens):
    assert plan_of(body_len=316, cache_rule=sglang(16), cached={"tokens": tokens}).cached_len == tokens


def test_a_count_that_the_head_alone_reaches_is_refused_as_the_prefix_adds_to_it():
    """At page size 1 a prefix of one token behind a head of 2 caches 3."""
    message = refusal(body_len=64, cache_rule=sglang(1), cached={"tokens": 2})
    assert "found tokens: 2 tokens = 2 pages of 1. The nearest that passes is tokens: 3" in message


def test_a_whole_prompt_is_never_cached():
    message = refusal(body_len=64, cache_rule=sglang(1), cached={"min_ratio": 1})
    assert "expected a ratio below 1, since a prompt cannot be all prefix: each keeps 2 tokens" in message
    assert "body_len" not in message.split(". ", 1)[1]
    remedies = dict(REMEDY.findall(message))
    assert plan_of(body_len=64, cache_rule=sglang(1), cached={"min_ratio": float(remedies["min_ratio"])})


@pytest.mark.parametrize("cached", [{"max_tokens": 0}, {"tokens": 0}])
def test_a_zero_set_whose_head_fills_pages_is_refused(cached):
    message = refusal(head=28, body_len=64, cache_rule=sglang(8), cached=cached)
    assert "found 24, since every prompt begins with the 28 tokens of the chat framing" in message
    assert "Use max_tokens: 24" in message
    plan = plan_of(head=28, body_len=64, cache_rule=sglang(8), cached={"max_tokens": 24})
    assert (plan.shared_len, plan.cached_len) == (28, 24)


def test_a_zero_set_too_short_for_its_task_is_refused_with_the_length_that_fits():
    message = refusal(own=70, body_len=60, cached={"max_tokens": 0})
    assert "Use body_len: 70" in message
    assert plan_of(own=70, body_len=70, cached={"max_tokens": 0}).shared_len == 2


@pytest.mark.parametrize(
    ("rule", "seed_len"),
    [
        (sglang(128), 118016 + 3),  # the prefix, one token of its own, the tail
        ({"rule": "sglang-dsv4-npu"}, 118784 + 3),
        ({"rule": "vllm-dsv4"}, 118016 + 3),
    ],
)
def test_a_short_seed_is_the_prefix_and_just_enough(rule, seed_len):
    assert plan_of(**WARM, cache_rule=rule, cached={"min_ratio": 0.9}, split="seed").prompt_len == seed_len


def test_one_full_seed_of_a_hybrid_rule_is_refused_and_two_are_not():
    """After one full-length seed the next row hits less: state is kept only where a prompt ends."""
    changes = {**WARM, "cache_rule": {"rule": "sglang-dsv4-npu"}, "cached": {"min_ratio": 0.9}}
    message = refusal(**changes, seed={"per_rank": 1, "shape": "full"})
    assert "splits.seed: expected a seed that ends within 2048 tokens behind the shared prefix" in message
    assert "Use shape: short, or per_rank: 2" in message
    assert plan_of(**changes, seed={"per_rank": 2, "shape": "full"})
    assert plan_of(**{**changes, "cache_rule": sglang(128)}, seed={"per_rank": 1, "shape": "full"})


def test_a_seed_whose_tail_alone_passes_the_quantum_is_refused_without_advice_to_shorten_it():
    message = refusal(
        tail=20, body_len=316, cache_rule={"rule": "sglang", "page_size": 16, "sliding_window": 64}
    )
    assert "splits.seed" in message
    assert "shape: short" not in message


def test_pages_and_quanta_are_said_together():
    rule = spec_file.from_content(content_of(cache_rule={"rule": "sglang-dsv4-npu"}), "s").cache
    assert in_pages(118784, rule) == "118784 tokens = 928 pages of 128 = 58 x 2048"
    plain = spec_file.from_content(content_of(cache_rule=sglang(128)), "s").cache
    assert in_pages(117888, plain) == "117888 tokens = 921 pages of 128"
