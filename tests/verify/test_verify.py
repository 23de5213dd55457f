"""Every way to break a built set is found, in the row that is broken and in no other."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.sets import content_of, spec_of
from kit.verified import verify

from wlgen.build import build as building
from wlgen.build.build import build
from wlgen.encodings import Message
from wlgen.errors import WlgenError
from wlgen.spec import file as spec_file
from wlgen.spec.file import fingerprint
from wlgen.workload.opened import Workload, open_workload
from wlgen.workload.rows import Finding

FORMAL = "formal/rank-00.jsonl"
ROW = "formal-r00-000001"

Rows = list[dict[str, Any]]
Copy = Callable[[Workload], Workload]


def found(workload: Workload, *, full: bool = True) -> list[Finding]:
    return verify(open_workload(workload.folder), full=full).findings


def promises(findings: list[Finding]) -> set[tuple[str, str]]:
    return {(finding.id, finding.promise) for finding in findings}


def rows_of(findings: list[Finding]) -> set[str]:
    """Return what has a finding beside the manifest, whose promises are over all rows."""
    return {finding.id for finding in findings} - {"manifest.json"}


def edit_manifest(workload: Workload, change: Callable[[dict[str, Any]], None]) -> None:
    path = workload.folder / "manifest.json"
    content = orjson.loads(path.read_bytes())
    change(content)
    path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def rehash(workload: Workload) -> None:
    """Write the hashes and row counts of the files as they are, so that only their content can tell."""

    def change(content: dict[str, Any]) -> None:
        for file in content["files"]:
            written = (workload.folder / file["path"]).read_bytes()
            file |= {"sha256": hashlib.sha256(written).hexdigest(), "rows": written.count(b"\n")}

    edit_manifest(workload, change)


def edit_rows(workload: Workload, change: Callable[[Rows], None], path: str = FORMAL) -> None:
    """Change the rows of a file, and the hash of the file with them."""
    file = workload.folder / path
    rows = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    change(rows)
    file.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    rehash(workload)


def retell(workload: Workload, row: dict[str, Any], text: str) -> None:
    """Give a row another text, with the lengths and the hash of its ids."""
    encoding = building.load_encoding(spec_of())
    ids = encoding.prompt_ids([Message("user", text)])
    digest = hashlib.sha256(b"".join(i.to_bytes(4, "little") for i in ids)).hexdigest()
    row |= {"messages": [{"role": "user", "content": text}], "prompt_sha256": digest}
    assert workload.manifest.encoding["tokenizer_sha256"] == encoding.tokenizer_sha256


def text_of(row: dict[str, Any]) -> str:
    return str(row["messages"][0]["content"])


@pytest.mark.parametrize("full", [False, True])
def test_a_sound_set_has_no_finding(warm_set, zero_set, full):
    assert found(warm_set, full=full) == []
    assert found(zero_set, full=full) == []


def test_rows_and_tokens_are_counted(zero_set):
    verified = verify(zero_set, full=True)
    assert (verified.rows, verified.tokens) == (8, sum(row.prompt_len for row in zero_set.rows()))


def test_a_changed_byte_is_found_by_the_file_and_by_the_row(warm_set, copy_of):
    workload = copy_of(warm_set)
    file = workload.folder / FORMAL
    lines = file.read_bytes().splitlines(keepends=True)
    at = lines[1].rindex(b"word for word")
    lines[1] = lines[1][:at] + b"w" + lines[1][at:]
    file.write_bytes(b"".join(lines))
    findings = found(workload)
    assert (FORMAL, "sha256") in promises(findings)
    assert rows_of(findings) == {FORMAL, ROW}
    assert (ROW, "prompt_sha256") in promises(findings)


def test_a_changed_byte_is_found_where_the_hash_was_changed_with_it(warm_set, copy_of):
    workload = copy_of(warm_set)

    def change(rows: Rows) -> None:
        rows[1]["messages"][0]["content"] = text_of(rows[1]).replace("word for word.", "word for words.")

    edit_rows(workload, change)
    findings = found(workload)
    assert {f.id for f in findings} == {ROW}
    assert "prompt_sha256" in {f.promise for f in findings}


def test_swapped_rows_are_found_in_both_places(warm_set, copy_of):
    workload = copy_of(warm_set)
    edit_rows(workload, lambda rows: rows.insert(0, rows.pop(2)))
    expected = {
        Finding(id="formal-r00-000002", promise="id", expected="formal-r00-000000", got="formal-r00-000002"),
        Finding(id="formal-r00-000000", promise="id", expected="formal-r00-000001", got="formal-r00-000000"),
        Finding(id="formal-r00-000001", promise="id", expected="formal-r00-000002", got="formal-r00-000001"),
    }
    assert expected <= set(found(workload))
    assert {f.id for f in found(workload)} == {f"formal-r00-00000{n}" for n in range(3)}


def test_a_row_on_the_wrong_rank_is_found(warm_set, copy_of):
    workload = copy_of(warm_set)
    edit_rows(workload, lambda rows: rows[1].update(dp_rank=1))
    assert found(workload) == [Finding(id=ROW, promise="dp_rank", expected=0, got=1)]


def test_a_duplicated_row_is_found(warm_set, copy_of):
    workload = copy_of(warm_set)

    def change(rows: Rows) -> None:
        rows[2] |= {"messages": rows[0]["messages"], "prompt_sha256": rows[0]["prompt_sha256"]}

    edit_rows(workload, change)
    (finding,) = found(workload)
    assert (finding.id, finding.promise) == ("formal-r00-000002", "shared_len")
    assert finding.got == f"at least {finding.expected + 1} with formal-r00-000000"


def test_a_check_sent_as_a_formal_row_is_found(warm_set, copy_of):
    workload = copy_of(warm_set)
    check = next(row for row in warm_set.rows(["check"]) if row.group == "g0001")

    def change(rows: Rows) -> None:
        rows[1]["messages"] = [{"role": "user", "content": check.messages[0].content}]
        rows[1]["prompt_sha256"] = check.prompt_sha256

    edit_rows(workload, change)
    (finding,) = found(workload)
    assert (finding.id, finding.promise) == (ROW, "shared_len")


def test_a_unique_part_that_starts_late_is_found(warm_set, copy_of):
    """The row shares a token more than planned with another: at page size 1 it would hit more."""
    workload = copy_of(warm_set)
    one, other = (text_of(orjson.loads(line)) for line in lines_of(workload, FORMAL)[:3:2])
    seam = common(one, other)
    lead, _ = one[seam:].split(":", 1)
    _, rest = other[seam:].split(":", 1)
    edit_rows(workload, lambda rows: retell(workload, rows[2], f"{other[:seam]}{lead}:{rest}"))
    (finding,) = found(workload)
    assert (finding.id, finding.promise) == ("formal-r00-000002", "shared_len")
    assert [(f.id, f.promise) for f in found(workload, full=False)] == [
        (finding.id, "text"),
        (finding.id, "prompt_sha256"),
    ]


def lines_of(workload: Workload, path: str) -> list[bytes]:
    return (workload.folder / path).read_bytes().splitlines()


def common(one: str, other: str) -> int:
    """Return where two texts part, at a word's beginning."""
    end = next(n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return one.rindex(" ", 0, end) + 1


def test_a_prefix_that_is_shorter_for_one_row_is_found(warm_set, copy_of):
    """The row's text differs from its group's in the middle of the shared prefix."""
    workload = copy_of(warm_set)

    def change(rows: Rows) -> None:
        text = text_of(rows[1])
        middle = text.index(" the ", len(text) // 6)
        retell(workload, rows[1], text[:middle] + " and " + text[middle + 5 :])

    edit_rows(workload, change)
    (finding,) = found(workload)
    shared_len = next(warm_set.rows(["formal"])).shared_len
    assert (finding.id, finding.promise, finding.expected) == (ROW, "shared_len", shared_len)
    assert finding.got < shared_len
    assert [(f.id, f.promise) for f in found(workload, full=False)] == [
        (finding.id, "text"),
        (finding.id, "prompt_sha256"),
    ]


def test_groups_that_share_a_prefix_are_found(warm_set, copy_of):
    """Each row keeps its own group's prefix, but the two groups have the same one."""
    workload = copy_of(warm_set)
    texts = {row.id: row.messages[0].content for row in warm_set.rows()}

    def change(rows: Rows) -> None:
        retell(workload, rows[1], texts["formal-r00-000000"][:200] + text_of(rows[1])[200:])

    edit_rows(workload, change)
    assert promises(found(workload)) >= {(ROW, "shared_len")}


def test_rows_of_a_zero_set_that_share_a_token_are_found(zero_set, copy_of):
    workload = copy_of(zero_set)
    first = next(zero_set.rows(["formal"])).messages[0].content.split(" ", 1)[0]

    def change(rows: Rows) -> None:
        rest = text_of(rows[1]).split(" ", 1)[1]
        retell(workload, rows[1], f"{first} {rest}")

    edit_rows(workload, change)
    (finding,) = [f for f in found(workload) if f.promise == "shared_len"]
    head = len(zero_set.manifest.encoding["head_ids"])
    assert (finding.id, finding.expected) == (ROW, head)
    assert finding.got == f"at least {head + 1} with formal-r00-000000"


def test_replaced_seeds_are_found(warm_set, copy_of):
    """A seed with another prefix primes nothing. The nearest rival's check accepts it."""
    workload = copy_of(warm_set)

    def change(rows: Rows) -> None:
        words = text_of(rows[0]).split(" ")
        words[3], words[5] = words[5], words[3]
        retell(workload, rows[0], " ".join(words))

    edit_rows(workload, change, "seed/rank-01.jsonl")
    findings = found(workload)
    assert ("seed-r01-000000", "shared_len") in promises(findings)
    assert {f.id for f in findings} == {"seed-r01-000000"}


def test_a_truncated_file_is_found(warm_set, copy_of):
    workload = copy_of(warm_set)
    file = workload.folder / FORMAL
    file.write_bytes(file.read_bytes()[:-700])
    findings = found(workload)
    count = warm_set.manifest.splits["formal"]["per_rank"][0]
    assert promises(findings) == {(FORMAL, "sha256"), (f"{FORMAL}:{count}", "row")}


def test_missing_lines_are_found(warm_set, copy_of):
    workload = copy_of(warm_set)
    count = warm_set.manifest.splits["formal"]["per_rank"][0]
    edit_rows(workload, lambda rows: rows.pop())
    assert set(found(workload)) == {
        Finding(id=FORMAL, promise="rows", expected=count, got=count - 1),
        Finding(id=FORMAL, promise="rows of the manifest", expected=count, got=count - 1),
    }


def test_a_line_too_many_is_found(warm_set, copy_of):
    workload = copy_of(warm_set)
    count = warm_set.manifest.splits["formal"]["per_rank"][0]
    edit_rows(workload, lambda rows: rows.append(rows[0] | {"id": f"formal-r00-{count:06d}"}))
    assert (FORMAL, "rows") in promises(found(workload))


@pytest.mark.parametrize("line", [b"not json\n", b"[1]\n", b"\xff\xfe\n", b"{}\n", b"\n"])
def test_a_line_that_is_no_row_is_found_and_the_others_are_read(warm_set, copy_of, line):
    workload = copy_of(warm_set)
    lines = (workload.folder / FORMAL).read_bytes().splitlines(keepends=True)
    (workload.folder / FORMAL).write_bytes(b"".join([lines[0], line, *lines[2:]]))
    rehash(workload)
    assert promises(found(workload)) == {(f"{FORMAL}:2", "row")}
    assert verify(open_workload(workload.folder), full=True).rows == sum(1 for _ in warm_set.rows()) - 1


def test_a_missing_file_is_found(warm_set, copy_of):
    workload = copy_of(warm_set)
    (workload.folder / "check/rank-01.jsonl").unlink()
    assert found(workload) == [
        Finding(id="check/rank-01.jsonl", promise="files", expected="a file", got="none")
    ]


def test_a_missing_rank_is_found_though_its_files_are_unlisted(warm_set, copy_of):
    workload = copy_of(warm_set)
    for path in workload.folder.glob("*/rank-01.jsonl"):
        path.unlink()

    def change(content: dict[str, Any]) -> None:
        content["files"] = [f for f in content["files"] if "rank-01" not in f["path"]]

    edit_manifest(workload, change)
    assert found(workload) == [Finding(id="manifest.json", promise="ranks", expected="[0]", got="[0, 1]")]


def test_a_split_missing_from_a_rank_is_found(warm_set, copy_of):
    workload = copy_of(warm_set)
    (workload.folder / "seed/rank-01.jsonl").unlink()

    def change(content: dict[str, Any]) -> None:
        content["files"] = [f for f in content["files"] if f["path"] != "seed/rank-01.jsonl"]

    edit_manifest(workload, change)
    assert found(workload) == [
        Finding(id="seed/rank-01.jsonl", promise="files", expected="a file", got="none")
    ]


def test_a_file_of_someone_else_in_a_split_is_found(warm_set, copy_of):
    workload = copy_of(warm_set)
    (workload.folder / "formal/rank-02.jsonl").write_bytes(b"")
    assert found(workload) == [
        Finding(id="formal/rank-02.jsonl", promise="files", expected="no file", got="none in the manifest")
    ]


def set_at(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        *around, key = path
        inside: Any = content
        for name in around:
            inside = inside[name]
        assert inside[key] != value
        inside[key] = value

    return change


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        (set_at("cache", "page_size", value=8), "cache"),
        (set_at("cache", "hit_quantum", value=32), "cache"),
        (set_at("cache", "speculative", value=True), "cache"),
        (set_at("promises", "configured", value=0.95), "promises"),
        (set_at("promises", "aggregate", value=0.95), "promises"),
        (set_at("promises", "per_request_min", value=0.95), "promises"),
        (set_at("splits", "formal", "rows", value=11), "splits"),
        (set_at("splits", "seed", "per_rank", value=[1, 3]), "splits"),
        (set_at("ranks", value=[0]), "ranks"),
        (set_at("ranks", value=[0, 1, 7]), "ranks"),
        (set_at("name", value="other"), "name"),
        (set_at("spec_sha256", value="0" * 64), "spec_sha256"),
        (set_at("encoding", "tokenizer_sha256", value="0" * 64), "encoding"),
        (set_at("encoding", "head_ids", value=[1]), "encoding"),
        (set_at("files", 4, "rows", value=3), "rows of the manifest"),
        (set_at("files", 4, "sha256", value="0" * 64), "sha256"),
    ],
)
def test_an_edited_manifest_is_found(warm_set, copy_of, change, promise):
    workload = copy_of(warm_set)
    edit_manifest(workload, change)
    assert {f.promise for f in found(workload)} == {promise}


@pytest.mark.parametrize(
    "change",
    [
        set_at("spec", "cache", "page_size", value=8),
        set_at("spec", "requests", "cached", "min_ratio", value=0.9),
        set_at("spec", "requests", "output_len", value=9),
        set_at("spec", "requests", "body_len", value=321),
        set_at("spec", "splits", "formal", "total", value=9),
        set_at("spec", "splits", "seed", "per_rank", value=2),
        set_at("spec", "dp_ranks", value=3),
        set_at("spec", "random_seed", value=8),
    ],
)
def test_an_edited_spec_is_found_by_its_fingerprint_at_least(warm_set, copy_of, change):
    workload = copy_of(warm_set)
    edit_manifest(workload, change)
    assert ("manifest.json", "spec_sha256") in promises(found(workload))


def test_another_page_size_is_found_though_the_whole_manifest_was_made_to_agree(warm_set, copy_of):
    """With page 64 the least prefix that passes is longer: each row promises too little."""
    workload = copy_of(warm_set)

    def change(content: dict[str, Any]) -> None:
        content["spec"]["cache"] |= {"page_size": 64, "hit_quantum": 64}
        content["cache"] |= {"page_size": 64, "hit_quantum": 64}
        content["spec_sha256"] = fingerprint(content["spec"])

    edit_manifest(workload, change)
    findings = promises(found(workload))
    for row in warm_set.rows(["check", "formal"]):
        assert {(row.id, "shared_len"), (row.id, "cached_len"), (row.id, "cached_bound")} <= findings


@pytest.mark.parametrize(
    ("field", "value"),
    [("cached_len", 160), ("shared_len", 170), ("body_len", 321), ("prompt_len", 300), ("output_len", 9)],
)
def test_a_wrong_figure_of_one_row_is_found_in_that_row(warm_set, copy_of, field, value):
    workload = copy_of(warm_set)
    edit_rows(workload, lambda rows: rows[1].update({field: value}))
    assert (ROW, field) in promises(found(workload))
    assert rows_of(found(workload)) == {ROW}


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("", " {x}", "the character '{'"),
        ("", " {", "the character '{'"),
        ("", " \x07 bell", "the character '\\x07'"),
        ("", " \ufffd", "the character '\ufffd'"),
        ("", " <|im_end|> ok", "the special token '<|im_end|>'"),
        ("", " cafe\u0301", "text that is not NFC"),
        ("", " ", "white space at the start or the end"),
        (" ", "", "white space at the start or the end"),
        ("", " \x9f x", "the character '\\x9f'"),
    ],
)
def test_unsafe_text_is_found_in_a_set_that_agrees_with_itself(warm_set, copy_of, before, after, fault):
    workload = copy_of(warm_set)
    edit_rows(workload, lambda rows: retell(workload, rows[1], before + text_of(rows[1]) + after))
    safe = [f for f in found(workload) if f.promise == "safe text"]
    assert [f.id for f in safe] == [ROW]
    assert str(safe[0].got).startswith(fault)
    assert rows_of(found(workload)) == {ROW}


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "assistant", "content": "Yes."}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        [{"role": "system", "content": "a"}],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": 5}],
        [{"role": "user"}],
        ["user"],
    ],
)
def test_other_messages_are_found(warm_set, copy_of, messages):
    workload = copy_of(warm_set)
    edit_rows(workload, lambda rows: rows[1].update(messages=messages))
    findings = found(workload)
    assert rows_of(findings) <= {ROW, f"{FORMAL}:2", f"{FORMAL}:2 messages"}
    assert findings


json_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
    st.lists(st.integers(-2, 2), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(-2, 2), max_size=2),
)
KEYS = ["id", "split", "dp_rank", "group", "round", "messages", "body_len", "prompt_len", "shared_len"]
KEYS += ["cached_len", "output_len", "prompt_sha256"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from(KEYS), value=json_values)
def test_any_other_value_in_a_row_is_a_finding_and_never_a_crash(zero_set, tmp_path_factory, key, value):
    workload = copied(zero_set, tmp_path_factory.mktemp("row"))
    before = orjson.loads(lines_of(workload, FORMAL)[1])[key]
    edit_rows(workload, lambda rows: rows[1].update({key: value}))
    if type(before) is not type(value) or before != value:
        assert found(workload)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.data(), value=json_values)
def test_any_other_value_in_a_manifest_is_found_or_refused_and_never_a_crash(
    zero_set, tmp_path_factory, path, value
):
    workload = copied(zero_set, tmp_path_factory.mktemp("manifest"))

    def change(content: dict[str, Any]) -> None:
        inside: Any = content
        key = path.draw(st.sampled_from(sorted(content)))
        while isinstance(inside[key], dict | list) and inside[key] and path.draw(st.booleans()):
            inside = inside[key]
            keys = sorted(inside) if isinstance(inside, dict) else range(len(inside))
            key = path.draw(st.sampled_from(keys))
        inside[key] = value

    before = orjson.loads((workload.folder / "manifest.json").read_bytes())
    edit_manifest(workload, change)
    after = orjson.loads((workload.folder / "manifest.json").read_bytes())
    try:
        findings = found(workload)
    except WlgenError:
        return
    assert findings or before | {"proof": 0} == after | {"proof": 0}


def copied(workload: Workload, place: Path) -> Workload:
    for path in (*workload.folder.rglob("*.json*"), workload.folder / "README.md"):
        target = place / path.relative_to(workload.folder)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())
    return open_workload(place)


def test_a_part_of_a_set_is_proved_as_far_as_it_goes(tmp_path):
    workload = build(spec_of(dp_ranks=3, formal={"total": 2}), tmp_path, ranks=[2]).workload
    assert workload.manifest.ranks == [2]
    assert found(workload) == []
    assert found(build(spec_of(dp_ranks=3, formal={"total": 2}), tmp_path, ranks=[0]).workload) == []


def test_progress_counts_every_row(zero_set):
    seen: list[tuple[int, int]] = []
    verify(zero_set, full=False, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(n, 8) for n in range(1, 9)]


def forged(
    workload: Workload, other: Workload, splits: tuple[str, ...] = ("seed", "check", "formal")
) -> None:
    """Give a set the rows of another one, and its own manifest the hashes that go with them."""
    for split in splits:
        for path in sorted((other.folder / split).rglob("*.jsonl")):
            shutil.copy(path, workload.folder / path.relative_to(other.folder))
    rehash(workload)


@pytest.mark.parametrize(
    "change", [{"random_seed": 4242}, {"task": "words"}], ids=["another seed", "another task"]
)
def test_rows_of_another_spec_are_found_though_the_hashes_were_made_to_agree(
    warm_set, copy_of, tmp_path, change
):
    other = build(
        spec_of(prefix={"shared_by": "group", "groups": 2}, formal={"total": 10}, **change),
        tmp_path / "other",
    ).workload
    workload = copy_of(warm_set)
    forged(workload, other)
    verified = verify(open_workload(workload.folder), full=False)
    assert verified.composed == 0
    assert {row.id for row in warm_set.rows()} <= {f.id for f in verified.findings if f.promise == "text"}


def test_texts_swapped_between_two_rows_are_found_though_every_figure_agrees(warm_set, copy_of):
    workload = copy_of(warm_set)

    def change(rows: Rows) -> None:
        keys = ("messages", "prompt_sha256")
        one, other = ({key: row[key] for key in keys} for row in (rows[0], rows[2]))
        rows[0] |= other
        rows[2] |= one

    edit_rows(workload, change)
    assert found(workload) == []  # both texts are exact, and their own
    swapped = {"formal-r00-000000", "formal-r00-000002"}
    assert {f.id for f in found(workload, full=False) if f.promise == "text"} == swapped


def test_the_manifest_of_another_set_is_found_though_the_hashes_were_made_to_agree(
    warm_set, copy_of, tmp_path
):
    spec = spec_of(prefix={"shared_by": "group", "groups": 2}, formal={"total": 10}, random_seed=4242)
    other = build(spec, tmp_path / "other").workload
    workload = copy_of(warm_set)
    shutil.copy(other.folder / "manifest.json", workload.folder / "manifest.json")
    rehash(workload)
    assert {row.id for row in warm_set.rows()} <= {f.id for f in found(workload, full=False)}


def test_a_million_rows_that_share_a_lead_hide_no_page(copy_of, tmp_path):
    """A zero set of pages of 1 in which two rows begin alike: the second would find a token more."""
    spec = spec_of(
        cached={"max_tokens": 14}, formal={"total": 6}, cache_rule={"rule": "sglang", "page_size": 1}
    )
    workload = copy_of(build(spec, tmp_path / "zero").workload)
    first = next(workload.rows(["formal"])).messages[0].content.split(" ", 1)[0]
    edit_rows(
        workload, lambda rows: retell(workload, rows[1], f"{first} " + text_of(rows[1]).split(" ", 1)[1])
    )
    edit_manifest(workload, set_at("proof", "rows_that_share_a_lead", value=1_000_000))
    for full in (False, True):
        findings = promises(found(workload, full=full))
        assert (ROW, "shared_len" if full else "text") in findings
        assert any(promise.startswith("proof") for _, promise in findings)


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        (lambda content: content.update(proof={}), "proof"),
        (lambda content: content["proof"].update(method="faith"), "proof method"),
        (lambda content: content["proof"].update(whole_rows=10**6), "proof whole_rows"),
        (lambda content: content["proof"].update(seams=-1), "proof seams"),
        (lambda content: content["files"].append(content["files"][0]), "files"),
    ],
)
@pytest.mark.parametrize("full", [False, True])
def test_a_manifest_that_no_build_writes_is_found_at_both_levels(warm_set, copy_of, change, promise, full):
    workload = copy_of(warm_set)
    edit_manifest(workload, change)
    assert promise in {f.promise for f in found(workload, full=full)}


@pytest.mark.parametrize(
    "change",
    [
        set_at("proof", "seams", value=1),
        set_at("proof", "prefixes", value=1),
        set_at("proof", "method", value="whole"),
        lambda content: content["proof"].update(content_sha256="0" * 64),
    ],
)
def test_a_proof_that_is_not_the_plans_is_found(warm_set, copy_of, change):
    workload = copy_of(warm_set)
    edit_manifest(workload, change)
    assert promises(found(workload, full=False)) == {("manifest.json", "proof")}


@pytest.mark.parametrize("full", [False, True])
def test_a_key_that_stands_twice_is_found_in_manifest_and_row(warm_set, copy_of, full):
    workload = copy_of(warm_set)
    path = workload.folder / FORMAL
    path.write_bytes(path.read_bytes().replace(b'{"id":', b'{"output_len":1,"id":', 1))
    rehash(workload)
    manifest = workload.folder / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'{\n  "format"', b'{\n  "name": "x",\n  "format"', 1))
    findings = promises(found(workload, full=full))
    assert ("manifest.json", "bytes") in findings
    assert any(name.startswith("formal") for name, _ in findings)


@pytest.mark.parametrize("full", [False, True])
def test_with_pages_of_1_the_first_row_of_a_zero_set_states_what_the_server_reports(tmp_path, full):
    cache = {"rule": "sglang", "page_size": 1}
    for check in (0, 1):
        spec = spec_of(
            cached={"max_tokens": 14}, formal={"total": 6}, cache_rule=cache, check={"per_rank": check}
        )
        workload = build(spec, tmp_path / str(check)).workload
        of_rank = [row.cached_len for row in workload.rows() if row.dp_rank == 0]
        head = len(workload.manifest.encoding["head_ids"])
        assert of_rank == [0] + [head] * (len(of_rank) - 1)
        assert found(workload, full=full) == []


def test_ranks_and_rounds_that_are_not_here_are_named(tmp_path):
    content = content_of(dp_ranks=3, formal={"total": 6}) | {"rounds": 2}
    spec = spec_file.from_content(content, "spec")
    workload = build(spec, tmp_path, ranks=[2], rounds=[0]).workload
    for full in (False, True):
        verified = verify(workload, full=full)
        assert (verified.missing_ranks, verified.missing_rounds, verified.findings) == ([0, 1], [1], [])
