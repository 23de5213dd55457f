"""Runs of small sets that an audit once explained wrongly, from their files to the cause that is named."""

from __future__ import annotations

import hashlib
import json

import pytest
from typer.testing import CliRunner

from wlgen.build.build import build
from wlgen.cli import app
from wlgen.spec import file as spec_file
from wlgen.workload.splits import MEASURED

PAIR = """
name: {name}
random_seed: 7
encoding: {{name: deepseek-v4}}
cache: {{engine: vllm, page_size: 128}}
dp_ranks: 2
requests: {{body_len: 2048, output_len: 16, cached: {cached}{prefix}}}
splits: {{formal: {{total: 16}}}}
"""
GROUPS = """
name: groups{ranks}
random_seed: 9
encoding: {{name: deepseek-v4}}
cache: {{rule: sglang, page_size: 64}}
dp_ranks: {ranks}
requests:
  body_len: 2048
  output_len: 16
  cached: {{min_ratio: 0.3}}
  prefix: {{shared_by: group, groups: 4, tokens: 1024}}
splits: {{formal: {{total: 32}}}}
"""
ALL = ", prefix: {shared_by: all}"
SPECS = {
    "pair": PAIR.format(name="pair", cached="{min_ratio: 0.5}", prefix=ALL),
    "pair of zeros": PAIR.format(name="zeros", cached="{max_tokens: 0}", prefix=""),
    "pair at 512": PAIR.format(name="at512", cached="{tokens: 512}", prefix=ALL),
    "groups on 2 ranks": GROUPS.format(ranks=2),
    "groups on 1 rank": GROUPS.format(ranks=1),
}


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    place = tmp_path_factory.mktemp("cases")
    return {name: build(spec_file.parse(text, "spec.yaml"), place).workload for name, text in SPECS.items()}


def audited(workload, tmp_path, cached, *more: str, prompt=lambda row: row.prompt_len):
    """Return what an audit prints of results whose cached and prompt tokens follow from each row."""
    lines = []
    for row in workload.rows(MEASURED):
        usage = {"prompt_tokens": prompt(row), "completion_tokens": row.output_len}
        usage["prompt_tokens_details"] = {"cached_tokens": cached(row)}
        text = hashlib.sha256(row.messages[-1].content.encode()).hexdigest()
        lines.append(json.dumps({"id": row.id, "text_sha256": text, "usage": usage}))
    results = tmp_path / "results.jsonl"
    results.write_text("\n".join(lines) + "\n")
    ran = CliRunner().invoke(app, ["audit", str(workload.folder), str(results), *more])
    return json.loads(ran.output) if "--json" in more else ran.output


def in_group(row):
    return 0 if row.group.endswith("2") else row.cached_len


@pytest.mark.parametrize(
    ("name", "cached", "expected"),
    [
        ("pair", lambda row: row.prompt_len, ("decode_figure", {}, 16)),
        ("pair", lambda row: row.prompt_len - 1, ("decode_figure", {}, 16)),
        ("pair of zeros", lambda row: row.prompt_len, ("decode_figure", {}, 16)),
        ("pair of zeros", lambda row: row.prompt_len - 1, ("decode_figure", {}, 16)),
        ("pair at 512", lambda row: 2 * row.cached_len, ("doubled_figure", {}, 16)),
        ("groups on 2 ranks", in_group, ("lost_cache", {"group": "g0002"}, 8)),
        ("groups on 1 rank", in_group, ("lost_cache", {"group": "g0002"}, 8)),
    ],
)
def test_the_right_cause_is_named_alone(sets, tmp_path, name, cached, expected):
    found = audited(sets[name], tmp_path, cached, "--json")
    (named,) = found["diagnosis"]
    assert (named["cause"], named["parameters"], named["rows"]) == expected
    assert named["of"] == named["rows"]
    assert set(named) >= {"cause", "parameters", "rows", "of", "explains", "remedy", "rivals"}
    assert found["unexplained"] == []


@pytest.mark.parametrize("name", SPECS)
def test_a_clean_run_has_no_cause(sets, tmp_path, name):
    found = audited(sets[name], tmp_path, lambda row: row.cached_len, "--json")
    assert (found["diagnosis"], found["unexplained"]) == ([], [])


def test_what_follows_from_wrong_framing_is_no_cause(sets, tmp_path):
    workload = sets["groups on 2 ranks"]
    found = audited(workload, tmp_path, lambda _: 0, "--json", prompt=lambda row: row.prompt_len + 79)
    assert [each["cause"] for each in found["diagnosis"]] == ["framing"]


def test_explain_shows_what_each_surviving_cause_predicts_of_a_row(sets, tmp_path):
    output = audited(sets["groups on 2 ranks"], tmp_path, in_group, "--explain", "formal-r00-000002")
    assert "formal-r00-000002: planned 1024 cached tokens, found 0 cached tokens" in output
    assert "of group g0002, keeps nothing [lost_cache]: predicts 0, as was seen" in output
    found = audited(sets["groups on 2 ranks"], tmp_path, in_group, "--json", "--explain", "formal-r00-000002")
    assert found["explained_row"]["predictions"][0]["figures"] == [0]
