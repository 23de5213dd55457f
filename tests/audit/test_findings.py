"""One row beside one result: each broken promise is one finding, and the right one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from kit.audits import CACHED, OUTPUT, PROMPT, good, row

from wlgen.audit.findings import NOT_OBSERVED, Promised, findings_of
from wlgen.workload.bounds import UNBOUNDED, Bound
from wlgen.workload.rows import Finding

BOUND = Bound(min_ratio=Fraction(4, 5))
LEAST = 1642  # the least whole count that is 80 % of 2052
ROW = row("formal", 1, 0)
PROMISED = Promised.of(ROW, BOUND)


def spoilt(**changes: Any):
    (result,) = good([ROW])
    return findings_of(PROMISED, replace(result, **changes))


def test_a_kept_row_has_no_finding():
    assert spoilt() == []


@pytest.mark.parametrize(
    ("changes", "promise", "expected", "got"),
    [
        ({"success": False, "error": "HTTP 503"}, "success", "success", "HTTP 503"),
        ({"attempts": 2}, "one_attempt", 1, 2),
        ({"text_sha256": "f" * 64}, "text", ROW.text_sha256, "f" * 64),
        ({"dp_rank": 0}, "dp_rank", 1, 0),
        ({"prompt_tokens": PROMPT + 79}, "prompt_len", PROMPT, PROMPT + 79),
        ({"output_tokens": 63}, "output_len", OUTPUT, 63),
        ({"cached_tokens": 0}, "cached_bound", LEAST, 0),
        ({"cached_tokens": CACHED - 128}, "cached_bound", LEAST, CACHED - 128),
        ({"cached_tokens": CACHED + 128}, "cached_len", CACHED, CACHED + 128),
        ({"cached_tokens": PROMPT + 1}, "cached_within_prompt", PROMPT, PROMPT + 1),
        ({"cached_tokens": None}, "observed", "cached_tokens", NOT_OBSERVED),
    ],
)
def test_each_broken_promise_is_one_finding(changes, promise, expected, got):
    assert spoilt(**changes) == [Finding(id=ROW.id, promise=promise, expected=expected, got=got)]


def test_a_response_without_usage_is_one_finding():
    (finding,) = spoilt(prompt_tokens=None, cached_tokens=None, output_tokens=None)
    assert finding.expected == "prompt_tokens, cached_tokens, output_tokens"


def test_a_failed_request_is_asked_nothing_else():
    assert [f.promise for f in spoilt(success=False, prompt_tokens=1, cached_tokens=9, attempts=3)] == [
        "success"
    ]


def test_what_the_client_does_not_record_is_no_finding():
    assert spoilt(text_sha256=None, dp_rank=None) == []


def test_a_zero_set_allows_no_hit():
    zero = replace(PROMISED, cached_len=0, bound=Bound(max_tokens=0))
    (result,) = good([ROW], cached_tokens=128)
    (finding,) = findings_of(zero, result)
    assert (finding.promise, finding.expected, finding.got) == ("cached_bound", 0, 128)


def test_the_bound_is_not_asked_of_a_seed():
    seed = row("seed", 0, 0)
    (result,) = good([seed])
    assert findings_of(Promised.of(seed, BOUND), result) == []
    (finding,) = findings_of(Promised.of(seed, BOUND), replace(result, cached_tokens=128))
    assert (finding.promise, finding.expected) == ("cached_len", 0)


@pytest.mark.parametrize(("cached", "promises"), [(0, []), (128, []), (256, []), (384, ["cached_bound"])])
def test_a_class_bounded_from_above_may_find_less_than_planned(cached, promises):
    """A framing head that fills pages is found by each row but the first on a cold rank."""
    zero = Promised.of(replace(ROW, cached_len=256), Bound(max_tokens=256))
    (result,) = good([ROW], cached_tokens=cached)
    assert [f.promise for f in findings_of(zero, result)] == promises


@pytest.mark.parametrize(("cached", "broken"), [(640, False), (768, True), (896, False), (0, True)])
def test_a_turn_finds_the_prompts_before_it_or_the_recorded_answers_too(cached, broken):
    turn = Promised.of(replace(ROW, cached_len=640, cached_len_recorded=896), UNBOUNDED)
    (result,) = good([ROW], cached_tokens=cached)
    assert bool(findings_of(turn, result)) == broken
