"""Rows of one group part at their first own token, or at their second where the vocabulary is too small."""

from __future__ import annotations

import re
from itertools import combinations

import orjson
import pytest
from kit.oracle import broken_promises, read_rows, server_ids, shared
from kit.sets import chat, framed, raw, spec_of, wordy
from kit.verified import verify

from wlgen.build.build import build
from wlgen.build.openings import crowded_rows, opening
from wlgen.build.ready import blueprint, load_encoding
from wlgen.errors import WlgenError
from wlgen.plan.rows import Segment
from wlgen.plan.solve import solve
from wlgen.spec import file as spec_file
from wlgen.text.lexicon import Lexicon
from wlgen.workload.opened import open_workload

SMALL = {"encoding": {"name": "raw", "path": str(wordy(40))}, "task": "words", "body_len": 64}


def segment(ordinal: int, tokens: int = 9) -> Segment:
    return Segment(stream=("row", ordinal), ordinal=ordinal, tokens=tokens, kind="own")


def test_streams_have_a_lead_of_their_own():
    lexicon = Lexicon(load_encoding(spec_of(encoding=chat("bert"))), 1)
    for at_start in (False, True):
        openings = [opening(lexicon, segment(n), at_start=at_start) for n in range(-200, 200)]
        assert len({lead.id for lead, _ in openings}) == 400
        assert {second.text for _, second in openings} == {":", ","}


def test_a_segment_of_one_token_is_a_lead_alone():
    lexicon = Lexicon(load_encoding(spec_of(encoding=chat("bert"))), 1)
    both = opening(lexicon, segment(3), at_start=True)
    assert opening(lexicon, segment(3, tokens=1), at_start=True) == both[:1]


def test_streams_with_one_lead_differ_in_their_second_token():
    lexicon = Lexicon(load_encoding(spec_of(**SMALL)), 1)
    leads = len({opening(lexicon, segment(n), at_start=False)[0].id for n in range(1000)})
    pairs = {
        tuple(atom.id for atom in opening(lexicon, segment(n), at_start=False)) for n in range(5 * leads)
    }
    back = {tuple(a.id for a in opening(lexicon, segment(-1 - n), at_start=False)) for n in range(5 * leads)}
    assert len(pairs) == len(back) == 5 * leads
    assert not pairs & back


def test_a_vocabulary_that_suffices_leaves_no_row_crowded():
    ready = blueprint(spec_of(formal={"total": 200}))
    assert ready.crowded == 0
    assert crowded_rows(ready.plan, ready.lexicon) == 0


@pytest.mark.parametrize("cached", [{"min_ratio": 0.5}, {"max_tokens": 5}])
def test_rows_beyond_the_vocabulary_share_one_token_more_and_the_manifest_says_how_many(tmp_path, cached):
    workload = build(spec_of(**SMALL, cached=cached, formal={"total": 60}), tmp_path).workload
    crowded = workload.manifest.proof["rows_that_share_a_lead"]
    assert crowded > 30
    assert broken_promises(workload.folder) == []
    assert verify(workload, full=True).findings == []
    rows = [row for row in read_rows(workload.folder) if row["split"] != "seed"]
    ids = [server_ids(dict(workload.manifest.spec["encoding"]), row["messages"]) for row in rows]
    beyond = {
        other["id"]
        for n, one in enumerate(rows)
        for m, other in enumerate(rows[n + 1 :], n + 1)
        if shared(ids[n], ids[m]) > one["shared_len"]
    }
    assert len(beyond) <= crowded <= len(beyond) + 2 * 2  # seeds of one token count too


def test_prefixes_beyond_the_vocabulary_differ_in_their_first_two_tokens(tmp_path):
    """Two groups then share the framing head and a token, which fills no page."""
    prefix = {"shared_by": "group", "groups": 40}
    workload = build(spec_of(**SMALL, prefix=prefix, formal={"total": 80}), tmp_path).workload
    assert workload.manifest.proof["rows_that_share_a_lead"] > 0
    assert broken_promises(workload.folder) == []
    assert verify(workload, full=False).findings == verify(workload, full=True).findings == []
    ids = {
        row["group"]: server_ids(dict(workload.manifest.spec["encoding"]), row["messages"])
        for row in read_rows(workload.folder)
    }
    head = len(workload.manifest.encoding["head_ids"])
    found = {shared(one, other) for one, other in combinations(ids.values(), 2)}
    assert len(ids) == 40
    assert found == {head, head + 1}


def test_the_manifest_says_the_same_whichever_rank_was_built_first(tmp_path):
    spec = spec_of(**SMALL, formal={"total": 60})
    whole = build(spec, tmp_path / "whole").workload.manifest
    for rank in (1, 0):
        part = build(spec, tmp_path / "parts", ranks=[rank]).workload
        assert verify(part, full=True).findings == []
    assert part.manifest.proof["rows_that_share_a_lead"] == whole.proof["rows_that_share_a_lead"]
    assert part.manifest.files == whole.files


def test_verify_takes_no_more_such_rows_than_the_manifest_says(tmp_path):
    workload = build(spec_of(**SMALL, formal={"total": 60}), tmp_path).workload
    path = workload.folder / "manifest.json"
    content = orjson.loads(path.read_bytes())
    content["proof"]["rows_that_share_a_lead"] = 3
    path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    findings = verify(open_workload(workload.folder), full=True).findings
    assert {finding.promise for finding in findings} == {"shared_len"}


@pytest.mark.parametrize(
    "changes",
    [
        {"formal": {"total": 600}},
        {"formal": {"total": 600}, "cached": {"max_tokens": 5}},
        {"formal": {"total": 800}, "prefix": {"shared_by": "group", "groups": 400}},
        {
            "formal": {"total": 80},
            "prefix": {"shared_by": "group", "groups": 40},
            "cache_rule": {"engine": "sglang", "page_size": 1},
        },
        {"formal": {"total": 4}, "seed": {"per_rank": 15}},
        {"formal": {"total": 60}, "cache_rule": {"engine": "sglang", "page_size": 1}},
    ],
)
def test_a_vocabulary_too_small_is_refused_before_anything_is_written(tmp_path, changes):
    """Too many rows, prefixes or one-token seeds; and at page size 1 one token more is one page more."""
    with pytest.raises(WlgenError) as failure:
        build(spec_of(**SMALL | changes), tmp_path / "output")
    (problem,) = failure.value.problems
    assert problem.place == "tokenizer vocabulary"
    assert re.search(r"too few words for row \w+-r\d+-\d+ of group", problem.found)
    assert "more whole words" in problem.remedy
    assert not (tmp_path / "output").exists()


def test_a_plan_of_many_rows_is_judged_without_composing_them():
    """Leads of a hundredth turn are found without counting through the ninety-nine before."""
    spec = spec_of(encoding=raw("bert"), formal={"total": 20000}, task="words", body_len=64)
    lexicon = Lexicon(load_encoding(spec), 1)
    assert 18000 < crowded_rows(solve(spec, framed(0, 0), lambda *_: 2), lexicon) < 20000


@pytest.mark.parametrize(
    ("changes", "splits"),
    [
        ({"rounds": 9}, {"formal": {"total": 640}}),
        ({"rounds": 3}, {"formal": {"total": 9000}}),
        ({}, {"formal": {"total": 640}, "check": {"per_rank": 100}}),
        ({"rounds": 12, "cache": {"rule": "sglang-dsv4-npu"}}, {"formal": {"total": 640}}),
    ],
    ids=["640 rows in 9 rounds", "9000 rows in 3", "1600 checks", "12 rounds of a hybrid"],
)
def test_nothing_crowds_while_there_are_as_many_first_tokens_as_rows(changes, splits):
    """DeepSeek-V4 has 36,977 first tokens, more than any of these sets has rows behind its prefix."""
    content = {
        "name": "many",
        "random_seed": 7,
        "encoding": {"name": "deepseek-v4"},
        "cache": {"rule": "sglang", "page_size": 1},
        "dp_ranks": 16,
        "requests": {
            "body_len": 8192,
            "output_len": 8,
            "cached": {"min_ratio": 0.5},
            "task": {"name": "words"},
        },
        "splits": splits,
    } | changes
    ready = blueprint(spec_file.from_content(content, "spec"))
    assert ready.crowded == 0
    assert ready.plan.numbering == 2
