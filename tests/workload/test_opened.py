"""A set is read back as it was written, and whatever else stands in its place is said with file and line."""

from __future__ import annotations

import hashlib
from dataclasses import MISSING, fields
from fractions import Fraction
from typing import Any

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from wlgen.encodings import Message
from wlgen.errors import WlgenError
from wlgen.workload.bounds import Bound
from wlgen.workload.manifest import Manifest, parse_manifest
from wlgen.workload.opened import Workload, file_sha256, open_workload, prove_files
from wlgen.workload.rows import Row, parse_row, read_rows, row_file

LINE = {
    "id": "formal-r03-000007",
    "split": "formal",
    "dp_rank": 3,
    "group": "all",
    "round": 0,
    "messages": [{"role": "user", "content": "The river.\n春"}],
    "body_len": 5,
    "prompt_len": 9,
    "shared_len": 2,
    "cached_len": 0,
    "output_len": 1,
    "prompt_sha256": "0" * 64,
}


def refusal(line: bytes) -> str:
    with pytest.raises(WlgenError) as failure:
        parse_row(line, place="f.jsonl:3")
    return str(failure.value)


def test_a_row_is_its_line():
    row = parse_row(orjson.dumps(LINE), place="test")
    assert row == Row(**LINE | {"messages": (Message("user", "The river.\n春"),)})
    assert [field.name for field in fields(Row) if field.default is MISSING] == list(LINE)


def test_a_row_is_known_by_the_hash_of_its_last_message():
    row = parse_row(orjson.dumps(LINE), place="test")
    assert row.text_sha256 == hashlib.sha256("The river.\n春".encode()).hexdigest()


@pytest.mark.parametrize("line", [b"", b"\n", b"{", b'{"id": "a"', b"\xff", b'"\\ud800"', b"nonsense"])
def test_a_line_that_is_no_json_is_said_with_its_place(line):
    message = refusal(line)
    assert message.startswith("f.jsonl:3: expected a whole JSON row, found ")
    assert message.endswith("Rebuild the set with `wlgen build`.")


@pytest.mark.parametrize(
    "other", [[], 5, None, {}, {"id": "a"}, LINE | {"more": 1}, dict(reversed(LINE.items()))]
)
def test_other_keys_or_another_order_are_refused(other):
    assert "f.jsonl:3: expected the keys id, split, dp_rank" in refusal(orjson.dumps(other))


@pytest.mark.parametrize("key", list(LINE))
@pytest.mark.parametrize("value", [None, True, 1.5, {}, "x", 7, []])
def test_a_value_of_another_type_is_refused_with_its_key(key, value):
    if type(value) is type(LINE[key]):
        return
    assert f"f.jsonl:3 {key}: expected" in refusal(orjson.dumps(LINE | {key: value}))


@pytest.mark.parametrize("key", ["id", "group", "request_class", "session"])
def test_a_name_that_would_do_something_to_a_terminal_is_refused(key):
    message = refusal(orjson.dumps(LINE | {key: "a\x1b[2J"}))
    assert f"f.jsonl:3 {key}: expected printable characters" in message
    assert message.isprintable()


@pytest.mark.parametrize(
    "messages",
    [[5], ["a"], [{"role": "user"}], [{"role": "user", "content": 5}], [{"role": None, "content": ""}]],
)
def test_messages_are_roles_and_texts(messages):
    assert "f.jsonl:3 messages: expected" in refusal(orjson.dumps(LINE | {"messages": messages}))


def test_rows_are_read_lazily_and_the_first_bad_line_is_named(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(orjson.dumps(LINE) + b"\n" + b"{\n" + orjson.dumps(LINE) + b"\n")
    rows = read_rows(file)
    assert next(rows).id == "formal-r03-000007"
    with pytest.raises(WlgenError, match=r"rows\.jsonl:2: expected a whole JSON row"):
        next(rows)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(WlgenError, match="expected a readable file of the set"):
        next(read_rows(tmp_path / "none.jsonl"))


def test_rows_come_by_split_then_rank(warm_set):
    found = [(row.split, row.dp_rank) for row in warm_set.rows()]
    order = [(split, rank) for split in ("seed", "check", "formal") for rank in (0, 1)]
    assert sorted(found, key=order.index) == found
    assert set(found) == set(order)


def test_splits_and_ranks_can_be_chosen(warm_set):
    assert {(r.split, r.dp_rank) for r in warm_set.rows(["formal", "seed"], [1])} == {
        ("seed", 1),
        ("formal", 1),
    }
    assert [file.path for file in warm_set.files(["check"])] == ["check/rank-00.jsonl", "check/rank-01.jsonl"]
    assert warm_set.files(["formal"], [9]) == []


def test_ranks_have_two_digits_at_least():
    assert [row_file("formal", rank) for rank in (0, 15, 100)] == [
        "formal/rank-00.jsonl",
        "formal/rank-15.jsonl",
        "formal/rank-100.jsonl",
    ]


def test_a_manifest_is_read_back(warm_set):
    manifest = open_workload(warm_set.folder).manifest
    assert manifest == warm_set.manifest
    assert (manifest.dp_ranks, manifest.bound_of(None)) == (2, Bound(min_ratio=Fraction(1, 2)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "expected a built set, found No such file or directory"),
        (b"", "expected a JSON manifest"),
        (b"\x00", "expected a JSON manifest"),
        (b"[]", """expected "format": "wlgen/1", found 'list'"""),
        (b"{}", """expected "format": "wlgen/1", found None"""),
        (b'{"format": "wlgen/9"}', """expected "format": "wlgen/1", found 'wlgen/9'"""),
        (b'{"format": "wlgen/1"}', "expected the keys of a manifest"),
    ],
)
def test_a_folder_that_is_no_set_is_said_with_what_to_give(tmp_path, content, message):
    if content is not None:
        (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(WlgenError) as failure:
        open_workload(tmp_path)
    assert message in str(failure.value)
    assert str(failure.value).endswith("Give the folder that `wlgen build` wrote, output/<name>.")


def as_json(manifest: Manifest) -> dict[str, Any]:
    return orjson.loads(orjson.dumps(manifest))


@pytest.mark.parametrize("key", [field.name for field in fields(Manifest) if field.default is MISSING])
def test_a_manifest_of_other_types_is_refused(warm_set, key):
    content = as_json(warm_set.manifest)
    for value in (None, 5, "x", [], {}, [5]):
        if type(value) is not type(content[key]) or value == [5]:
            if (key, value) == ("ranks", [5]):
                continue  # a list of numbers: verify says that they are others
            with pytest.raises((KeyError, TypeError, ValueError)):
                parse_manifest(content | {key: value})
    with pytest.raises((KeyError, TypeError, ValueError)):
        parse_manifest({name: value for name, value in content.items() if name != key})


def test_a_rule_that_an_older_version_wrote_is_read(warm_set):
    """Its fields with a default may be absent."""
    content = as_json(warm_set.manifest) | {"cache": warm_set.manifest.cache.numbers}
    del content["cache"]["retention"], content["cache"]["window_page"]
    assert parse_manifest(content) == warm_set.manifest


@given(
    st.one_of(st.none(), st.fractions(0, 1)),
    st.one_of(st.none(), st.integers(0, 200)),
    st.integers(1, 200),
)
def test_the_least_cached_tokens_meet_each_bound_and_one_less_does_not(min_ratio, tokens, prompt_len):
    assume(min_ratio is not None or tokens is not None)
    bound = Bound(min_ratio=min_ratio, tokens=tokens)
    least = bound.least(prompt_len)

    def meets(cached: int) -> bool:
        return cached >= (min_ratio or 0) * prompt_len and cached >= (tokens or 0)

    assert meets(least)
    assert least == 0 or not meets(least - 1)
    assert bound.most(prompt_len) == prompt_len


def test_a_bound_from_above():
    assert (Bound(max_tokens=0).least(9), Bound(max_tokens=0).most(9), Bound(max_tokens=5).most(9)) == (
        0,
        0,
        5,
    )


def test_files_are_proved_by_their_hashes_and_every_other_one_is_named(warm_set, copy_of):
    prove_files(warm_set)
    workload: Workload = copy_of(warm_set)
    (workload.folder / "formal/rank-00.jsonl").write_bytes(b"x")
    (workload.folder / "seed/rank-01.jsonl").unlink()
    with pytest.raises(WlgenError) as failure:
        prove_files(workload)
    first, second = failure.value.problems
    assert (first.place, first.found) == (str(workload.folder / "seed/rank-01.jsonl"), "no readable file")
    assert second.found == hashlib.sha256(b"x").hexdigest()


def test_the_hash_of_a_file(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert file_sha256(tmp_path / "a") == hashlib.sha256(b"abc").hexdigest()
    assert file_sha256(tmp_path / "none") is None
    assert file_sha256(tmp_path) is None


@pytest.mark.parametrize(
    ("keys", "value", "expected"),
    [
        (("name",), "a\x1b[31mred", "name: a-z"),
        (("name",), "../../x", "name: a-z"),
        (("spec", "requests"), [1], "spec.requests: a mapping"),
        (("spec", "requests"), [], "spec.requests: a mapping"),
        (("spec", "dp_ranks"), "x", "spec.dp_ranks: a number of ranks"),
        (("spec", "dp_ranks"), 10**9, "spec.dp_ranks: a number of ranks"),
        (("spec", "dp_ranks"), -1, "spec.dp_ranks: a number of ranks"),
        (("ranks",), ["a"], "ranks: whole numbers"),
        (("rounds",), ["a"], "rounds: whole numbers"),
        (("encoding",), {}, "encoding.head_ids: token ids"),
        (("encoding", "head_ids"), "abc", "encoding.head_ids: token ids"),
        (("splits",), {"formal": 3}, "splits: a mapping"),
        (("cache", "page_size"), 0, "cache.page_size: a number of tokens"),
        (("files", 0, "path"), "../../etc/passwd", "files.path: a plain path"),
        (("files", 0, "path"), "formal/../../x", "files.path: a plain path"),
        (("files", 0, "path"), "/etc/passwd", "files.path: a plain path"),
        (("files", 0, "sha256"), "zz", "64 hex digits"),
        (("files", 0, "rows"), -5, "a count of rows"),
    ],
)
def test_a_manifest_that_no_build_writes_is_refused_at_the_door(warm_set, copy_of, keys, value, expected):
    workload = copy_of(warm_set)
    path = workload.folder / "manifest.json"
    content = orjson.loads(path.read_bytes())
    inside = content
    for key in keys[:-1]:
        inside = inside[key]
    inside[keys[-1]] = value
    path.write_bytes(orjson.dumps(content))
    with pytest.raises(WlgenError) as refused:
        open_workload(workload.folder)
    assert expected in str(refused.value)
    assert str(refused.value).isprintable()
