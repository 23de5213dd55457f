"""Exports of shaped sets: later rounds are runs of their own, and rows go out at their times."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from kit.carried import READERS, carried, lines
from kit.sets import content_of

from wlgen import exporters, registry
from wlgen.build.build import build
from wlgen.errors import WlgenError
from wlgen.export.export import export
from wlgen.spec import file as spec_file
from wlgen.workload.opened import Workload

FORMS = [
    (client, form.name)
    for client in registry.names(exporters)
    for form in registry.load(exporters, client, place="").FORMS
]


@pytest.fixture(scope="module")
def shaped_set(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    """Build two rounds of rows with times."""
    content = content_of(name="shaped", seed={"per_rank": 1}, formal={"total": 6})
    content |= {"rounds": 2, "arrivals": {"rate": 50, "process": "poisson"}}
    return build(spec_file.from_content(content, "spec"), tmp_path_factory.mktemp("shaped")).workload


@pytest.mark.parametrize(("client", "form"), FORMS)
def test_each_round_is_a_part_of_its_own(shaped_set: Workload, tmp_path: Path, client: str, form: str):
    """A second round in the same file would be measured with the first, before its checks."""
    exported = export(shaped_set, client, tmp_path / "out", form=form)
    assert exported.rows == len(list(shaped_set.rows()))
    card = (tmp_path / "out/RUN.md").read_text()
    parts = re.findall(r"^\| ([a-z0-9-]+) \| \d", card, re.MULTILINE)
    assert parts == ["seed", "check", "formal", "check-round-1", "formal-round-1"]
    places = [card.index(part) for part in ("### seed", "### check", "## 5. ", "### Round 1", "## 6. ")]
    assert places == sorted(places)
    audits = re.findall(r'^wlgen audit "\$SET" \$RUN/(\S+) .*?( --round \d)?(?: \\\\)?$', card, re.MULTILINE)
    assert [round_ for _, round_ in audits] == (["", " --round 1"] if audits else [])
    assert not audits or ("round-1" not in audits[0][0] and "formal-round-1" in audits[1][0])
    if client in READERS:
        first = [r for r in carried(client, tmp_path / "out") if r.split == "formal"]
        rows = [row for row in shaped_set.rows(["formal"]) if row.round == 0]
        assert Counter(r.output_len for r in first) == Counter(row.output_len for row in rows)
        assert len(first) == len(rows)


@pytest.mark.parametrize("client", ["sglang", "vllm"])
def test_ids_of_a_later_round_are_its_own(shaped_set: Workload, tmp_path: Path, client: str):
    export(shaped_set, client, tmp_path / "out", form="ids", rounds=[1])
    key = {"sglang": "input_ids", "vllm": "prompt"}[client]
    paths = [p for p in (tmp_path / "out").rglob("*.jsonl") if "round-1" in str(p) and "formal" in str(p)]
    sent = {np.array(line[key], dtype="<u4").tobytes() for path in paths for line in lines(path)}
    rows = {row.prompt_sha256 for row in shaped_set.rows(["formal"]) if row.round == 1}
    assert {hashlib.sha256(ids).hexdigest() for ids in sent} == rows


def test_a_round_can_be_chosen(shaped_set: Workload, tmp_path: Path):
    exported = export(shaped_set, "plain", tmp_path / "out", rounds=[1])
    assert {f.path for f in exported.files} == {
        "seed.jsonl",
        "check-round-1.jsonl",
        "formal-round-1.jsonl",
        "RUN.md",
    }
    with pytest.raises(WlgenError, match="--round: expected one that the set has: 0, 1, found 2"):
        export(shaped_set, "plain", tmp_path / "out", rounds=[2])


@pytest.mark.parametrize(
    "clients",
    [
        ("aisbench", "text", "timestamp", 1),
        ("aiperf", "text", "timestamp", 1),
        ("aiperf", "ids", "timestamp", 1),
        ("evalscope", "trace", "timestamp", 1000),
        ("mooncake", "blocks", "timestamp", 1),
        ("plain", "text", "timestamp_ms", 1),
    ],
)
def test_rows_go_out_at_their_times_in_order(
    shaped_set: Workload, tmp_path: Path, clients: tuple[str, str, str, int]
):
    client, form, key, unit = clients
    export(shaped_set, client, tmp_path / "out", form=form)
    for name, round_ in (("formal", 0), ("formal-round-1", 1)):
        times = [line[key] * unit for line in lines(tmp_path / f"out/{name}.jsonl")]
        rows = [row.timestamp_ms for row in shaped_set.rows(["formal"]) if row.round == round_]
        assert times == sorted(time for time in rows if time is not None)


def test_times_are_switched_on_where_there_are_any(shaped_set: Workload, warm_set: Workload, tmp_path: Path):
    for workload, there in ((shaped_set, True), (warm_set, False)):
        export(workload, "aisbench", tmp_path / "ais")
        export(workload, "aiperf", tmp_path / "aip")
        assert f"use_timestamp={there}" in (tmp_path / "ais/formal.py").read_text()
        assert "use_timestamp=False" in (tmp_path / "ais/check.py").read_text()
        command = (tmp_path / "aip/RUN.md").read_text().partition("## 5.")[2].partition("```\n")[0]
        assert ("--fixed-schedule" in command) is there
        assert ("--concurrency" in command) is not there


def test_the_card_says_where_rows_build_on_earlier_ones(warm_set: Workload, tmp_path: Path):
    prefix = {"shared_by": "all", "tokens": 160}
    content = content_of(name="cold", cached={"cold": True}, prefix=prefix, check={"per_rank": 0})
    cold = build(spec_file.from_content(content, "spec"), tmp_path).workload
    for workload, said in ((cold, True), (warm_set, False)):
        export(workload, "plain", tmp_path / "out")
        assert ("find what earlier formal rows have left" in (tmp_path / "out/RUN.md").read_text()) is said
