"""A set replayed with a fault: the figures that a server with it would report."""

from __future__ import annotations

import json

import pytest
from kit.shaped import built
from typer.testing import CliRunner

from wlgen.cli import app
from wlgen.errors import WlgenError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return built(tmp_path_factory.mktemp("sets")).folder


def simulated(folder, fault, *more: str):
    result = CliRunner().invoke(app, ["simulate", str(folder), "--fault", fault, *more])
    return result.exit_code, result.output


def test_a_rank_that_keeps_nothing_finds_nothing_and_the_other_its_plan(folder, tmp_path):
    out = tmp_path / "hits.jsonl"
    code, _ = simulated(folder, "lost_cache:ranks=1", "--out", str(out))
    hits = [json.loads(line) for line in out.read_text().splitlines()]
    found = {
        rank: {h["cached_len"] for h in hits if h["dp_rank"] == rank and "formal" in h["id"]}
        for rank in (0, 1)
    }
    assert code == 1
    assert found[1] == {0}
    assert len(found[0]) == 1
    assert min(found[0]) > 0


def test_an_unseeded_rank_costs_its_first_row_only_under_a_dense_rule(folder, tmp_path):
    out = tmp_path / "hits.jsonl"
    simulated(folder, "rank_not_seeded:ranks=0", "--out", str(out))
    hits = [json.loads(line) for line in out.read_text().splitlines()]
    rank = [h["cached_len"] for h in hits if h["dp_rank"] == 0]
    assert rank[0] == 0
    assert min(rank[1:]) > 0


def test_the_fault_stands_in_the_json(folder):
    _, output = simulated(folder, "sent_twice", "--json")
    assert "the set was sent twice" in json.loads(output)["reading"][0]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("lost_cach", "lost_cache"),
        ("lost_cache:rank=1", "lost_cache with ranks=VALUE"),
        ("refused", "which acts on answers alone"),
        ("capacity", "capacity:tokens=VALUE"),
        ("lost_cache:group=nobody", "a fault that changes this run"),
    ],
)
def test_a_fault_that_cannot_act_is_refused(folder, fault, says):
    with pytest.raises(WlgenError, match=says):
        CliRunner().invoke(app, ["simulate", str(folder), "--fault", fault], catch_exceptions=False)
