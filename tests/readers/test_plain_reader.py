"""The plain reader, and the spellings of the server's counts."""

from __future__ import annotations

import hashlib
import io

import orjson
import pytest

from wlgen.errors import Problem
from wlgen.readers import Result, Source, plain
from wlgen.readers._door import Part
from wlgen.readers._usage import Counts, counts


def read(record):
    found = list(plain.read(Source(name="file", content=io.BytesIO(orjson.dumps(record)))))
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, Counts(9, None, 2)),
        ({"prompt_tokens": 9, "prompt_tokens_details": None}, Counts(9, None, None)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {}}, Counts(9, None, None)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": None}}, Counts(9, None, None)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}}, Counts(9, 0, None)),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}}, Counts(9, 8, None)),
        (
            {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 2},
            Counts(9, 8, 2),
        ),
        (
            {"prompt_tokens": 9, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 1},
            Counts(9, 8, None),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 8}, Counts(9, 8, 2)),
        # Anthropic's input_tokens excludes what the cache read or wrote
        ({"input_tokens": 1, "cache_read_input_tokens": 8, "output_tokens": 2}, Counts(9, 8, 2)),
        (
            {"input_tokens": 1, "cache_read_input_tokens": 6, "cache_creation_input_tokens": 2},
            Counts(9, 6, None),
        ),
        ({"prompt_tokens": 9, "cache_read_input_tokens": 8}, Counts(9, 8, None)),
        ({"prompt_tokens": True, "completion_tokens": "2", "cached_tokens": -1}, Counts()),
        ({"prompt_tokens": 9.0}, Counts(9)),
        (None, Counts()),
        ([1], Counts()),
    ],
)
def test_missing_is_unknown_and_each_spelling_is_known(usage, expected):
    assert counts(Part(usage)) == expected


def test_usage_beside_the_row_id():
    result = read({"id": "formal-r00-000000", "usage": {"prompt_tokens": 9}, "start": 1, "end": 2.5})
    assert isinstance(result, Result)
    assert (result.id, result.prompt_tokens, result.start, result.end) == ("formal-r00-000000", 9, 1, 2.5)


def test_whole_openai_response_beside_the_row_id():
    choice = {"finish_reason": "length", "message": {"content": "x"}}
    response = {
        "id": "chatcmpl-1",
        "choices": [choice],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2},
    }
    result = read({"id": "row", "response": response})
    assert (result.id, result.prompt_tokens, result.output_tokens) == ("row", 9, 2)
    assert result.finish_reason == "length"


def test_whole_generate_response_beside_the_row_id():
    meta = {"prompt_tokens": 9, "cached_tokens": 8, "completion_tokens": 2, "dp_rank": 3, "id": "rid"}
    meta["finish_reason"] = {"type": "length", "length": 2}
    result = read({"id": "row", "response": {"text": "x", "meta_info": meta}})
    assert (result.cached_tokens, result.dp_rank, result.finish_reason) == (8, 3, "length")


def test_openai_batch_line_is_of_its_custom_id():
    body = {"usage": {"prompt_tokens": 9}}
    line = {
        "id": "batch_req_1",
        "custom_id": "row",
        "response": {"status_code": 200, "body": body},
        "error": None,
    }
    result = read(line)
    assert (result.id, result.success, result.prompt_tokens) == ("row", True, 9)
    line["response"] = {"status_code": 503, "body": {"error": {"message": "overloaded"}}}
    assert (read(line).success, read(line).error) == (False, "overloaded")


def test_a_stated_failure_is_a_failure():
    assert not read({"id": "row", "success": False}).success
    assert not read({"id": "row", "error": "late"}).success
    assert not read({"id": "row", "success": "yes"}).success


def test_text_may_stand_for_the_id():
    result = read({"text": "hello", "usage": {}})
    assert result.text_sha256 == hashlib.sha256(b"hello").hexdigest()
    assert read({"messages": [{"role": "user", "content": "hello"}]}).text_sha256 == result.text_sha256


def test_a_line_of_no_row_is_a_problem():
    problem = read({"usage": {"prompt_tokens": 9}})
    assert isinstance(problem, Problem)
    assert problem.place == "file:1"
