"""Each known cause is named from its pattern, and no other is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.audits import CACHED, PROMPT, RULE, good, promised, row

from wlgen.audit.diagnosis import Pair, diagnose
from wlgen.workload.bounds import UNBOUNDED, Bound

RANKS, EACH = 4, 10


def pairs(cached=lambda *_: CACHED, ranks=RANKS, each=EACH, **changes: Any):
    """Return pairs sent in turn, a row's cached tokens given by its rank and number."""
    content = [row("formal", rank, number) for rank in range(ranks) for number in range(each)]
    found = []
    for each_row, result in zip(promised(content), good(content, **changes), strict=True):
        number = int(each_row.id[-6:])
        start = number * ranks + each_row.dp_rank
        found.append(
            Pair(
                each_row, replace(result, cached_tokens=cached(each_row.dp_rank, number), start=float(start))
            )
        )
    return found


def causes(found, rule=RULE):
    return [d.cause for d in diagnose(found, rule)]


def test_nothing_is_named_where_all_is_as_promised():
    assert diagnose(pairs(), RULE) == []
    assert diagnose([], RULE) == []


def test_one_short_row_is_no_pattern():
    assert diagnose(pairs(lambda rank, n: CACHED - 128 if (rank, n) == (1, 4) else CACHED), RULE) == []
    assert diagnose(pairs(lambda rank, n: 0 if (rank, n) == (1, 4) else CACHED), RULE) == []


def test_every_row_short_by_one_quantum_is_mtp_or_a_larger_quantum():
    (found,) = diagnose(pairs(lambda *_: CACHED - 128), RULE)
    assert (found.cause, found.rows) == ("short_by_constant", RANKS * EACH)
    assert "MTP" in found.evidence
    assert "hit quantum is 256" in found.evidence
    assert "full-length" not in found.evidence


def test_a_larger_quantum_is_found_by_what_explains_each_row():
    """1664 floors to 1024 at 1024, not at 256 (1536) or 512 (1536)."""
    (found,) = diagnose(pairs(lambda *_: 1024), RULE)
    assert "hit quantum is 1024" in found.evidence
    assert "MTP" not in found.evidence


def test_mtp_is_not_named_where_the_rule_has_it():
    (found,) = diagnose(pairs(lambda *_: CACHED - 128), replace(RULE, speculative=True))
    assert "MTP" not in found.evidence


def test_one_check_a_rank_may_also_be_a_first_sibling():
    (found,) = diagnose(pairs(lambda *_: CACHED - 128, each=1), RULE)
    assert "full-length" in found.evidence


def test_first_row_of_each_rank_short_is_a_full_length_seed():
    (found,) = diagnose(pairs(lambda _, n: 1024 if n == 0 else CACHED), RULE)
    assert (found.cause, found.rows) == ("first_of_rank", RANKS)
    assert "shape: short" in found.remedy


def test_first_row_of_each_rank_at_zero_under_a_dense_rule_is_no_seed():
    """A dense model keeps a seed of any length; only a hybrid one keeps no state inside a longer one."""
    zeros = pairs(lambda rank, n: 0 if n == 0 and rank < 3 else CACHED)
    (found,) = diagnose(zeros, RULE)
    assert (found.cause, found.rows) == ("rank_not_seeded", 3)
    assert causes(zeros, replace(RULE, sliding_window=128, hybrid=True)) == ["first_of_rank"]


def test_a_class_bounded_from_above_lacks_nothing():
    found = [p._replace(row=replace(p.row, bound=Bound(max_tokens=CACHED))) for p in pairs(lambda *_: 0)]
    assert causes(found) == []


@pytest.mark.parametrize(
    ("cached", "cause", "rows"),
    [
        (lambda *_: 0, "no_reuse", RANKS * EACH),
        (lambda _, n: 0 if n < 2 else CACHED, "other_order", 2 * RANKS),
        (lambda *_: CACHED, None, 0),
    ],
)
def test_rows_that_nothing_primes_for_lack_what_others_left(cached, cause, rows):
    """Of a cold class or a trace: no seed is missing, since there is none."""
    found = [p._replace(row=replace(p.row, bound=UNBOUNDED)) for p in pairs(cached)]
    assert [(d.cause, d.rows) for d in diagnose(found, RULE)] == ([(cause, rows)] if cause else [])


def test_first_is_the_first_that_was_sent():
    late_first = [
        p._replace(result=replace(p.result, start=100.0 - p.result.start))
        for p in pairs(lambda _, n: CACHED - 128 * (n == 9))
    ]
    assert causes(late_first) == ["first_of_rank"]


def test_whole_ranks_at_zero_were_not_seeded():
    (found,) = diagnose(pairs(lambda rank, _: 0 if rank in (1, 3) else CACHED), RULE)
    assert (found.cause, found.rows) == ("rank_not_seeded", 2 * EACH)
    assert "rank 1, 3 " in found.evidence


def test_all_ranks_at_zero_is_no_seed_at_all_or_a_flush():
    (found,) = diagnose(pairs(lambda *_: 0), RULE)
    assert found.cause == "rank_not_seeded"
    assert "flush" in found.evidence


def test_random_zeros_are_unpinned_requests():
    hit = "0010010001100000100000100100010100001000010000001010010000000100100000010001000010"
    (found,) = diagnose(pairs(lambda rank, n: CACHED * int(hit[20 * rank + n]), each=20), RULE)
    assert found.cause == "unpinned"


def test_ranks_at_zero_by_chance_are_part_of_unpinned():
    hits = {(0, 2), (0, 7), (1, 3), (2, 5)}
    (found,) = diagnose(pairs(lambda *at: CACHED if at in hits else 0), RULE)
    assert (found.cause, found.rows) == ("unpinned", RANKS * EACH - len(hits))


def test_a_few_zeros_are_not_called_unpinned():
    assert causes(pairs(lambda rank, n: 0 if (rank, n) in {(0, 3), (2, 6)} else CACHED)) == []


def test_a_falling_tail_is_eviction():
    (found,) = diagnose(pairs(lambda rank, n: 0 if rank == 2 and n >= 6 else CACHED), RULE)
    assert (found.cause, found.rows) == ("falling_tail", 4)


def test_only_the_first_row_above_plan_is_a_warm_up():
    (found,) = diagnose(pairs(lambda rank, n: 2048 if (rank, n) == (0, 0) else CACHED), RULE)
    assert (found.cause, found.rows) == ("warmup_row_0", 1)


def test_most_rows_above_plan_is_a_set_sent_twice():
    assert causes(pairs(lambda *_: 2048)) == ["sent_twice"]


def test_a_zero_set_with_the_same_few_tokens_everywhere_has_a_preamble():
    zero = [p._replace(row=replace(p.row, cached_len=0)) for p in pairs(lambda *_: 128)]
    assert causes(zero) == ["common_prefix"]


@pytest.mark.parametrize(
    ("difference", "words"),
    [(79, "thinking is on"), (92, "effort max"), (7, "answer"), (-4, "completions"), (1, "second BOS")],
)
def test_one_constant_difference_of_all_prompts_is_a_framing(difference, words):
    (found,) = diagnose(pairs(prompt_tokens=PROMPT + difference), RULE)
    assert found.cause == "framing"
    assert words in found.evidence
    assert f"{difference:+d} tokens" in found.evidence


def test_prompts_that_differ_by_several_amounts_are_no_framing():
    several = pairs(prompt_tokens=PROMPT + 79)
    several[3] = several[3]._replace(result=replace(several[3].result, prompt_tokens=PROMPT + 80))
    assert causes(several) == []


def test_cached_above_the_prompt_is_a_double_count_and_proves_nothing():
    assert causes(pairs(lambda *_: PROMPT + CACHED)) == ["double_count"]


def test_missing_figures_are_named_and_not_taken_for_zero():
    assert causes(pairs(lambda *_: None)) == ["not_observed"]


def test_rows_on_another_rank_are_named():
    assert "other_rank" in causes(pairs(dp_rank=0))


def test_failed_requests_show_no_cache_pattern():
    assert causes(pairs(lambda *_: 0, success=False)) == []


def test_seeds_find_nothing_and_that_is_no_cause():
    seeds = [row("seed", rank, 0) for rank in range(RANKS)]
    seen = [Pair(r, result) for r, result in zip(promised(seeds), good(seeds), strict=True)]
    assert causes([*seen, *pairs()]) == []
