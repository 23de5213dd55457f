"""Causes are proved by replay: the small runs that an audit once named wrongly, each with its right cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kit.audits import CACHED, PROMPT, RULE, good, promised, row
from kit.rules import made_rule

from wlgen.audit import explain as explaining
from wlgen.audit.as_seen import NO_STARTS, RowSeen, Scene
from wlgen.audit.explain import explain
from wlgen.faults._replay import figures
from wlgen.workload.bounds import UNBOUNDED


def scene(
    cached: Callable[[Any], int | None],
    *,
    ranks: int = 4,
    each: int = 10,
    groups: int = 1,
    group_of: Callable[[int], int] | None = None,
    rule: Any = RULE,
    timed: bool = True,
    **changes: Any,
) -> Scene:
    """Return a run of rows in turn, each with the cached tokens that `cached` gives for it."""
    formal = [
        row("formal", rank, n, group=f"g{group_of(n) if group_of else n % groups}")
        for n in range(each)
        for rank in range(ranks)
    ]
    before = [
        row(split, rank, n, group=f"g{n}")
        for split in ("seed", "check")
        for rank in range(ranks)
        for n in range(groups)
    ]
    seen = []
    for n, (of, result) in enumerate(zip(promised(formal), good(formal, **changes), strict=True)):
        figure = cached(of)
        at = float(n) if timed else None
        told = replace(result, cached_tokens=figure, start=at, end=None if at is None else at + 0.5)
        seen.append(RowSeen(row=of, results=[told], cached=figure))
    return Scene(rule=rule, audited=seen, before=promised(before), ranks=tuple(range(ranks)))


def causes(found: Scene) -> list[tuple[str, int, int]]:
    return [(each.cause, each.rows, each.of) for each in explain(found.view()).causes]


def number(of: Any) -> int:
    return int(of.id[-6:])


def test_a_clean_run_replays_nothing(monkeypatch):
    monkeypatch.setattr(explaining, "figures", None)
    assert explain(scene(lambda _: CACHED).view()) == explaining.Explained()


def test_zeros_that_all_lie_on_one_rank_are_that_rank():
    found = explain(scene(lambda of: 0 if of.dp_rank == 3 else CACHED, ranks=8, each=40).view())
    (cause,) = found.causes
    assert (cause.cause, cause.parameters, cause.rows, cause.of) == ("lost_cache", {"ranks": [3]}, 40, 40)
    assert cause.evidence.startswith("rank 3 keeps nothing: explains 40 of 40 rows")
    assert found.unexplained == ()


@pytest.mark.parametrize("ranks", [1, 2])
def test_zeros_of_one_group_are_that_group(ranks):
    found = scene(lambda of: 0 if of.group == "g2" else CACHED, ranks=ranks, each=12, groups=3)
    (cause,) = explain(found.view()).causes
    assert (cause.cause, cause.parameters) == ("lost_cache", {"group": "g2"})


def test_a_group_that_is_lost_half_way_is_named_with_its_first_row():
    found = scene(lambda of: 0 if of.group == "g2" and number(of) > 6 else CACHED, ranks=2, each=12, groups=3)
    (cause,) = explain(found.view()).causes
    assert (cause.cause, cause.parameters) == ("lost_cache", {"group": "g2", "from": "formal-r00-000008"})
    assert cause.rows == cause.of == 4


def test_early_rows_are_not_called_late():
    audited = list(scene(lambda _: CACHED).audited)
    for late, said in ((3.15, "3.15 s after"), (-2.0, "2.00 s before")):
        audited[7] = replace(audited[7], late=late)
        (cause,) = explain(replace(scene(lambda _: CACHED), audited=audited).view()).causes
        assert (cause.cause, cause.rows) == ("late", 1)
        assert said in cause.explains


def test_rows_that_are_missing_are_counted_on_the_ranks_that_are_named():
    audited = [replace(s, results=[]) if s.row.dp_rank == 3 else s for s in scene(lambda _: CACHED).audited]
    audited[0] = replace(audited[0], results=[])
    first, second = explain(replace(scene(lambda _: CACHED), audited=audited).view()).causes
    assert (first.rows, first.parameters) == (10, {"rows": 10, "ranks": [3]})
    assert (second.rows, second.parameters) == (1, {"rows": 1})


def test_an_unseeded_group_costs_its_first_row_on_each_rank_under_a_dense_rule():
    found = scene(lambda of: 0 if number(of) == 2 else CACHED, ranks=2, each=12, groups=3)
    assert causes(found) == [("group_not_seeded", 2, 2)]


def test_an_unseeded_rank_costs_its_first_row_under_a_dense_rule():
    found = scene(lambda of: 0 if (of.dp_rank, number(of)) == (1, 0) else CACHED)
    assert causes(found)[0] == ("rank_not_seeded", 1, 1)


@pytest.mark.parametrize("figure", [PROMPT, PROMPT - 1])
def test_a_figure_that_no_prefix_can_hit_is_the_decode_servers(figure):
    assert causes(scene(lambda _: figure)) == [("decode_figure", 40, 40)]


def test_exactly_twice_the_plan_is_a_sum():
    half = scene(lambda _: 1024)
    rows = [replace(seen, row=replace(seen.row, cached_len=512, shared_len=512)) for seen in half.audited]
    before = [replace(each, cached_len=512, shared_len=512) for each in half.before]
    found = replace(half, audited=rows, before=before)
    assert causes(found)[0] == ("doubled_figure", 40, 40)


def test_a_quantum_that_several_sizes_explain_names_them_all():
    """1664 shared tokens floor to 1536 in multiples of 256 and of 512 alike."""
    (cause,) = explain(scene(lambda _: 1536).view()).causes
    told = [each.explains for each in (cause, *cause.rivals)]
    assert any("multiples of 256" in each for each in told)
    assert any("multiples of 512" in each for each in told)
    assert any("speculative" in each for each in told)


def test_1024_is_one_quantum_alone():
    (cause,) = explain(scene(lambda _: 1024).view()).causes
    assert (cause.cause, cause.parameters) == ("hit_quantum", {"hit_quantum": 1024})


def test_what_follows_from_another_framing_is_no_cause():
    found = scene(lambda _: 0, prompt_tokens=PROMPT + 79)
    (cause,) = explain(found.view()).causes
    assert (cause.cause, cause.rows, cause.of) == ("framing", 40, 40)
    assert "thinking is on" in cause.explains


def test_one_row_that_nothing_explains_is_said_to_be_unexplained():
    found = explain(scene(lambda of: 640 if (of.dp_rank, number(of)) == (1, 4) else CACHED).view())
    assert found.causes == ()
    assert found.unexplained == ("formal-r01-000004",)


def test_a_flush_and_a_restart_are_rivals_and_what_would_tell_is_said():
    found = scene(lambda of: 0 if number(of) == 5 else CACHED)
    (cause,) = explain(found.view()).causes
    assert cause.cause == "flushed"
    assert any(
        "[restarted] (what tells: process_start_time_seconds" in rival.evidence for rival in cause.rivals
    )


def test_a_failure_beside_the_first_miss_is_a_restart():
    found = scene(lambda of: 0 if number(of) == 5 else CACHED)
    audited = list(found.audited)
    failed = replace(audited[19].results[0], success=False, error="connection reset by peer")
    audited[19] = replace(audited[19], results=[failed])
    (cause,) = explain(replace(found, audited=audited).view()).causes
    assert (cause.cause, cause.rows) == ("restarted", 5)


def test_two_things_that_went_wrong_are_both_named():
    """Rank 2 keeps nothing, and the first row was sent as a warm-up."""
    most = RULE.most_cached(PROMPT)
    found = scene(lambda of: 0 if of.dp_rank == 2 else most if of.id == "formal-r00-000000" else CACHED)
    assert causes(found) == [("lost_cache", 10, 11), ("warmup_row_0", 1, 11)]


def test_a_row_of_the_middle_sent_before_is_named_by_itself():
    most = RULE.most_cached(PROMPT)
    found = scene(lambda of: most if of.id == "formal-r01-000004" else CACHED)
    (cause,) = explain(found.view()).causes
    assert (cause.cause, cause.parameters) == ("row_sent_before", {"rows": ["formal-r01-000004"]})


def test_a_cache_that_is_too_small_is_a_range_of_tokens():
    """Rows of a second group come seldom: those between push its prefix out where there is no room."""
    asked = {"ranks": 1, "each": 40, "groups": 2, "group_of": lambda n: int(n in (8, 10, 30, 32))}
    planned = scene(lambda _: CACHED, **asked).view().run
    acted = dict(figures(replace(planned, capacity=6144)))
    found = scene(lambda of: next(iter(acted[number(of)])), **asked)
    (cause,) = explain(found.view()).causes
    assert cause.cause == "capacity"
    least, most = cause.parameters["tokens"]
    assert least <= 6144 <= most


def test_without_starts_the_order_is_not_judged_and_that_is_said():
    found = scene(lambda of: 0 if of.dp_rank == 3 else CACHED, timed=False)
    view = found.view()
    explained = explain(view)
    assert NO_STARTS in explained.assumed
    assert [each.cause for each in explained.causes] == ["lost_cache"]


def test_rows_that_nothing_primes_for_are_held_against_the_order_they_were_sent_in():
    """Of a cold class: the first row that a rank gets finds nothing, whichever it is."""
    found = scene(lambda of: 0 if number(of) == 1 else CACHED, ranks=2)
    cold = []
    for seen in found.audited:
        planned = replace(seen.row, bound=UNBOUNDED, cached_len=0 if number(seen.row) == 0 else CACHED)
        start = {0: 100.0, 1: 1.0}.get(number(seen.row), 200.0 + number(seen.row))
        result = replace(seen.results[0], start=start, end=start + 0.5)
        cold.append(replace(seen, row=planned, results=[result]))
    (cause,) = explain(replace(found, audited=cold, before=[]).view()).causes
    assert (cause.cause, cause.rows) == ("other_order", 4)


def seen_as(found: Scene, changes: Callable[[int], dict[str, Any]], **of_the_run: Any) -> Scene:
    """Return a run whose n-th row has a result with these changes."""
    audited = [
        replace(seen, results=[replace(result, **changes(n)) for result in seen.results])
        for n, seen in enumerate(found.audited)
    ]
    return replace(found, audited=audited, **of_the_run)


def test_rows_whose_texts_and_lengths_are_another_sets_are_named_so_beside_an_edited_text():
    found = seen_as(
        scene(lambda _: 0), lambda n: {"text_sha256": f"other {n}", "prompt_tokens": PROMPT + 200 * n - 900}
    )
    (cause,) = explain(found.view()).causes
    assert (cause.rows, cause.of) == (40, 40)
    assert {"edited_text", "other_set"} == {cause.cause, *(rival.cause for rival in cause.rivals)}


def test_rows_whose_lengths_alone_are_another_sets_are_named_so():
    found = seen_as(scene(lambda _: 0), lambda n: {"text_sha256": None, "prompt_tokens": 300 + 7 * n})
    (cause,) = explain(found.view()).causes
    assert (cause.cause, cause.parameters, cause.rows) == ("other_set", {"results": 40}, 40)


def test_a_framing_that_differs_by_row_is_not_another_set():
    found = seen_as(scene(lambda _: CACHED), lambda n: {"prompt_tokens": PROMPT + 4 + n % 2})
    assert [each.cause for each in explain(found.view()).causes] == ["framing", "framing"]


def test_rows_without_a_result_beside_results_of_no_row_are_another_sets():
    found = scene(lambda _: CACHED)
    gone = [replace(seen, results=[]) if n % 4 == 1 else seen for n, seen in enumerate(found.audited)]
    (cause,) = explain(replace(found, audited=gone, foreign=10).view()).causes
    assert (cause.cause, cause.parameters, cause.rows) == ("other_set", {"results": 10}, 10)
    assert [rival.cause for rival in cause.rivals] == ["run_cut"]
    (cause,) = explain(replace(found, audited=gone).view()).causes
    assert (cause.cause, cause.rivals) == ("run_cut", ())


VLLM = made_rule(name="vllm", engine="vllm", page_size=128, hit_quantum=128)


@pytest.mark.parametrize(
    ("rule", "flag", "others"),
    [
        (RULE, "--enable-cache-report", "prompt-tokens-details"),
        (VLLM, "prompt-tokens-details", "cache-report"),
    ],
)
def test_a_figure_that_no_row_has_is_asked_of_the_engine_of_the_set(rule, flag, others):
    (cause,) = explain(scene(lambda _: None, rule=rule).view()).causes
    assert flag in cause.remedy
    assert others not in cause.remedy


def test_a_flag_that_was_on_is_not_blamed():
    (cause,) = explain(scene(lambda of: CACHED if of.dp_rank else None).view()).causes
    assert cause.cause == "not_observed"
    assert "since some rows have it" in cause.remedy
    assert "--enable" not in cause.remedy


@pytest.mark.parametrize(("rule", "pin"), [(RULE, "routed_dp_rank"), (VLLM, "X-data-parallel-rank")])
def test_a_pin_is_that_of_the_engine_of_the_set(rule, pin):
    found = seen_as(scene(lambda _: 0, rule=rule), lambda n: {"dp_rank": (n + 1) % 4})
    told = [each.remedy for each in explain(found.view()).causes]
    assert any(pin in remedy for remedy in told)
