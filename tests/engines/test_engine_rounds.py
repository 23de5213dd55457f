"""wlgen's prefill rounds beside SGLang's PrefillAdder: every request of every round, to the token."""

from __future__ import annotations

import random

import pytest
from test_engine_replay import run

from wlgen.simulate.rounds import RoundPrompt, Scheduler

pytestmark = pytest.mark.engines


def cases():
    """Return the published sequences, and random prompts with some of each cached."""
    known = [
        {"chunk": 8192, "page_size": 128, "max_requests": k, "max_prefill_tokens": 16384}
        | {"prompts": [[16388, 0]] * 320}
        for k in (1, 2, 4, None)
    ]
    rng = random.Random(1)  # noqa: S311 (not for secrets)
    random_cases = []
    for _ in range(80):
        page = rng.choice([1, 16, 64, 128, 256])
        chunk = page * rng.randrange(1, 40) + rng.choice([0, 0, 0, rng.randrange(page)])
        lengths = [rng.randrange(1, 5 * chunk) for _ in range(rng.randrange(1, 40))]
        prompts = [[length, rng.randrange(length) // page * page] for length in lengths]
        limits = {
            "max_requests": rng.choice([None, 1, 2, 3]),
            "max_prefill_tokens": rng.choice([16384, chunk, chunk // 2 + 1, 3 * chunk]),
        }
        random_cases.append({"chunk": chunk, "page_size": page, "prompts": prompts} | limits)
    return known + random_cases


def test_sglang_schedules_the_rounds_that_wlgen_says():
    tried = cases()
    differ = []
    for case, theirs in zip(tried, run("rounds_sglang.py", tried), strict=True):
        prompts = [RoundPrompt(*prompt) for prompt in case["prompts"]]
        numbers = {key: value for key, value in case.items() if key != "prompts"}
        if list(Scheduler(**numbers).rounds(prompts)) != theirs:
            differ.append(numbers)
    assert differ == []
