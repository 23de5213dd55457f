"""Planned times beside the times of sending, and ranks beside each other, each with its figure."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from kit.audits import good, manifest, plain, rows, write_set

from wlgen import cli
from wlgen.audit.audit import audit
from wlgen.audit.model import Audit
from wlgen.audit.run_figures import Setting
from wlgen.errors import Problem
from wlgen.readers import Result
from wlgen.report.answer import answer
from wlgen.report.provenance import Provenance
from wlgen.report.words import sending, verdict
from wlgen.workload.rows import Row

SOURCE = Provenance.of(manifest(), clients=[], results=[], witnesses=[], options={})


def arriving(gap_ms: int = 1000, count: int = 20, ranks: int = 2) -> list[Row]:
    """Return formal rows of two ranks that are sent in turn, one every `gap_ms`."""
    formal = [each for each in rows(count // ranks, ranks) if each.split == "formal"]
    in_turn = sorted(formal, key=lambda each: (each.id[-6:], each.dp_rank))
    return [replace(each, timestamp_ms=n * gap_ms) for n, each in enumerate(in_turn)]


def sent(content: list[Row], when: Callable[[int, Row], float], **changes: Any) -> list[Result]:
    """Return good results of rows, the n-th sent at when(n, row) seconds, each for 5 s."""
    starts = [1000.0 + when(n, each) for n, each in enumerate(content)]
    return [
        replace(result, start=start, first_token=start + 1, end=start + 5, **changes)
        for result, start in zip(good(content), starts, strict=True)
    ]


def audited(content: list[Row], results: list[Result], **setting: Any) -> Audit:
    return audit(content, [("results", results)], manifest(), setting=Setting(**setting))


def on_time(_: int, each: Row) -> float:
    return (each.timestamp_ms or 0) / 1000


def test_a_run_that_keeps_its_times_has_no_finding_and_says_how_well():
    content = arriving()
    found = audited(content, sent(content, lambda n, each: on_time(n, each) + n * 37 % 19 / 100))
    assert found.findings == ()
    assert found.lateness
    assert found.lateness.seen
    assert (found.lateness.planned, found.lateness.unseen, found.lateness.seen.requests) == (20, 0, 20)
    assert 0 < found.lateness.seen.p50 < found.lateness.seen.most < 0.2
    assert set(found.lateness.by_rank) == {0, 1}


def test_a_rank_that_began_later_is_late_with_each_of_its_rows():
    """One process a rank, each of which took its own first row for zero: rank 1 ran 3.15 s late."""
    content = arriving()
    found = audited(content, sent(content, lambda n, each: on_time(n, each) + 3.15 * each.dp_rank))
    late = [each.id for each in content if each.dp_rank == 1]
    assert {finding.id for finding in found.findings} == set(late)
    assert {(f.promise, f.expected, f.got) for f in found.findings} == {
        ("on_time", "at most 0.5 s off its planned time", "3.150 s late")
    }
    assert found.lateness
    assert [round(found.lateness.by_rank[rank].p50, 6) for rank in (0, 1)] == [0, 3.15]
    assert any("rank 1" in line and "3.150 s" in line for line in sending(found))
    assert answer(found, SOURCE)["planned_times"]["by_rank"]["1"]["most"] == pytest.approx(3.15)


@pytest.mark.parametrize(
    ("late", "gap_ms", "shift", "findings"),
    [
        (0.5, 1000, 0.49, 0),
        (0.5, 1000, 0.51, 1),
        (2.0, 1000, 1.9, 0),
        (0.0, 1000, 0.009, 0),  # 1 % of a gap of 1 s is 0.01 s
        (0.0, 1000, 0.011, 1),
        (0.5, 100_000, 0.9, 0),  # and of 100 s it is 1 s
        (0.5, 100_000, 1.1, 1),
    ],
)
def test_the_limit_is_what_is_given_and_never_under_a_hundredth_of_the_mean_gap(
    late, gap_ms, shift, findings
):
    content = arriving(gap_ms)
    found = audited(content, sent(content, lambda n, each: on_time(n, each) + shift * (n == 13)), late=late)
    assert [finding.id for finding in found.findings] == [content[13].id][:findings]


def test_a_slow_first_request_makes_no_other_early():
    content = arriving()
    found = audited(content, sent(content, lambda n, each: on_time(n, each) + 2 * (n == 0)))
    assert [(finding.id, finding.got) for finding in found.findings] == [(content[0].id, "2.000 s late")]


def test_one_clock_that_is_wrong_makes_no_other_late():
    content = arriving()
    results = sent(content, on_time)
    results[3] = replace(results[3], start=5.0, first_token=6.0, end=10.0)
    found = audited(content, results)
    assert [finding.id for finding in found.findings] == [content[3].id]
    assert "early" in str(found.findings[0].got)


def test_a_client_that_sends_at_its_own_rate_is_early():
    content = arriving()
    found = audited(content, sent(content, lambda n, _: n / 4))
    assert {str(finding.got).split()[-1] for finding in found.findings[10:]} == {"early"}


def test_a_failed_request_was_sent_at_its_time_too():
    content = arriving()
    results = [
        replace(r, success=False, error="500", end=None, first_token=None) for r in sent(content, on_time)
    ]
    found = audited(content, results)
    assert {finding.promise for finding in found.findings} == {"success"}
    assert found.lateness
    assert found.lateness.unseen == 0


def test_each_round_has_a_zero_of_its_own():
    first = arriving()
    later = [replace(each, round=1, id=each.id.replace("formal", "formal-1")) for each in first]
    content = [*first, *later]
    results = sent(content, lambda n, each: on_time(n, each) + 500 * each.round)
    found = audit(content, [("r", results)], manifest(), rounds=(0, 1))
    assert found.findings == ()


def test_times_that_no_result_holds_are_said_to_be_unseen():
    content = arriving()
    results = [replace(r, start=None, first_token=1.0, end=5.0) for r in sent(content, on_time)]
    found = audited(content, results)
    assert found.lateness
    assert (found.lateness.seen, found.lateness.unseen) == (None, 20)
    assert any("NOT_OBSERVED" in line for line in sending(found))
    assert found.findings == ()
    assert found.verdict == "NOT PROVED"
    assert verdict(found).startswith("NOT PROVED, no result says when 20 rows with planned times were sent")
    asked = audited(content, results, late=math.inf)
    assert (asked.lateness, asked.verdict) == (None, "KEPT")


def test_a_run_whose_files_were_cut_says_where():
    content = arriving()
    cut = Problem(place="results", expected="a whole JSON line", found="garbled: the file was cut")
    results = sent(content, on_time)[:7]
    found = audit(content, [("results", [*results, cut])], manifest())
    assert any(
        "cut: 7 rows of 20 have a result, the last of them ended at 11.000 s" in s for s in sending(found)
    )


def test_a_set_without_times_promises_none():
    content = [each for each in rows() if each.split == "formal"]
    found = audited(content, good(content))
    assert found.lateness is None
    assert answer(found, SOURCE)["planned_times"] is None


# --- ranks beside ranks


def apart(second: float) -> tuple[list[Row], list[Result]]:
    """Return rows of two ranks, rank 0 sent over 10 s, rank 1 from `second` on over 10 s more."""
    content = [replace(each, timestamp_ms=None) for each in arriving()]
    return content, sent(content, lambda n, each: n // 2 * 0.5 + second * each.dp_rank)


def test_a_rank_that_ended_before_another_began_leaves_no_window_to_quote():
    content, results = apart(9.514)  # the last request of rank 0 ends at 4.5 + 5 s
    found = audited(content, results)
    assert found.overlap
    assert (found.overlap.ranks, round(found.overlap.seconds, 6)) == (2, -0.014)
    assert [(window.members, window.output_tokens_per_s) for window in found.windows] == [(0, None)] * 3
    assert "rank 0 had ended 0.014 s before rank 1 began" in found.windows[0].missing
    assert any("0.014 s" in line for line in sending(found))
    assert found.findings == ()
    (cause,) = found.diagnosis
    assert (cause.cause, cause.rows, cause.of) == ("ranks_apart", 20, 20)
    assert cause.explains == "the ranks did not run together: rank 0 had ended 0.014 s before rank 1 began"


def test_ranks_that_ran_together_for_the_smaller_part_are_told_with_its_seconds():
    (cause,) = audited(*apart(6.0)).diagnosis
    assert cause.explains == "the ranks ran together in 3.500 s of 15.500 s only"
    assert audited(*apart(3.3)).diagnosis == ()


def test_a_rank_of_three_requests_that_took_its_turn_did_not_begin_too_late():
    """Two requests at a time on 4 ranks: ranks 0 and 1 run from 0 to 25 s, ranks 2 and 3 from 5 to 30 s."""
    content = [replace(each, timestamp_ms=None) for each in arriving(count=12, ranks=4)]
    for at_once in (2, 4):
        found = audited(content, sent(content, lambda n, _, at_once=at_once: n // at_once * 5.0))
        assert found.diagnosis == ()


def test_a_client_that_sends_one_request_at_a_time_did_not_start_a_rank_too_late():
    content = [replace(each, timestamp_ms=None) for each in arriving()]
    by_rank = sorted(content, key=lambda each: each.dp_rank)
    found = audited(content, [result for result in good(by_rank) if result.success])
    assert found.overlap
    assert found.overlap.seconds < 0
    assert found.diagnosis == ()


def test_a_rank_that_began_late_is_the_cause_of_its_late_rows():
    """Rank 1 was planned beside rank 0 and began after it had ended: each of its rows is late for that."""
    content = arriving(gap_ms=250)
    found = audited(content, sent(content, lambda n, each: n // 2 * 0.5 + 9.514 * each.dp_rank))
    (cause,) = found.diagnosis
    assert (cause.cause, cause.rows) == ("ranks_apart", 20)
    assert len(found.findings) == 10


@pytest.mark.parametrize(("second", "quoted"), [(0.0, True), (2.0, True), (3.1, True), (3.3, False)])
def test_a_window_is_quoted_where_all_ranks_ran_in_half_of_it(second, quoted):
    """Of 9.5 s a rank, 3.1 s apart, 6.4 of 12.6 s were together; 3.3 s apart, 6.2 of 12.8 s."""
    content, results = apart(second)
    whole, *_ = audited(content, results).windows
    assert bool(whole.members) is quoted
    assert ("ran together" in whole.missing) is not quoted


def test_a_stable_window_in_which_all_ranks_ran_is_quoted_where_the_whole_run_is_not():
    content, results = apart(3.3)
    whole, _, stable = audited(content, results).windows
    assert not whole.members
    assert stable.members


def test_ranks_that_the_plan_sends_apart_are_no_fault_of_the_client():
    content = arriving()
    content = [
        replace(each, timestamp_ms=n // 2 * 500 + 60_000 * each.dp_rank) for n, each in enumerate(content)
    ]
    found = audited(content, sent(content, on_time))
    assert found.findings == ()
    assert found.windows[0].members == 20


def test_one_rank_has_nobody_to_run_with():
    content = arriving(ranks=1)
    found = audit(content, [("r", sent(content, on_time))], manifest(ranks=1))
    assert found.overlap is None
    assert found.windows[0].members == 20


@pytest.mark.parametrize(("options", "code"), [((), 1), (("--late", "4"), 0), (("--late", "inf"), 0)])
def test_the_command_takes_the_seconds_that_a_request_may_be_late(
    tmp_path, monkeypatch, capsys, options, code
):
    content = arriving()
    folder = write_set(tmp_path / "set", content)
    begun = [on_time(n, each) + 3.15 * each.dp_rank for n, each in enumerate(content)]
    times = [{"start": start, "first_token": start + 1, "end": start + 5} for start in begun]
    lines = [plain(each, **of) for each, of in zip(content, times, strict=True)]
    (tmp_path / "formal.jsonl").write_bytes(b"".join(lines))
    arguments = ["audit", str(folder), str(tmp_path / "formal.jsonl"), "--json", *options]
    monkeypatch.setattr(sys, "argv", ["wlgen", *arguments])
    with pytest.raises(SystemExit) as left:
        cli.main()
    answer = orjson.loads(capsys.readouterr().out)
    assert left.value.code == code
    assert len([f for f in answer["findings"] if f["promise"] == "on_time"]) == (10 if code else 0)
