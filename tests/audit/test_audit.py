"""The audit: a good run has no finding, and each way to spoil it gives the right one and no other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from kit.audits import CACHED, OUTPUT, PROMPT, good, manifest, plain, row, rows, write_set

from wlgen import cli
from wlgen.audit.audit import audit, parse_rounds, parse_splits
from wlgen.audit.run_figures import Setting
from wlgen.encodings import Message
from wlgen.errors import Problem, WlgenError

ROWS = rows()
FORMAL = [each for each in ROWS if each.split == "formal"]
IN_TURN = sorted(FORMAL, key=lambda each: (each.id[-6:], each.dp_rank))  # the ranks run together
LEAST = 1642  # the least whole count that is 80 % of 2052
SAMPLES = Path(__file__).parents[1] / "samples"


def audited(results, **options: Any):
    return audit(ROWS, [("results", results)], manifest(), **options)


def broken(found):
    return [(f.id, f.promise, f.expected, f.got) for f in found.findings]


def changed(number, **changes: Any):
    results = good(FORMAL)
    results[number] = replace(results[number], **changes)
    return results


@pytest.fixture
def folder(tmp_path):
    return write_set(tmp_path / "set")


@pytest.fixture
def run(monkeypatch, capsys):
    def command(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["wlgen", "audit", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        streams = capsys.readouterr()
        return int(left.value.code or 0), streams.out, streams.err

    return command


# --- what a good run says


def test_a_good_run_has_no_finding_and_shows_the_three_promises():
    found = audited(good(FORMAL))
    assert found.findings == ()
    assert found.diagnosis == ()
    assert found.problems == ()
    assert found.promises.configured == 0.8
    assert found.promises.aggregate == (8 * CACHED, 8 * PROMPT)
    assert found.promises.per_request_min == (CACHED, PROMPT)


def test_the_formal_rows_are_audited_and_others_are_counted_apart():
    found = audited(good(ROWS))
    assert (len(found.outcomes), found.results, found.elsewhere) == (8, 8, {"seed": 2, "check": 2})
    assert found.findings == ()


def test_several_splits_are_audited_together_and_a_seed_is_no_measured_row():
    found = audited(good(ROWS), splits=("seed", "check", "formal"))
    assert found.findings == ()
    assert [s.split for s in found.by_split] == ["seed", "check", "formal"]
    assert found.promises.per_request_min == (CACHED, PROMPT)


def test_windows_are_of_the_formal_rows_alone():
    checks = [each for each in ROWS if each.split == "check"]
    found = audited(good([*checks, *IN_TURN]), splits=("check", "formal"))
    assert found.windows[0].members == 8


def test_summaries_are_shares_of_single_rows_by_rank():
    found = audited(changed(5, cached_tokens=0))
    rank0, rank1 = found.by_rank
    assert (rank0.minimum, rank0.p50, rank0.findings) == ((CACHED, PROMPT), (CACHED, PROMPT), 0)
    assert (rank1.minimum, rank1.p1, rank1.p50, rank1.findings) == (
        (0, PROMPT),
        (0, PROMPT),
        (CACHED, PROMPT),
        1,
    )
    assert rank1.mean == (3 * CACHED, 4 * PROMPT)


def test_an_aggregate_hides_what_the_worst_row_shows():
    many = [row("formal", 0, number) for number in range(100)]
    results = good(many)
    results[7] = replace(results[7], cached_tokens=0)
    found = audit(many, [("results", results)], manifest(ranks=1))
    assert found.promises.aggregate.value > 0.8
    assert found.promises.per_request_min == (0, PROMPT)
    assert broken(found) == [("formal-r00-000007", "cached_bound", LEAST, 0)]


def test_worst_rows_come_lowest_first():
    results = changed(2, cached_tokens=128)
    results[6] = replace(results[6], cached_tokens=0)
    assert [o.row.id for o in audited(results).worst[:2]] == ["formal-r01-000002", "formal-r00-000002"]


# --- each mutation of a good run gives the right finding and no other


@pytest.mark.parametrize(
    ("changes", "promise", "expected", "got"),
    [
        ({"cached_tokens": CACHED - 128}, "cached_bound", LEAST, CACHED - 128),
        ({"cached_tokens": CACHED + 128}, "cached_len", CACHED, CACHED + 128),
        ({"cached_tokens": PROMPT + 128}, "cached_within_prompt", PROMPT, PROMPT + 128),
        ({"output_tokens": 1}, "output_len", OUTPUT, 1),
        ({"prompt_tokens": PROMPT + 1}, "prompt_len", PROMPT, PROMPT + 1),
        ({"success": False, "error": "late"}, "success", "success", "late"),
        ({"attempts": 2}, "one_attempt", 1, 2),
        ({"dp_rank": 1}, "dp_rank", 0, 1),
    ],
)
def test_one_row_spoilt_is_one_finding(changes, promise, expected, got):
    assert broken(audited(changed(3, **changes))) == [("formal-r00-000003", promise, expected, got)]


def test_a_dropped_row():
    results = good(FORMAL)
    del results[3]
    assert broken(audited(results)) == [("formal-r00-000003", "sent_once", 1, 0)]


def test_a_repeated_row():
    results = good(FORMAL)
    results.append(results[3])
    assert broken(audited(results)) == [("formal-r00-000003", "sent_once", 1, 2)]


def test_a_foreign_row():
    foreign = replace(good(FORMAL)[0], id="formal-r09-000000", text_sha256=None, place="f:9")
    found = broken(audited([*good(FORMAL), foreign]))
    assert found == [("f:9", "of_the_set", "a row of the set", "id formal-r09-000000")]


@pytest.mark.parametrize("by", ["id", "index"])
def test_two_texts_swapped(by):
    in_turn = sorted(FORMAL, key=lambda each: (each.id[-6:], each.dp_rank))
    results = [replace(r, index=i, id=r.id if by == "id" else None) for i, r in enumerate(good(in_turn))]
    texts = [r.text_sha256 for r in results]
    results[1], results[6] = (
        replace(results[1], text_sha256=texts[6]),
        replace(results[6], text_sha256=texts[1]),
    )
    assert sorted(broken(audited(results))) == [
        ("formal-r00-000003", "text", texts[6], texts[1]),
        ("formal-r01-000000", "text", texts[1], texts[6]),
    ]


def test_79_tokens_more_in_every_prompt():
    found = audited(good(FORMAL, prompt_tokens=PROMPT + 79))
    assert broken(found) == [(each.id, "prompt_len", PROMPT, PROMPT + 79) for each in FORMAL]
    (cause,) = found.diagnosis
    assert (cause.cause, cause.rows) == ("framing", 8)
    assert "thinking is on" in cause.evidence


def test_every_row_a_quantum_short():
    found = audited(good(FORMAL, cached_tokens=CACHED - 128))
    assert {f.promise for f in found.findings} == {"cached_bound"}
    (cause,) = found.diagnosis
    assert "multiples of 256 tokens" in cause.evidence
    assert "speculative decoding (EAGLE/MTP) is on [speculative]" in cause.evidence


def test_no_figure_at_all_is_no_pass():
    found = audited(good(FORMAL, cached_tokens=None))
    assert found.findings == ()
    assert (found.verdict, len(found.unobserved)) == ("NOT PROVED", 8)
    assert found.states == {"unobserved": 8}
    assert found.promises.aggregate is None
    assert found.promises.per_request_min is None
    assert [d.cause for d in found.diagnosis] == ["not_observed"]


def test_a_figure_that_cannot_be_right_is_in_no_summary():
    found = audited(changed(0, cached_tokens=10 * PROMPT))
    assert found.by_split[0].observed == 7
    assert found.promises.aggregate == (7 * CACHED, 7 * PROMPT)


def test_absent_is_zero_only_where_the_caller_vouches_for_it_and_usage_was_reported():
    zero = [row("formal", 0, number, cached_len=0) for number in range(3)]
    results = good(zero, cached_tokens=None)
    results[2] = replace(results[2], prompt_tokens=None)
    bound = manifest({"max_tokens": 0}, ranks=1)
    found = audit(zero, [("results", results)], bound, absent_is_zero=True)
    assert found.assumed_zero == 2
    assert [(o.row.id, o.missing) for o in found.unobserved] == [
        (zero[2].id, ("prompt_tokens", "cached_tokens"))
    ]
    assert len(audit(zero, [("results", results)], bound).unobserved) == 3


def test_what_could_not_be_read_stands_beside_what_could():
    found = audited([*good(FORMAL)[:-1], Problem(place="f:8", expected="a whole JSON line", found="cut")])
    assert broken(found) == [("formal-r01-000003", "sent_once", 1, 0)]
    assert [p.place for p in found.problems] == ["f:8"]


def test_nothing_usable_is_an_error():
    with pytest.raises(WlgenError, match="expected results, found none"):
        audited([])
    with pytest.raises(WlgenError, match="Give --split check"):
        audited(good([each for each in ROWS if each.split == "check"]))


def test_a_split_that_the_set_has_not_is_an_error():
    with pytest.raises(WlgenError, match="a split that the set has"):
        audit(FORMAL, [("results", good(FORMAL))], manifest(), splits=("seed",))


def test_splits_are_named_once_and_in_order():
    assert parse_splits(["formal", "check", "formal"]) == ("check", "formal")
    with pytest.raises(WlgenError, match="found warm, hot"):
        parse_splits(["warm", "formal", "hot"])


# --- classes, aggregates, rounds, sessions, traces


COLD = {"name": "cold", "cached": {"max_tokens": 0}}
WARM = {"name": "warm", "cached": {"min_ratio": 0.8}}


def of_requests(requests):
    return replace(manifest(), spec={"dp_ranks": 2, "requests": requests})


def audited_rows(content, results, requests=None, **options: Any):
    of = manifest() if requests is None else of_requests(requests)
    return audit(content, [("results", results)], of, **options)


def mixed():
    cold = [row("formal", 0, n, request_class="cold", cached_len=0) for n in range(3)]
    return [*cold, *(row("formal", 0, n, request_class="warm") for n in range(3, 5))]


def test_each_row_is_held_to_the_bound_of_its_own_class():
    results = good(mixed())
    assert audited_rows(mixed(), results, [COLD, WARM]).findings == ()
    results[1] = replace(results[1], cached_tokens=128)
    results[4] = replace(results[4], cached_tokens=CACHED - 128)
    assert broken(audited_rows(mixed(), results, [COLD, WARM])) == [
        ("formal-r00-000001", "cached_bound", 0, 128),
        ("formal-r00-000004", "cached_bound", LEAST, CACHED - 128),
    ]


def test_the_promises_are_told_class_by_class():
    results = good(mixed())
    results[4] = replace(results[4], cached_tokens=CACHED - 128)
    cold, warm = audited_rows(mixed(), results, [COLD, WARM]).classes
    assert (cold.name, cold.rows, cold.planned, cold.observed) == (
        "cold",
        3,
        (0, 3 * PROMPT),
        (0, 3 * PROMPT),
    )
    assert (warm.planned, warm.observed) == ((2 * CACHED, 2 * PROMPT), (2 * CACHED - 128, 2 * PROMPT))
    assert (warm.planned_min, warm.observed_min) == ((CACHED, PROMPT), (CACHED - 128, PROMPT))


HALF = {"cached": {"aggregate": 0.5}}  # within 0.005 where the spec names no tolerance


def halves(cached_lens, **changes: Any):
    lengths = {"prompt_len": 1000, "body_len": 996, "shared_len": 512}
    return [row("formal", 0, n, cached_len=c, **lengths, **changes) for n, c in enumerate(cached_lens)]


def test_an_aggregate_is_a_promise_of_all_rows_and_of_none_alone():
    content = halves([200, 800, 500, 520])
    assert audited_rows(content, good(content), HALF).findings == ()
    content = halves([200, 800, 500, 521])
    assert broken(audited_rows(content, good(content), HALF)) == [
        ("small", "aggregate", "49.5000 % to 50.5000 %", "50.5250 % (2021 of 4000 tokens)")
    ]
    wider = {"cached": {"aggregate": 0.5, "tolerance": 0.01}}
    assert audited_rows(content, good(content), wider).findings == ()


def test_an_aggregate_names_its_class_and_is_undecided_while_a_row_is_missing():
    content = [*mixed()[:3], *halves([0, 0], request_class="half")]
    content[3:] = [replace(each, id=f"{each.id}-half") for each in content[3:]]
    classes = [COLD, {"name": "half"} | HALF]
    assert broken(audited_rows(content, good(content), classes)) == [
        ("small class half", "aggregate", "49.5000 % to 50.5000 %", "0.0000 % (0 of 2000 tokens)")
    ]
    found = broken(audited_rows(content, good(content)[:-1], classes))
    assert found == [(content[-1].id, "sent_once", 1, 0)]


@pytest.mark.parametrize("requests", [{"trace": {"path": "t.jsonl"}}, {"cached": {"cold": True}}])
def test_a_trace_and_a_cold_class_have_no_bound_but_the_plan(requests):
    content = halves([0, 512, 128])
    assert audited_rows(content, good(content), requests).findings == ()
    results = good(content)
    results[1] = replace(results[1], cached_tokens=384)
    assert broken(audited_rows(content, results, requests)) == [("formal-r00-000001", "cached_len", 512, 384)]


def test_recorded_answers_that_the_server_found_are_accepted_and_counted():
    content = [
        row("formal", 0, 0, session="s000000", turn=0, cached_len_recorded=CACHED),
        row("formal", 0, 1, session="s000000", turn=1, cached_len_recorded=CACHED + 256),
        row("formal", 0, 2, session="s000000", turn=2, cached_len_recorded=CACHED + 256),
    ]
    results = good(content)
    results[1] = replace(results[1], cached_tokens=CACHED + 256)
    found = audited_rows(content, results)
    assert (found.findings, found.recorded) == ((), 1)
    results[2] = replace(results[2], cached_tokens=CACHED + 128)
    assert broken(audited_rows(content, results)) == [
        ("formal-r00-000002", "cached_len", CACHED, CACHED + 128)
    ]


def rounds_of(count):
    return [
        row("formal", 0, n, round=k, id=f"formal-r00-{n:06d}-k{k}", messages=(Message("user", f"{n} {k}"),))
        for k in range(count)
        for n in range(2)
    ]


def test_rows_of_the_round_asked_for_are_sent_once_and_others_are_counted_apart():
    content = rounds_of(3)
    found = audited_rows(content, good(content[2:]), rounds=(1,))
    assert (found.findings, found.results, found.elsewhere) == ((), 2, {"round 2 formal": 2})
    (finding,) = audited_rows(content, good(content[2:3]), rounds=(1,)).findings
    assert (finding.id, finding.promise) == ("formal-r00-000001-k1", "sent_once")
    with pytest.raises(WlgenError, match="Give --round 2"):
        audited_rows(content, good(content[4:]), rounds=(1,))


def test_the_first_round_that_is_built_is_audited_by_default():
    assert (parse_rounds([], None), parse_rounds([], [2, 1]), parse_rounds([2, 1], [1, 2])) == (
        (0,),
        (1,),
        (1, 2),
    )
    with pytest.raises(WlgenError, match="a round that is built: 1, 2"):
        parse_rounds([0], [1, 2])


def test_a_prompt_that_a_trace_repeats_is_no_finding():
    content = [replace(each, messages=ROWS[0].messages) for each in halves([0, 512, 512])]
    results = [replace(r, id=None) for r in good(content)]
    assert audited_rows(content, results[::-1], {"trace": {"path": "t.jsonl"}}).findings == ()


def test_a_setting_reaches_the_windows():
    found = audited(good(IN_TURN), setting=Setting(concurrency=7, cards=4))
    assert found.windows[0].concurrency == 7
    assert found.windows[0].output_tokens_per_s_per_card


# --- through the command line


def test_exit_0_and_the_answer_as_json(folder, tmp_path, run):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"".join(map(plain, FORMAL)))
    code, out, err = run(folder, path, "--json")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert answer["ok"] is True
    assert answer["findings"] == answer["diagnosis"] == answer["problems"] == []
    assert answer["promises"] == {
        "configured": 0.8,
        "aggregate": CACHED / PROMPT,
        "per_request_min": CACHED / PROMPT,
    }
    assert [window["name"] for window in answer["windows"]] == ["whole", "stable_v1", "stable_v2"]


def test_exit_1_and_findings_with_their_four_keys(folder, tmp_path, run):
    path = tmp_path / "results.jsonl"
    usage = {
        "prompt_tokens": PROMPT,
        "completion_tokens": OUTPUT,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    path.write_bytes(b"".join(map(plain, FORMAL[:-1])) + plain(FORMAL[-1], usage=usage))
    code, out, _ = run(folder, path, "--json")
    assert code == 1
    finding = {"id": FORMAL[-1].id, "promise": "cached_bound", "expected": LEAST, "got": 0}
    assert json.loads(out)["findings"] == [finding]
    code, out, _ = run(folder, path)
    assert code == 1
    assert f"{FORMAL[-1].id}: expected {LEAST}, got 0" in out


def test_a_file_cut_in_a_line_is_exit_2_with_the_rows_that_could_be_read(folder, tmp_path, run):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"".join(map(plain, FORMAL))[:-40])
    code, out, err = run(folder, path, "--json")
    answer = json.loads(out)
    assert code == 2
    assert [(f["id"], f["promise"]) for f in answer["findings"]] == [(FORMAL[-1].id, "sent_once")]
    assert answer["results"] == 7
    assert len(answer["problems"]) == 1
    assert re.fullmatch(r"wlgen: \S+results\.jsonl:8: expected a whole JSON line, found .* was cut\n", err)


def bad_inputs(folder, tmp_path):
    results = tmp_path / "results.jsonl"
    results.write_bytes(b"".join(map(plain, FORMAL)))
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    other = tmp_path / "other.jsonl"
    other.write_bytes(plain(row("formal", 7, 7)) * 3)
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    spoilt = shutil.copytree(folder, tmp_path / "spoilt")
    with (spoilt / "formal/rank-00.jsonl").open("ab") as content:
        content.write(b"\n")
    return {
        "another set": ((folder, other), "expected results of this set.*none of them of a row"),
        "empty": ((folder, empty), "found an empty file"),
        "no results in a folder": (
            (folder, nothing),
            "expected result files of a known client in this folder",
        ),
        "no set": ((nothing, results), "expected a built set"),
        "unknown client": ((folder, results, "--client", "aisbnch"), "Did you mean 'aisbench'"),
        "wrong client": ((folder, results, "--client", "aiperf"), "expected a record with metadata"),
        "unknown split": ((folder, results, "--split", "warm"), "--split: expected seed or check or formal"),
        "a changed set": ((spoilt, results), "expected sha256"),
        "no such file": ((folder, tmp_path / "missing"), "No such file or directory"),
        "a page that cannot be written": ((folder, results, "--html", tmp_path / "no/page.html"), "page"),
    }


@pytest.mark.parametrize(
    "case",
    [
        "another set",
        "empty",
        "no results in a folder",
        "no set",
        "unknown client",
        "wrong client",
        "unknown split",
        "a changed set",
        "no such file",
        "a page that cannot be written",
    ],
)
def test_bad_input_is_exit_2_and_clear_lines(case, folder, tmp_path, run):
    arguments, message = bad_inputs(folder, tmp_path)[case]
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert re.search(message, err)
    assert all(line.startswith("wlgen: ") for line in err.splitlines())


def test_aisbench_stock_results_are_audited_for_all_they_hold(tmp_path, run):
    """Five rows that AISBench sent: all is as sent, and cached tokens are NOT_OBSERVED."""
    sent = [orjson.loads(line) for line in (SAMPLES / "aisbench/rows5.jsonl").read_bytes().splitlines()]
    content = [
        replace(
            row(
                "formal",
                0,
                number,
                prompt_len=612 + 4 * number,
                output_len=16,
                cached_len=512,
                shared_len=512,
            ),
            messages=(ROWS[0].messages[0]._replace(content=each["question"]),),
        )
        for number, each in enumerate(sent)
    ]
    folder = write_set(tmp_path / "set", content)
    code, out, _ = run(folder, SAMPLES / "aisbench/stock", "--json")
    answer = json.loads(out)
    assert code == 1
    assert (answer["findings"], answer["verdict"]) == ([], "NOT PROVED")
    assert answer["not_observed"] == {"rows": 5, "counts": ["cached_tokens"]}
    assert "stock model class keeps no cached tokens" in answer["diagnosis"][0]["remedy"]
    assert answer["windows"][0]["members"] == 5
    code, out, _ = run(folder, SAMPLES / "aisbench/drop", "--json")
    found = json.loads(out)["findings"]
    assert [(f["id"][-1], f["promise"]) for f in found] == [
        ("0", "cached_bound"),
        ("2", "one_attempt"),
        ("4", "one_attempt"),
    ]


def test_the_command_as_a_real_process(folder, tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"".join(map(plain, FORMAL)))
    page = tmp_path / "page.html"
    wlgen = Path(sys.executable).with_name("wlgen")
    command = [wlgen, "audit", folder, path, "--html", page]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "all promises hold" in done.stdout
    assert "KEPT, all promises hold" in page.read_text()
