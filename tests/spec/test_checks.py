"""What keys say against each other is one clear line each, at its line of the file, and exit code 2."""

from __future__ import annotations

import sys
import time

import pytest

from wlgen.cli import main
from wlgen.errors import WlgenError
from wlgen.spec import file as spec_file

HEAD = """\
name: wrong
cache: {engine: sglang, page_size: 16}
dp_ranks: 2
"""
ONE = """\
requests: {body_len: 400, output_len: 8, cached: {min_ratio: 0.5}, PREFIX}
splits: {formal: {total: 6}}
"""
CLASS = "  - {name: NAME, body_len: 400, output_len: 8, cached: {min_ratio: 0.5}, SHARE}\n"


def one(prefix: str) -> str:
    return ONE.replace("PREFIX", prefix)


def of(body: str) -> str:
    return ONE.replace("400", body, 1).replace(", PREFIX", "")


def classes(*shares: str, total: int = 6) -> str:
    listed = "".join(CLASS.replace("NAME", f"c{n}").replace("SHARE", share) for n, share in enumerate(shares))
    return f"requests:\n{listed}splits: {{formal: {{total: {total}}}}}\n"


def trace(lines: str) -> str:
    return f"requests: {{trace: {{path: {lines}, block_size: 64}}}}\n"


WRONG = {
    "weights of nothing": (classes("weight: 0", "weight: 0"), 4, "expected at least one weight above 0"),
    "counts that do not sum": (
        classes("count: 2", "count: 3"),
        4,
        "expected counts that sum to the 6 formal rows, found 5",
    ),
    "a count beside a weight": (
        classes("count: 2", "weight: 3"),
        4,
        "expected a count for each class and no weight",
    ),
    "two classes of one name": (
        classes("count: 2", "count: 4").replace("c1", "c0"),
        5,
        "expected a name of its own for each class",
    ),
    "more groups than rows": (
        one("prefix: {shared_by: group, groups: 7}"),
        4,
        "at most one group for each of the 6 formal rows",
    ),
    "more groups than rows of the class": (
        classes("count: 2, prefix: {shared_by: group, groups: 3}", "count: 4"),
        5,
        "at most one group for each of the 2 formal rows",
    ),
    "weights of other groups": (
        one("prefix: {shared_by: group, groups: 2, popularity: {weights: [1, 2, 3]}}"),
        4,
        "expected 2 weights, one a group, found 3",
    ),
    "popularity of nothing": (
        one("prefix: {shared_by: group, groups: 2, popularity: {weights: [0, 0]}}"),
        4,
        "expected at least one weight above 0",
    ),
    "rows that fill the ranks unlike": (
        one("prefix: {levels: [{shared_by: all, tokens: 64}, {shared_by: rank}]}").replace(
            "total: 6", "total: 5"
        ),
        5,
        "expected a multiple of dp_ranks 2",
    ),
    "two levels that say the rank": (
        one("prefix: {levels: [{shared_by: rank, tokens: 64}, {shared_by: group, groups: 2, ranks: one}]}"),
        4,
        "expected at most one level that fixes the rank of its rows",
    ),
    "a level without length": (
        one("prefix: {levels: [{shared_by: all}, {shared_by: rank}]}"),
        4,
        "expected tokens, pages or ratio for each level but the last",
    ),
    "a level of no page": (
        one("prefix: {levels: [{shared_by: all, ratio: 0.01}, {shared_by: rank}]}"),
        4,
        "expected at least one page of 16 tokens for each level, found none for level 1",
    ),
    "a level longer than its row": (
        one("prefix: {shared_by: all, tokens: 500}"),
        4,
        "a level longer than its row: 6 rows",
    ),
    "a bound that no row can meet": (
        of("{uniform: [100, 101]}").replace("min_ratio: 0.5", "min_ratio: 0.95"),
        4,
        "6 rows that miss it, by up to",
    ),
    "an aggregate out of reach": (
        of("{uniform: [300, 400]}").replace("min_ratio: 0.5", "aggregate: 0.99"),
        4,
        "can be reached, in steps of 16 tokens over 6 rows, each rank by itself. The nearest that passes: ",
    ),
    "cold without a length": (
        one("prefix: {shared_by: all}").replace("min_ratio: 0.5", "cold: true"),
        4,
        "since a cold class has no bound to derive it from",
    ),
    "a second round of a cold set": (
        one("prefix: {shared_by: all, tokens: 64}").replace("min_ratio: 0.5", "cold: true") + "rounds: 2\n",
        6,
        "expected one round of a cold set, since a later one finds what the first has left, found 2",
    ),
    "turns that do not divide": (
        one("session: {turns: 4, user_len: 9, assistant_len: 9}"),
        5,
        "expected a multiple of the 4 turns of a session, found 6 rows",
    ),
    "shuffled turns": (
        one("session: {turns: 3, user_len: 9, assistant_len: 9}") + "order: shuffled\n",
        6,
        "expected an order that keeps the turns of a session",
    ),
    "bins of no count": (
        of("{histogram: [{low: 300, high: 400, count: 0}]}"),
        4,
        "expected at least one bin with a count above 0",
    ),
    "a column that is not there": (
        of("{column: {path: t.csv, column: out}}"),
        4,
        "expected the column out, found the columns in",
    ),
    "a file that is not there": (of("{column: {path: u.csv, column: in}}"), 4, "No such file"),
    "too few hash ids": (
        trace("few.jsonl"),
        4,
        "few.jsonl:1: expected 2 hash_ids for 100 tokens in blocks of 64, found 1",
    ),
    "times out of order": (
        trace("late.jsonl"),
        4,
        "late.jsonl:2: expected a timestamp of at least that of the line above it, found 8 below 9",
    ),
    "a cut line": (trace("cut.jsonl"), 4, "cut.jsonl:1: expected a JSON object a line"),
    "an absent key": (trace("keys.jsonl"), 4, "keys.jsonl:1 hash_ids: expected"),
}
FILES = {
    "t.csv": "in\n300\n",
    "few.jsonl": '{"timestamp": 0, "input_length": 100, "output_length": 1, "hash_ids": [1]}\n',
    "late.jsonl": '{"timestamp": 9, "input_length": 60, "output_length": 1, "hash_ids": [1]}\n'
    '{"timestamp": 8, "input_length": 60, "output_length": 1, "hash_ids": [1]}\n',
    "cut.jsonl": '{"timestamp": 9, "inp',
    "keys.jsonl": '{"timestamp": 9, "input_length": 60, "output_length": 1}\n',
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_one_clear_line_and_exit_code_2(name, tmp_path, capsys, monkeypatch):
    text, line, message = WRONG[name]
    for file, content in FILES.items():
        (tmp_path / file).write_text(content)
    path = tmp_path / "wrong.yaml"
    path.write_text(HEAD + text)
    monkeypatch.setattr(sys, "argv", ["wlgen", "plan", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert all("expected" in line for line in said.splitlines())
    assert f"wrong.yaml:{line} " in said or ".jsonl:" in said or "t.csv:" in said


LARGE = """
name: large
cache: {rule: sglang, page_size: 16}
dp_ranks: RANKS
rounds: ROUNDS
requests: {body_len: BODY, output_len: 8, cached: {min_ratio: 0.5}}
splits: {check: {per_rank: CHECKS}, formal: {total: ROWS}}
"""


def large(**changes: int) -> str:
    text = LARGE
    for name, value in ({"RANKS": 1, "ROUNDS": 1, "BODY": 256, "CHECKS": 1, "ROWS": 64} | changes).items():
        text = text.replace(name, str(value))
    return text


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"BODY": 2**24 + 1}, "requests.body_len: expected at most 16777216, found 16777217"),
        ({"BODY": 2**31}, "requests.body_len: expected at most 16777216, found 2147483648"),
        ({"BODY": 99999999999999999999}, "body_len: expected at most 16777216, found 99999999999999999999"),
        ({"ROWS": 10**9}, "splits.formal.total: expected at most 10000000, found 1000000000"),
        (
            {"ROWS": 10**7},
            "splits: expected at most 10000000 formal rows and checks in all rounds, found",
        ),
        ({"ROWS": 10**6, "ROUNDS": 11}, "in all rounds, found 11000011"),
        ({"RANKS": 65536, "CHECKS": 200}, "in all rounds, found 13107264"),
    ],
)
def test_sizes_that_no_plan_holds_are_refused_at_once(changes, problem):
    started = time.monotonic()
    with pytest.raises(WlgenError) as failure:
        spec_file.parse(large(**changes), "s.yaml")
    assert problem in str(failure.value)
    assert time.monotonic() - started < 2


def test_the_largest_sizes_are_specs():
    assert spec_file.parse(large(BODY=2**24), "s").requests[0].body_len == 2**24
    assert spec_file.parse(large(ROWS=10**7 - 1), "s").splits.formal.total == 10**7 - 1


def test_a_session_is_no_longer_than_a_prompt():
    text = large(ROWS=1000).replace(
        "cached:", "session: {turns: 1000, user_len: 9000, assistant_len: 9000}, cached:"
    )
    with pytest.raises(WlgenError, match=r"session\.turns: expected a last turn of at most 16777216 tokens"):
        spec_file.parse(text, "s.yaml")
