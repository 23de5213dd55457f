"""Specs from YAML: what loads, and each mistake's line, expectation and remedy."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import orjson
import pytest

from wlgen import tasks
from wlgen.errors import WlgenError
from wlgen.spec import file as spec_file
from wlgen.spec.splits import SeedSplit

WARM = """\
name: warm-128k
random_seed: 20261018
encoding: {name: deepseek-v4}
cache: {rule: sglang-dsv4-npu}
dp_ranks: 16
requests:
  body_len: 131072
  output_len: 1024
  cached: {min_ratio: 0.90}
  prefix: {shared_by: all}
  task: {name: copy}
splits: {seed: {per_rank: 1}, check: {per_rank: 1}, formal: {total: 640}}
"""
LEAST = """\
name: zero
cache: {rule: sglang}
requests: {body_len: 16384, output_len: 1024, cached: {max_tokens: 0}}
splits: {formal: {per_rank: 40}}
"""


def said(text: str) -> list[str]:
    """Return the lines of the error that a text raises."""
    with pytest.raises(WlgenError) as caught:
        spec_file.parse(text, "s.yaml")
    return [str(problem) for problem in caught.value.problems]


def after(old: str, new: str, text: str = WARM) -> list[str]:
    """Return the lines of the error for WARM with one change."""
    assert old in text
    return said(text.replace(old, new))


def test_the_sketch_of_the_grammar_loads():
    spec = spec_file.parse(WARM, "s.yaml")
    assert (spec.name, spec.random_seed, spec.dp_ranks, spec.place) == ("warm-128k", 20261018, 16, "s.yaml")
    assert (spec.encoding.name, spec.cache.name, spec.requests[0].task.name) == (
        "deepseek-v4",
        "sglang-dsv4-npu",
        "copy",
    )
    assert spec.requests[0].cached.min_ratio == Fraction(9, 10)
    assert (spec.splits.seed, spec.splits.formal.rows(16)) == (SeedSplit(per_rank=1, shape="short"), 640)


def test_defaults():
    spec = spec_file.parse(LEAST, "s.yaml")
    assert (spec.random_seed, spec.dp_ranks, spec.encoding.name) == (0, 1, "deepseek-v4")
    assert (spec.requests[0].prefix.shared_by, spec.requests[0].task.name) == ("all", "copy")
    assert (spec.splits.check.per_rank, spec.splits.check.output_len) == (1, 1)


@pytest.mark.parametrize(
    ("bound", "seed"),
    [
        ("min_ratio: 0.5", SeedSplit()),
        ("tokens: 128", SeedSplit()),
        ("tokens: 128, min_ratio: 0.01", SeedSplit()),
        ("min_ratio: 0", None),
        ("tokens: 0", None),
        ("max_tokens: 0", None),
        ("max_tokens: 256", None),
    ],
)
def test_a_rank_has_one_seed_where_the_bound_asks_for_cached_tokens(bound, seed):
    spec = spec_file.parse(LEAST.replace("max_tokens: 0", bound), "s.yaml")
    assert spec.splits.seed == seed
    assert ("seed" in spec.content["splits"]) == (seed is not None)


def test_counts_a_rank():
    text = LEAST.replace("max_tokens: 0", "tokens: 64").replace(
        "splits: {", "dp_ranks: 3\nsplits: {check: {per_rank: 0}, "
    )
    spec = spec_file.parse(text.replace("splits: {", "splits: {seed: {shape: full}, "), "s.yaml")
    assert spec.splits.seed == SeedSplit(per_rank=1, shape="full")
    assert (spec.splits.check.per_rank, spec.splits.formal.rows(spec.dp_ranks)) == (0, 120)


def test_content_holds_every_default_and_no_key_without_a_value():
    content = spec_file.parse(LEAST, "s.yaml").content
    content["encoding"], content["cache"] = content["encoding"]["name"], content["cache"]["rule"]
    assert content == {
        "name": "zero",
        "random_seed": 0,
        "encoding": "deepseek-v4",
        "cache": "sglang",
        "dp_ranks": 1,
        "requests": {
            "body_len": 16384,
            "output_len": 1024,
            "cached": {"max_tokens": 0},
            "prefix": {"shared_by": "all"},
            "task": {"name": "copy"},
        },
        "splits": {"check": {"per_rank": 1, "output_len": 1}, "formal": {"per_rank": 40}},
    }


@pytest.mark.parametrize(
    "text",
    [
        WARM,
        LEAST,
        WARM.replace(
            "{name: deepseek-v4}", "{path: ./tok, revision: main, template_kwargs: {a: null, b: [1.0]}}"
        ),
        WARM.replace("{name: deepseek-v4}", "{name: raw, path: ./tok}"),
        WARM.replace("{rule: sglang-dsv4-npu}", "{engine: vllm, page_size: 16, sliding_window: 512}"),
        WARM.replace("0.90", "0.1234567890123456789"),
    ],
)
def test_content_comes_back_from_a_manifest_as_the_same_spec(text):
    spec = spec_file.parse(text, "s.yaml")
    stored = orjson.loads(orjson.dumps(spec.content))
    again = spec_file.from_content(stored, "manifest.json")
    assert again.content == spec.content == stored
    assert again.model_dump() == spec.model_dump()
    assert again.cache == spec.cache


def test_two_ways_to_write_one_spec_have_one_fingerprint():
    block = WARM.replace("0.90", "9.0e-1").replace("random_seed", "# why\nrandom_seed").replace("\n", "\r\n")
    contents = [spec_file.parse(text, "s.yaml").content for text in (WARM, "\ufeff" + block)]
    first, second = map(spec_file.fingerprint, contents)
    assert first == second != spec_file.fingerprint(contents[0] | {"random_seed": 1})


def test_a_fingerprint_is_the_sha256_of_sorted_json():
    expected = "d3626ac30a87e6f7a6428233b3c68299976865fa5508e4267c5415c76af7a772"
    assert spec_file.fingerprint({"b": 0.9, "a": {}}) != expected
    assert spec_file.fingerprint({"b": 1, "a": 2}) == expected


def test_an_engine_with_its_numbers_is_a_rule_named_by_the_engine():
    text = WARM.replace("{rule: sglang-dsv4-npu}", "{engine: sglang, page_size: 128, hit_quantum: 2048}")
    rule = spec_file.parse(text, "s.yaml").cache
    assert (rule.name, rule.page_size, rule.hit_quantum, rule.speculative) == ("sglang", 128, 2048, False)
    dense = spec_file.parse(text.replace(", hit_quantum: 2048", ""), "s.yaml")
    assert dense.cache.hit_quantum == dense.content["cache"]["hit_quantum"] == 128


def test_a_rule_takes_the_options_that_it_allows():
    rule = spec_file.parse(
        WARM.replace("sglang-dsv4-npu}", "sglang, page_size: 64, speculative: true}"), "s"
    ).cache
    assert (rule.page_size, rule.hit_quantum, rule.speculative) == (64, 64, True)


def test_a_new_kind_is_one_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lines = ["from wlgen.strict.model import Strict", "class Options(Strict):", "    steps: int = 3"]
    (tmp_path / "walk.py").write_text("\n".join(lines))
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(tmp_path)])
    spec = spec_file.parse(WARM.replace("{name: copy}", "{name: walk}"), "s.yaml")
    assert spec.content["requests"]["task"] == {"name": "walk", "steps": 3}
    problem = after("{name: copy}", "{name: walk, steps: many}")
    assert problem == ["s.yaml:11 requests.task.steps: expected a whole number, found 'many' (text)"]


def test_a_spec_tells_the_line_of_each_key():
    spec = spec_file.parse(WARM, "s.yaml")
    assert spec.at("requests", "cached", "min_ratio") == "s.yaml:9 requests.cached.min_ratio"
    assert spec.at("requests", "cached", "tokens") == "s.yaml:9 requests.cached.tokens"
    stored = spec_file.from_content(spec.content, "manifest.json")
    assert stored.at("dp_ranks") == "manifest.json dp_ranks"


def test_every_problem_is_told_at_once_in_the_order_of_the_lines():
    text = """\
name: Warm
cache: {rule: sglng}
dp_ranks: 16
colour: red
dp_ranks: 8
requests:
  bodylen: 131072
  output_len: 0
  cached: {tokens: 1, max_tokens: 2}
splits: {seed: {per_rank: 1.5}, formal: {total: 640, per_rank: 1}}
"""
    assert [line.split(": expected")[0] for line in said(text)] == [
        "s.yaml:1 name",
        "s.yaml:2 cache.rule",
        "s.yaml:4 colour",
        "s.yaml:5 dp_ranks",
        "s.yaml:7 requests.bodylen",
        "s.yaml:8 requests.output_len",
        "s.yaml:9 requests.cached",
        "s.yaml:10 splits.seed.per_rank",
        "s.yaml:10 splits.formal",
    ]


def test_unknown_keys_name_the_nearest_known_one():
    (problem,) = after("body_len", "bodylen")
    assert problem.startswith("s.yaml:7 requests.bodylen: expected one of the keys body_len, output_len,")
    assert problem.endswith("found the unknown key 'bodylen'. Did you mean 'body_len'?")
    assert after("page_size", "pagesize", WARM.replace("sglang-dsv4-npu", "sglang, page_size: 8")) == [
        (
            "s.yaml:4 cache.pagesize: expected one of the keys page_size, speculative, sliding_window, "
            "found the unknown key 'pagesize'. Did you mean 'page_size'?"
        )
    ]


def test_a_key_that_lost_its_indentation_is_sent_home():
    flat = WARM.replace("requests:\n", "").replace("\n  ", "\n").replace("splits", "requests: {}\nsplits")
    assert any(p.endswith("the unknown key 'body_len'. It belongs under requests.") for p in said(flat))


def test_a_duplicate_key_names_both_lines():
    (problem,) = after("dp_ranks: 16\n", "dp_ranks: 16\ndp_ranks: 8\n")
    assert problem == (
        "s.yaml:6 dp_ranks: expected dp_ranks once, found a duplicate (first at line 5). Keep one of the two."
    )


def test_missing_keys_stand_at_the_line_of_the_mapping_that_lacks_them():
    text = "# a spec\nname: x\nrequests:\n\n  cached: {}\nsplits: {}\n"
    assert [problem.split(", found")[0] for problem in said(text)] == [
        "s.yaml:2 cache: expected the key cache",
        "s.yaml:3 requests.body_len: expected the key body_len",
        "s.yaml:3 requests.output_len: expected the key output_len",
        "s.yaml:5 requests.cached: expected one of min_ratio, tokens, max_tokens, aggregate, cold",
        "s.yaml:6 splits.formal: expected the key formal",
    ]
    assert said("name: x")[0].endswith("Add it, for example `cache: {rule: sglang}`.")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("131072", "0", "7 requests.body_len: expected at least 1, found 0"),
        ("1024", "-1", "8 requests.output_len: expected at least 1, found -1"),
        ("131072", "16384.0", "7 requests.body_len: expected a whole number, found 16384.0. Write 16384."),
        (
            "sglang-dsv4-npu}",
            "sglang, speculative: 'true'}",
            '4 cache.speculative: expected true or false, found "true" (text). Remove the quotes.',
        ),
        (
            "sglang-dsv4-npu}",
            "sglang, speculative: maybe}",
            "4 cache.speculative: expected true or false, found 'maybe' (text)",
        ),
        ("131072", "16777217", "7 requests.body_len: expected at most 16777216, found 16777217"),
        ("640", "10000001", "12 splits.formal.total: expected at most 10000000, found 10000001"),
        (
            "dp_ranks: 16",
            "dp_ranks: ~",
            "5 dp_ranks: expected a whole number, found ~, which YAML reads as null",
        ),
        ("dp_ranks: 16", "dp_ranks: 0", "5 dp_ranks: expected at least 1, found 0"),
        ("0.90", "90", "9 requests.cached.min_ratio: expected at most 1, found 90. For 90 % write 0.9."),
        ("0.90", "90%", "9 requests.cached.min_ratio: expected a number, found '90%' (text). Write 0.9."),
        ("20261018", "-1", "2 random_seed: expected at least 0, found -1"),
        (
            "20261018",
            "9223372036854775808",
            "2 random_seed: expected at most 9223372036854775807, found 9223372036854775808",
        ),
        (
            "{min_ratio: 0.90}",
            "{tokens: 1, max_tokens: 2}",
            (
                "9 requests.cached: expected max_tokens alone, found tokens and max_tokens. "
                "Only min_ratio and tokens, which both bound a row from below, may stand together."
            ),
        ),
        (
            "shared_by: all",
            "shared_by: group",
            (
                "10 requests.prefix: expected the key groups, found shared_by: group alone. "
                "Add it, for example `groups: 8`."
            ),
        ),
        (
            "shared_by: all",
            "groups: 3",
            (
                "10 requests.prefix.groups: expected no groups, found groups: 3 with shared_by: all. "
                "Delete it, or write shared_by: group."
            ),
        ),
        (
            "shared_by: all",
            "shared_by: group, groups: 641",
            (
                "10 requests.prefix.groups: expected at most one group for each of the 640 formal rows, "
                "found 641. Ask for fewer groups, or for more formal rows."
            ),
        ),
        (
            "shared_by: all",
            "shared_by: al",
            (
                "10 requests.prefix.shared_by: expected 'all', 'rank' or 'group', found 'al'. "
                "Did you mean 'all'?"
            ),
        ),
        (
            "{total: 640}",
            "{}",
            "12 splits.formal: expected total or per_rank, found neither. Write {total: 640}, for example.",
        ),
        (
            "{total: 640}",
            "{total: 640, per_rank: 40}",
            "12 splits.formal: expected total or per_rank, found both. Delete one of them.",
        ),
        (
            "{min_ratio: 0.90}",
            "{max_tokens: 0}",
            (
                "12 splits.seed: expected no seeds, since the bound asks for no cached tokens, "
                "found 1 a rank. Delete splits.seed, or ask for tokens in requests.cached."
            ),
        ),
        (
            "{per_rank: 1}, check",
            "{per_rank: 0}, check",
            (
                "12 splits.seed: expected at least 1 seed a rank, since the bound asks for cached tokens, "
                "found none. Delete splits.seed for 1 a rank."
            ),
        ),
        (
            "{per_rank: 1}, check",
            "null, check",
            (
                "12 splits.seed: expected at least 1 seed a rank, since the bound asks for cached tokens, "
                "found none. Delete splits.seed for 1 a rank."
            ),
        ),
        (
            "warm-128k",
            "Warm 128K",
            (
                "1 name: expected a folder name: a-z, 0-9, dots, _ and -, a letter or digit first, "
                "at most 100, found 'Warm 128K'. Write warm-128k."
            ),
        ),
        ("warm-128k", "no", "1 name: expected text, found no, which YAML reads as false. Quote it: 'no'."),
        ("warm-128k", "128", "1 name: expected text, found 128. Quote it: '128'."),
        (
            "{name: deepseek-v4}",
            "deepseek-v4",
            "3 encoding: expected a mapping of keys, found 'deepseek-v4' (text). Write {name: deepseek-v4}.",
        ),
        (
            "{min_ratio: 0.90}",
            "0.9",
            (
                "9 requests.cached: expected a mapping of keys, found 0.9. "
                "Write, for example, `cached: {min_ratio: 0.9}`."
            ),
        ),
        (
            "{rule: sglang-dsv4-npu}",
            "{engine: sglang, page_size: 128, hit_quantum: 200}",
            "4 cache.hit_quantum: expected a multiple of page_size 128, found 200. The next one is 256.",
        ),
        (
            "{rule: sglang-dsv4-npu}",
            "{engine: vllm, page_size: 0}",
            "4 cache.page_size: expected at least 1, found 0",
        ),
        (
            "sglang-dsv4-npu}",
            "sglang, engine: sglang}",
            "4 cache.engine: expected rule or engine, found both. Delete engine: the rule knows its engine.",
        ),
        (
            "{name: copy}",
            "{name: 3}",
            "11 requests.task.name: expected the key name (one of {tasks}), found 3",
        ),
    ],
)
def test_a_wrong_value_is_told_with_what_to_write(old, new, problem):
    known = ", ".join(spec_file.registry.names(tasks))
    assert after(old, new) == [f"s.yaml:{problem.replace('{tasks}', known)}"]


def test_rows_that_do_not_fill_ranks_with_prefixes_of_their_own():
    text = WARM.replace("shared_by: all", "shared_by: rank").replace("dp_ranks: 16", "dp_ranks: 7")
    assert said(text) == [
        (
            "s.yaml:12 splits.formal.total: expected a multiple of dp_ranks 7, since each rank has its own "
            "prefix, found 640. The nearest are 637 and 644."
        )
    ]


def test_fewer_rows_than_ranks_with_prefixes_of_their_own():
    (problem,) = after("total: 640", "total: 8", WARM.replace("shared_by: all", "shared_by: rank"))
    assert problem.endswith("found 8. The least is 16.")


def test_more_groups_than_the_rows_of_one_rank():
    text = LEAST.replace("cached:", "prefix: {shared_by: group, groups: 41}, cached:")
    assert spec_file.parse(text.replace("41", "40"), "s.yaml").requests[0].prefix.groups == 40
    (problem,) = said(text)
    assert problem.startswith(
        "s.yaml:3 requests.prefix.groups: expected at most one group for each of the 40 "
    )


def test_unknown_kinds_list_the_known_ones_and_the_nearest():
    (encoding,) = after("{name: deepseek-v4}", "{name: deepseek-v3}")
    assert encoding.startswith("s.yaml:3 encoding.name: expected a known encoding: ")
    assert encoding.endswith("found 'deepseek-v3'. Did you mean 'deepseek-v4'?")
    (rule,) = after("sglang-dsv4-npu", "vllm-dsv5")
    assert rule.startswith("s.yaml:4 cache.rule: expected a known cache rule: sglang, ")


def test_a_rule_that_no_engine_has_is_refused_at_its_line():
    (problem,) = after("{rule: sglang-dsv4-npu}", "{rule: vllm, page_size: 16, hit_quantum: 24}")
    assert problem.startswith(
        "s.yaml:4 cache: expected hit_quantum to be a multiple of page_size 16, found 24"
    )
    (problem,) = after("sglang-dsv4-npu", "sglang-dsv4-npu, page_size: 64")
    assert problem.startswith("s.yaml:4 cache.page_size: expected 128: ")


def test_the_branches_of_a_union_make_one_problem():
    (problem,) = after("{name: deepseek-v4}", "{name: deepseek-v4, thinking: maybe}")
    assert problem.startswith("s.yaml:3 encoding.thinking: expected true or false or 'low'")


def test_a_mistake_elsewhere_does_not_hide_a_contradiction_between_sections():
    problems = after("{total: 640}", "{total: 641}", WARM.replace("all", "rank").replace("name: w", "nam: w"))
    assert [problem.split(": expected")[0] for problem in problems] == [
        "s.yaml:1 nam",
        "s.yaml:12 splits.formal.total",
    ]


def test_a_manifest_that_was_edited_names_the_key():
    content = spec_file.parse(WARM, "s.yaml").content
    content["requests"]["cached"]["min_ratio"] = "0.9"
    del content["dp_ranks"]
    content["cache"]["page_size"] = 64
    with pytest.raises(WlgenError) as caught:
        spec_file.from_content(content, "m.json")
    assert [str(p).split(", found")[0] for p in caught.value.problems] == [
        "m.json cache.page_size: expected 128: SGLang forces it for DeepSeek-V4 on an NPU",
        "m.json requests.cached.min_ratio: expected a number",
    ]


def test_a_manifest_whose_spec_is_no_mapping():
    with pytest.raises(WlgenError, match=r"^m\.json: expected a spec, found 'x' \(text\)$"):
        spec_file.from_content("x", "m.json")


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", ": expected a spec, found an empty file. A spec has the keys name, "),
        (b"# nothing\n", ": expected a spec, found no keys. "),
        (b"- name: x\n", ":1: expected a spec, found a list. "),
        (b"\x7fELF\x00\x01", ": expected a spec, found a binary file. "),
        (b"name: x\nrandom\xff: 1\n", ":2: expected UTF-8 text, found the byte 0xff. "),
        ("name: x".encode("utf-16"), ": expected UTF-8 text, found UTF-16. "),
        (b"#" * (2**20 + 1), ": expected a spec of at most 1048576 bytes, found a larger file. "),
    ],
)
def test_a_file_that_is_no_spec(tmp_path: Path, raw, problem):
    path = tmp_path / "s.yaml"
    path.write_bytes(raw)
    with pytest.raises(WlgenError) as caught:
        spec_file.load(path)
    assert str(caught.value).startswith(f"{path}{problem}")


def test_a_file_that_cannot_be_read(tmp_path: Path):
    (tmp_path / "warm-128k.yaml").write_text(WARM)
    with pytest.raises(WlgenError, match=r"found no such file\. Did you mean 'warm-128k.yaml'"):
        spec_file.load(tmp_path / "warm128k.yaml")
    with pytest.raises(WlgenError, match=r"found a directory\. Give the YAML file of a spec"):
        spec_file.load(tmp_path)
    with pytest.raises(WlgenError, match="no such file"):
        spec_file.load(tmp_path / "gone" / "x.yaml")


def test_a_file_with_a_byte_order_mark_and_windows_line_ends_loads(tmp_path: Path):
    path = tmp_path / "s.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + WARM.replace("\n", "\r\n").encode())
    spec = spec_file.load(path)
    assert spec.content == spec_file.parse(WARM, "s.yaml").content
    assert spec.at("requests", "task") == f"{path}:11 requests.task"
