"""The door for records: what does not fit is noted with its place, and costs no other value and no record."""

from __future__ import annotations

import json
import math

import orjson
import pytest
from kit.odd_records import APART, CLIENTS, content, document, put, read

from wlgen.errors import Problem
from wlgen.readers import Garbled, Result
from wlgen.readers._door import Part, admitted, decoded, error_words, shown

COUNT = "a count, a whole number from 0 to 2^53"
TIME = "a time in seconds from 0 to 2^40"


@pytest.mark.parametrize(("value", "count"), [(0, 0), (9, 9), (9.0, 9), (2**53, 2**53), (None, None)])
def test_a_count_is_a_whole_number_and_null_says_nothing(value, count):
    record = Part({"n": value})
    assert (record.count("n"), record.count("absent"), record.garbled) == (count, None, [])


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (-1, "-1"),
        (1.5, "1.5"),
        (True, "True"),
        ("12", '"12"'),
        ([12], "[12]"),
        ({"n": 1}, '{"n": 1}'),
        (math.nan, "nan"),
        (1e300, "a whole number of 997 bits"),
        (2**53 + 1, "a whole number of 54 bits"),
        ("\x1b[2J", '"\\x1b[2J"'),
    ],
)
def test_what_is_no_count_is_noted_with_its_key(value, found):
    record = Part({"usage": {"n": value}})
    assert record.part("usage").count("n") is None
    assert record.garbled == [Garbled("usage.n", COUNT, found)]


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, "1", [1], True, 2**40 + 1, 10**400])
def test_what_is_no_time_is_noted(value):
    record = Part({"t": value})
    assert record.seconds("t") is None
    assert [(garbled.key, garbled.expected) for garbled in record.garbled] == [("t", TIME)]


def test_milliseconds_are_no_seconds():
    """1.7e12 is 2023 in milliseconds, and 53,869 years in seconds."""
    assert Part({"t": 1.7e9}).seconds("t") == 1.7e9
    assert Part({"t": 1.7e12}).seconds("t") is None
    assert Part({"t": 1.7e12}).seconds("t", 1e-3) == pytest.approx(1.7e9)


def test_a_value_of_another_kind_is_an_empty_part_and_one_note():
    record = Part({"usage": [1], "list": {"a": 1}, "text": 7, "json": "{"})
    assert record.part("usage").part("details").count("cached_tokens") is None
    assert (record.items("list"), record.text("text"), record.json("json")) == ([], None, None)
    assert [garbled.key for garbled in record.garbled] == ["usage", "list", "text", "json"]


@pytest.mark.parametrize("held", ["a" * 63, "g" * 64, "x"])
def test_a_hash_has_64_hexadecimal_digits(held):
    record = Part({"h": held, "good": "A" * 64})
    assert (record.sha256("h"), record.sha256("good")) == (None, "a" * 64)
    assert len(record.garbled) == 1


def test_times_in_the_wrong_order_are_no_times():
    turned = admitted(Result(place="f:1", index=0, start=5.0, first_token=6.0, end=4.0), Part({}))
    assert isinstance(turned, Result)
    assert (turned.start, turned.first_token, turned.end) == (5.0, None, None)
    assert turned.garbled == (Garbled("times", "start, first token and end in this order", "5, 6, 4"),)
    rounded = admitted(Result(place="f:1", index=0, start=5.0, first_token=6.0005, end=6.0), Part({}))
    assert isinstance(rounded, Result)
    assert not rounded.garbled


def test_a_record_that_names_no_row_is_a_problem_that_says_what_was_garbled():
    (problem,) = read("plain", b'{"id": 7, "usage": {}}\n')
    assert str(problem) == (
        "formal.jsonl:1: expected a record with its row's id, or its index, or the text that was sent, "
        "found garbled: id: 7"
    )


def test_words_of_a_file_do_nothing_to_a_terminal():
    line = {"id": "a\x1b]0;x\x07", "error": "\x1b[2Jlate\r\nnow\x9b2J", "finish_reason": "\x1bc"}
    (result,) = read("plain", orjson.dumps(line))
    assert isinstance(result, Result)
    assert (result.id, result.error) == ("a\\x1b]0;x\\x07", "\\x1b[2Jlate now\\x9b2J")
    assert result.finish_reason == "\\x1bc"
    (problem,) = read("plain", b'{"\\u001b[2J": 1}')
    assert str(problem).isprintable()


def test_an_error_is_said_by_its_message():
    assert error_words({"message": "late", "code": 1}) == "late"
    assert error_words({"error_type": "Timeout", "error_msg": ""}) == "Timeout"
    assert error_words({"code": 500}) == '{"code": 500}'
    assert [error_words(value) for value in (None, "", {}, 0)] == [""] * 4


def test_a_value_is_shown_in_a_few_characters_however_large_or_nested_it_is():
    nested: list[object] = []
    nested.append(nested)
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    for value in (10**5000, "x" * 10**6, nested, deep, b"\x1b[2J", [float("nan")] * 1000):
        assert len(shown(value)) < 80
        assert shown(value).isprintable()


def test_deep_nesting_is_no_json():
    """Of a line with NaN in it Python's own parser would end in a RecursionError."""
    for line in (b"[" * 5000 + b"]" * 5000, b'{"a": NaN, "b": ' + b"[" * 5000 + b"]" * 5000 + b"}"):
        with pytest.raises(ValueError, match=r"\w"):
            decoded(line)


@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_client_writes_itself_passes_the_door_without_a_note(client):
    found = read(client, content(client, document(client)))
    assert [item.garbled for item in found if isinstance(item, Result)] == [()] * len(found)


@pytest.mark.parametrize("client", APART)
@pytest.mark.parametrize("odd", [None, 7, "x", [], [[1]], {}, {"id": {"a": []}}, 1e300, math.nan])
def test_one_bad_record_loses_no_other(client, odd):
    whole = document(client)
    at = ("benchmarks", 0, "requests", "successful", 1) if client == "guidellm" else (1,)
    good = read(client, content(client, whole))
    found = read(client, content(client, put(whole, at, odd)))
    assert found[:1] + found[2:] == good[:1] + good[2:]
    assert isinstance(found[1], Problem)
    assert "[1]" in found[1].place or ":2" in found[1].place


@pytest.mark.parametrize("client", APART)
def test_a_record_that_is_no_json_loses_no_other(client):
    whole = content(client, document(client))
    good = read(client, whole)
    record = document(client)
    record = record["benchmarks"][0]["requests"]["successful"][1] if client == "guidellm" else record[1]
    spoilt = json.dumps(record).replace(": ", ": tru", 1).encode()
    found = read(client, whole.replace(json.dumps(record).encode(), spoilt))
    assert found[:1] + found[2:] == good[:1] + good[2:]
    assert isinstance(found[1], Problem)
    assert "garbled" in found[1].found


@pytest.mark.parametrize(("client", "cached"), [("sglang", True), ("vllm", False)])
def test_one_bad_value_of_an_array_costs_one_request_that_value(client, cached):
    run = document(client)
    field = "cached_tokens" if cached else "output_lens"
    run[field][1], run["itls"][2] = "12", ["x"]
    good, found = read(client, content(client, document(client))), read(client, content(client, run))
    assert [item for n, item in enumerate(found) if n not in (1, 2)] == [
        item for n, item in enumerate(good) if n not in (1, 2)
    ]
    assert [[garbled.key for garbled in item.garbled] for item in found[1:3] if isinstance(item, Result)] == [
        [field],
        ["itls"] if client == "sglang" or "latencies" not in run else [],
    ]


def test_an_array_that_is_none_costs_its_figure_alone():
    run = document("sglang") | {"ttfts": 7}
    problem, *found = read("sglang", content("sglang", run))
    assert isinstance(problem, Problem)
    assert problem.place == "formal.jsonl:1.ttfts"
    assert [(r.prompt_tokens, r.first_token) for r in found if isinstance(r, Result)] == [
        (r.prompt_tokens, None)
        for r in read("sglang", content("sglang", document("sglang")))
        if isinstance(r, Result)
    ]


def test_a_number_or_a_text_beside_the_rows_id_is_the_clients_own():
    line = {"row_id": "formal-r00-000000", "id": 7, "usage": {"prompt_tokens": 9}, "response": "the answer"}
    (result,) = read("plain", orjson.dumps(line))
    assert isinstance(result, Result)
    assert (result.id, result.prompt_tokens, result.garbled) == ("formal-r00-000000", 9, ())


def test_a_file_of_other_words_is_passed_over_to_its_end():
    found = read("sglang", b"no json at all\n" * 100)
    assert 0 < len(found) <= 401
    assert all(isinstance(item, Problem) for item in found)


def test_half_a_surrogate_pair_is_the_text_of_no_row():
    r"""Python's own parser, which reads a line with NaN in it, lets "\ud800" pass; it has no UTF-8."""
    (result,) = read("plain", b'{"id": "row", "text": "\\ud800", "usage": NaN}\n')
    assert isinstance(result, Result)
    assert [garbled.key for garbled in result.garbled] == ["usage"]


@pytest.mark.parametrize("client", ["guidellm", "sglang", "vllm"])
def test_a_key_that_is_no_json_string_ends_the_reading_with_a_problem(client):
    (problem,) = read(client, b'{"\\x": 1}')
    assert isinstance(problem, Problem)
    assert "a key that is no JSON string" in problem.found
