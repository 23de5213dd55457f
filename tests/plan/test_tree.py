"""The prefix tree and the stretches that pictures are drawn from."""

from __future__ import annotations

import json
from dataclasses import replace

from kit.sets import content_of, framed, spec_of

from wlgen.build.build import build
from wlgen.build.outline import planned_tree
from wlgen.plan.solve import solve
from wlgen.plan.tree import PrefixNode, Stretch, joined, prefix_tree, stretches
from wlgen.spec import file as spec_file

LEVELS = {
    "levels": [
        {"shared_by": "all", "tokens": 64},
        {"shared_by": "group", "groups": 2, "popularity": {"weights": [3, 1]}},
    ]
}
TRACE = [[7, 8, 9], [7, 8, 6], [7, 5], [4, 8]]


def test_a_node_has_the_rows_through_it_and_its_own_tokens():
    content = content_of(prefix=LEVELS, formal={"total": 8}, dp_ranks=1)
    plan = solve(spec_file.from_content(content, "spec"), framed(2, 2), lambda *_: 2)
    rows = list(plan.rows("formal", 0))
    counts = {group: sum(row.group == group for row in rows) for group in ("all/g0000", "all/g0001")}
    assert sum(counts.values()) == len(rows) == 8
    top, first, second = prefix_tree(rows)
    assert top == PrefixNode(0, "all", 64, 8)
    assert (first.name, second.name) == ("all/g0000", "all/g0001")
    assert (first.depth, first.rows, second.rows) == (1, counts["all/g0000"], counts["all/g0001"])
    assert first.tokens == rows[0].shared_len - 2 - 64


def test_a_chain_that_all_rows_go_through_is_one_node():
    chain = [
        PrefixNode(0, "0", 16, 3),
        PrefixNode(1, "1", 16, 3),
        PrefixNode(2, "2", 16, 2),
        PrefixNode(3, "3", 8, 2),
        PrefixNode(0, "4", 4, 1),
    ]
    assert joined(chain) == [
        PrefixNode(0, "0 to 1", 32, 3),
        PrefixNode(1, "2 to 3", 24, 2),
        PrefixNode(0, "4", 4, 1),
    ]
    branches = [PrefixNode(0, "0", 16, 3), PrefixNode(1, "1", 16, 2), PrefixNode(1, "2", 16, 1)]
    assert joined(branches) == branches
    assert joined([]) == []


def test_stretches_hold_each_row_once_over_all_sequences():
    ranks = [[(0, 10), (5, 10), (5, 10)], [(1, 10), (6, 10)]]
    assert stretches(ranks, 2) == [Stretch(0, 1, 1, 20), Stretch(1, 3, 16, 30)]
    assert stretches(ranks, 9) == [Stretch(0, 1, 1, 20), Stretch(1, 2, 11, 20), Stretch(2, 3, 5, 10)]
    assert stretches([[]], 4) == []


def test_the_tree_of_a_built_set_is_that_of_its_plan_or_says_why_not(tmp_path):
    workload = build(spec_of(prefix=LEVELS, formal={"total": 8}), tmp_path).workload
    tree = planned_tree(workload)
    assert [node.name for node in tree.nodes] == ["all", "all/g0000", "all/g0001"]
    assert (tree.nodes[0].rows, tree.missing) == (8, "")
    elsewhere = workload.manifest.spec | {"encoding": {"name": "raw", "path": str(tmp_path / "none")}}
    gone = replace(workload, manifest=replace(workload.manifest, spec=elsewhere))
    assert planned_tree(gone).nodes == ()
    assert str(tmp_path / "none") in planned_tree(gone).missing


def test_a_block_that_one_row_of_a_trace_has_alone_is_no_prefix(tmp_path):
    lines = [
        {"timestamp": 0, "input_length": 16 * len(ids), "output_length": 1, "hash_ids": ids} for ids in TRACE
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    content = {k: v for k, v in content_of(dp_ranks=1).items() if k != "splits"}
    content["requests"] = {"trace": {"path": str(tmp_path / "t.jsonl"), "block_size": 16}}
    plan = solve(spec_file.parse(json.dumps(content), str(tmp_path / "spec")), framed(2, 2), lambda *_: 2)
    assert prefix_tree(plan.rows("formal", 0)) == [PrefixNode(0, "0", 14, 3), PrefixNode(1, "1", 16, 2)]
