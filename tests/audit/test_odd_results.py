"""`wlgen audit` over odd result files: exit 1 or 2 with the other rows read, never 70 and no escapes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import orjson
import pytest
from kit.audits import good, manifest, plain, rows, write_set

from wlgen import cli
from wlgen.audit.audit import audit
from wlgen.readers import Garbled

FORMAL = [each for each in rows() if each.split == "formal"]
GOOD = [plain(each) for each in FORMAL]
LINE = orjson.loads(GOOD[0])
USAGE = LINE["usage"]


@pytest.fixture
def spoilt(tmp_path, monkeypatch, capsys):
    """Audit the eight formal rows, of which the first has this line: exit code, answer, lines of errors."""
    folder = write_set(tmp_path / "set")

    def command(line: bytes, *options: str, rest: bytes = b"".join(GOOD[1:])) -> tuple[int, Any, str]:
        path = tmp_path / "formal.jsonl"
        path.write_bytes(line + rest)
        found = []
        for form in ((), ("--json",)):
            arguments = ["wlgen", "audit", str(folder), str(path), "--client", "plain", *options, *form]
            monkeypatch.setattr(sys, "argv", arguments)
            with pytest.raises(SystemExit) as left:
                cli.main()
            streams = capsys.readouterr()
            assert "Traceback" not in streams.err
            assert (streams.out + streams.err).replace("\n", "").isprintable()
            found.append((int(left.value.code or 0), streams))
        assert found[0][0] == found[1][0]
        code, streams = found[1]
        return code, orjson.loads(streams.out) if streams.out else None, streams.err

    return command


def line(**changes: Any) -> bytes:
    return json.dumps(LINE | changes).encode() + b"\n"


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"usage": USAGE | {"prompt_tokens": "2052"}}, "usage.prompt_tokens"),
        ({"usage": USAGE | {"prompt_tokens": -1}}, "usage.prompt_tokens"),
        ({"usage": USAGE | {"prompt_tokens": 10**30}}, "usage.prompt_tokens"),
        ({"usage": USAGE | {"completion_tokens": 1e300}}, "usage.completion_tokens"),
        ({"usage": USAGE | {"completion_tokens": float("nan")}}, "usage.completion_tokens"),
        ({"usage": USAGE | {"prompt_tokens_details": [1664]}}, "usage.prompt_tokens_details"),
        ({"usage": USAGE | {"prompt_tokens_details": {"cached_tokens": {"n": 1}}}},
         "usage.prompt_tokens_details.cached_tokens"),
        ({"usage": [USAGE]}, "usage"),
        ({"usage": "\x1b[2J"}, "usage"),
        ({"response": [1]}, "response"),
        ({"start": "now"}, "start"),
        ({"start": 1, "end": float("inf")}, "end"),
        ({"start": 1.7e12}, "start"),
        ({"start": 9, "end": 5}, "times"),
        ({"dp_rank": -1}, "dp_rank"),
        ({"attempts": [2]}, "attempts"),
        ({"text_sha256": "\x1b]0;x\x07"}, "text_sha256"),
        ({"index": 1e300}, "index"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_a_finding_of_its_row_and_the_others_are_read(spoilt, changes, key):
    code, answer, _ = spoilt(line(**changes))
    assert code == 1
    assert answer["results"] == 8
    garbled = [finding for finding in answer["findings"] if finding["promise"] == "garbled"]
    assert [(finding["id"], finding["expected"].split(":")[0]) for finding in garbled] == [
        (FORMAL[0].id, key)
    ]
    assert garbled[0]["got"].endswith("formal.jsonl:1")
    assert {finding["id"] for finding in answer["findings"]} == {FORMAL[0].id}


@pytest.mark.parametrize(
    "changes", [{"usage": None}, {"usage": {}}, {"usage": USAGE | {"prompt_tokens_details": None}}]
)
def test_null_says_nothing_and_is_not_garbled(spoilt, changes):
    code, answer, _ = spoilt(line(**changes))
    assert code == 1
    assert (answer["findings"], answer["verdict"]) == ([], "NOT PROVED")
    assert answer["not_observed"]["rows"] == 1


@pytest.mark.parametrize(
    "bad",
    [
        GOOD[0][:70] + b"\n",
        b"null\n",
        b"[1, 2]\n",
        b'"text"\n',
        b"\x00\xff\xfe\x1b[2J\n",
        line().decode().encode("utf-16-le") + b"\n",
        line(x="\xe9").decode("ascii").replace("\\u00e9", "\xe9").encode("latin-1"),
        b'{"\x1b[2J": 1}\n',
        b'{"id": null, "usage": {}}\n',
        b'{"id": {"a": 1}}\n',
        b"[" * 5000 + b"\n",
        b'{"x": NaN, "id": ' + b"[" * 5000 + b"\n",
    ],
)
def test_a_record_that_is_none_is_bad_input_with_its_place_and_the_others_are_read(spoilt, bad):
    code, answer, errors = spoilt(bad)
    assert code == 2
    assert answer["results"] == 7
    assert [(f["id"], f["promise"], f["got"]) for f in answer["findings"]] == [(FORMAL[0].id, "sent_once", 0)]
    assert "formal.jsonl:1: expected" in errors


def test_a_last_line_that_is_cut_is_said_and_the_others_are_read(spoilt):
    code, answer, errors = spoilt(b"".join(GOOD[:7]), rest=GOOD[7][:90])
    assert (code, answer["results"]) == (2, 7)
    assert "formal.jsonl:8" in errors
    assert "the file was cut" in errors


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\0" * 9000])
def test_an_empty_file_is_bad_input_with_a_remedy(spoilt, content):
    code, answer, errors = spoilt(content, rest=b"")
    assert (code, answer["ok"], len(answer["problems"])) == (2, False, 1)
    assert "found an empty file. The client wrote nothing: see why it stopped" in errors


def test_many_bad_lines_are_counted_and_a_few_are_told(spoilt):
    """Two hundred bad lines are 200 places, of which five are told."""
    code, answer, errors = spoilt(b"no json\n" * 200, rest=b"".join(GOOD))
    assert (code, answer["results"]) == (2, 8)
    lines = errors.splitlines()
    assert len(lines) == 6
    assert lines[5] == "wlgen: and 195 more lines like these"


def test_the_verdict_counts_each_place_that_could_not_be_read(tmp_path, monkeypatch, capsys):
    path = tmp_path / "formal.jsonl"
    path.write_bytes(b"no json\n" * 200 + b"".join(GOOD))
    monkeypatch.setattr(
        sys, "argv", ["wlgen", "audit", str(write_set(tmp_path / "set")), str(path), "--client", "plain"]
    )
    with pytest.raises(SystemExit):
        cli.main()
    assert "incomplete, 200 places could not be read" in capsys.readouterr().out


def test_a_figure_that_was_garbled_is_never_taken_as_zero(spoilt):
    """--absent-is-zero vouches for figures that are absent; -1 is not absent."""
    bad = line(usage=USAGE | {"prompt_tokens_details": {"cached_tokens": -1}})
    code, answer, _ = spoilt(bad, "--absent-is-zero")
    assert (code, answer["assumed_zero"]) == (1, 0)
    assert [finding["promise"] for finding in answer["findings"]] == ["garbled"]
    assert answer["not_observed"] == {"rows": 1, "counts": ["cached_tokens"]}


def test_a_failed_request_is_asked_nothing_else_than_why(spoilt):
    code, answer, _ = spoilt(line(error="\x1b[31mlate", usage=[7]))
    assert code == 1
    assert [(f["promise"], f["got"]) for f in answer["findings"]] == [("success", "\\x1b[31mlate")]


def test_results_of_other_splits_are_counted_in_json_too(spoilt):
    check = next(each for each in rows() if each.split == "check")
    code, answer, _ = spoilt(GOOD[0] + plain(check))
    assert (code, answer["results_of_other_splits"]) == (0, {"check": 1})


def test_a_garbled_value_of_a_row_is_one_finding_with_its_key_and_place():
    results = good(FORMAL)
    results[3] = replace(
        results[3], cached_tokens=None, garbled=(Garbled("usage.cached_tokens", "a count", "-1"),)
    )
    found = audit(rows(), [("results", results)], manifest())
    assert [(f.id, f.promise, f.expected, f.got) for f in found.findings] == [
        (FORMAL[3].id, "garbled", "usage.cached_tokens: a count", "-1 at results:4"),
    ]
    assert [(o.row.id, o.missing) for o in found.unobserved] == [(FORMAL[3].id, ("cached_tokens",))]
