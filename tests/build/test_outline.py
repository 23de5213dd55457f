"""What `wlgen plan` says of a spec is what its set will be."""

from __future__ import annotations

import pytest
from kit.sets import spec_of, wordy

from wlgen.build.build import build
from wlgen.build.outline import outline
from wlgen.build.ready import blueprint
from wlgen.commands._outline_text import lines
from wlgen.spec.model import Spec

TINY = {"encoding": {"name": "raw", "path": str(wordy(400))}, "task": "words"}
DEEPSEEK = {"encoding": {"name": "deepseek-v4"}, "dp_ranks": 3, "formal": {"total": 10}}


def said(spec: Spec) -> list[str]:
    return lines(blueprint(spec))


def test_a_warm_set():
    rule = {"engine": "sglang", "page_size": 16, "hit_quantum": 32}
    assert said(spec_of(cache_rule=rule, **DEEPSEEK)) == [
        "small: 3 ranks, rule sglang, page 16, hit quantum 32",
        "| head 2 | shared 190 ================| unique 130 -----------| tail 2 |",
        "prompt  324 = body 320 + framing 2 + 2",
        "shared  192 tokens = 12 pages of 16 = 6 x 32, framing head included",
        "cached  192 tokens = 12 pages of 16 = 6 x 32",
        "unique  130; computed for each request 132",
        "seed         3 rows (1 a rank)  prompt 195, cached 0, output 1",
        "check        3 rows (1 a rank)  prompt 324, cached 192, output 1",
        "formal      10 rows (3 to 4 a rank)  prompt 324, cached 192, output 8",
        "promises",
        "  configured      50.0000 %",
        "  aggregate       59.2593 %",
        "  each request    59.2593 % at least",
        "to write about 0.0 MB",
    ]


def test_a_zero_set_promises_at_most():
    found = said(spec_of(cached={"max_tokens": 0}, **DEEPSEEK))
    assert "shared  nothing" in found
    assert "  each request    0.0000 % at most" in found
    assert not any(line.startswith("seed") for line in found)


def test_a_crowded_set_says_so():
    crowded = {"encoding": {"name": "raw", "path": str(wordy(40))}, "task": "words", "formal": {"total": 60}}
    ready = blueprint(spec_of(**crowded))
    (line,) = [line for line in lines(ready) if line.startswith("crowded")]
    assert f"crowded {ready.crowded} rows share one token more" in line
    assert outline(ready)["rows_that_share_a_lead"] == ready.crowded > 0


@pytest.mark.parametrize("changes", [{}, {"cached": {"max_tokens": 0}}, {"prefix": {"shared_by": "rank"}}])
def test_the_figures_are_those_of_the_built_set(tmp_path, changes):
    spec = spec_of(formal={"total": 40}, **TINY, **changes)
    found = outline(blueprint(spec))
    workload = build(spec, tmp_path).workload
    for split, at in found["splits"].items():
        rows = list(workload.rows([split]))
        assert at["rows"] == sum(at["per_rank"]) == len(rows)
        assert {(r.prompt_len, r.output_len) for r in rows} <= {(at["prompt_len"], at["output_len"])}
    written = sum(file.stat().st_size for file in workload.folder.glob("*/*.jsonl"))
    assert found["bytes"] == pytest.approx(written, rel=0.02)
    assert found["promises"]["per_request_min"] == workload.manifest.promises.per_request_min
