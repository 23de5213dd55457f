"""Infer-rule: the cache rules that explain what a server reported, or what none explains."""

from __future__ import annotations

import json

import orjson
import pytest
from kit.rules import made_rule
from typer.testing import CliRunner

from wlgen.cache.rule import CacheRule
from wlgen.cli import app
from wlgen.errors import WlgenError
from wlgen.simulate.infer import Observation, infer

SHARED = (700, 1024, 1281, 4095, 8192, 14848, 16000)


def observed(rule: CacheRule, length: int = 16388) -> list[Observation]:
    return [Observation(length, shared, rule.cached_len(shared, length)) for shared in SHARED]


def rule(engine: str, page_size: int, **others: object) -> CacheRule:
    return made_rule(name="", engine=engine, page_size=page_size, hit_quantum=page_size, **others)  # type: ignore[arg-type]


def inferred(*arguments: object) -> tuple[int, dict]:
    done = CliRunner().invoke(app, ["infer-rule", *map(str, arguments), "--json"])
    if isinstance(done.exception, WlgenError):
        raise done.exception
    return done.exit_code, json.loads(done.output)


@pytest.mark.parametrize("page_size", [1, 64, 128, 256, 2048])
def test_the_quantum_is_found(page_size):
    found = infer(observed(rule("sglang", page_size)))
    dense = found.candidates[0]
    assert found.explained == found.observations == len(SHARED)
    assert dense.quanta == (page_size,)
    written = [kind.written for kind in dense.rules]
    assert written == [f"rule: sglang, page_size: {page_size}", f"rule: vllm, page_size: {page_size}"]


def test_the_npus_rule_is_named():
    found = infer(observed(rule("sglang", 2048)))
    assert [kind.written for kind in found.candidates[-1].rules] == ["rule: sglang-dsv4-npu"]


@pytest.mark.parametrize(("engine", "word"), [("sglang", "SGLang"), ("vllm", "vLLM")])
def test_speculation_is_told_apart_by_engine(engine, word):
    found = infer(observed(rule(engine, 64, speculative=True)))
    assert {c.quanta for c in found.candidates} == {(64,)}  # vLLM with smaller pages counts so, too
    assert f"({word} with EAGLE/MTP)" in found.candidates[0].words


def test_figures_that_fit_several_quanta_name_them_all():
    """14848 is 116 pages of 128, so 14336 says no to 128, but not to 2048 or its half."""
    quanta = infer([Observation(16388, 14848, 14336)]).candidates[0].quanta
    assert {1024, 2048, 14336} <= set(quanta)
    assert 128 not in quanta


def test_nothing_cached_fits_any_larger_quantum():
    found = infer([Observation(1000, 700, 0)])
    assert (found.candidates[0].quanta, found.candidates[0].or_more) == ((701,), True)


def test_an_observation_that_none_explains_is_named():
    """More than was shared can be no rule's doing."""
    odd = Observation(1000, 700, 900, "line 8")
    found = infer([*observed(rule("sglang", 128)), odd])
    assert (found.explained, found.unexplained) == (len(SHARED), (odd,))
    assert found.candidates[0].quanta == (128,)


def test_figures_that_no_rule_explains_give_no_candidate():
    found = infer([Observation(100, 50, 80)])
    assert (found.explained, found.candidates) == (0, ())
    assert found.unexplained == (Observation(100, 50, 80),)


def test_equal_observations_are_counted():
    found = infer([Observation(1000, 700, 640)] * 5 + [Observation(1000, 700, 641)])
    assert (found.observations, found.explained) == (6, 5)


def test_the_command_reads_files_and_says_whether_all_is_explained(tmp_path):
    path = tmp_path / "observed.jsonl"
    keys = ("prompt_tokens", "shared_tokens", "cached_tokens")
    rows = [dict(zip(keys, seen[:3], strict=True)) for seen in observed(rule("vllm", 128, speculative=True))]
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    code, found = inferred(path)
    assert (code, found["explained_all"]) == (0, True)
    path.write_bytes(path.read_bytes() + orjson.dumps(dict(zip(keys, (1000, 5, 999), strict=True))))
    code, found = inferred(path)
    assert (code, found["explained_all"]) == (1, False)
    text = CliRunner().invoke(app, ["infer-rule", str(path)]).output
    assert f"explained  {len(SHARED)} of {len(SHARED) + 1} observations, by:" in text
    assert "cache: {rule: vllm, page_size: 128, speculative: true}" in text
    assert f"999 cached of 1000 that share 5 ({path}:{len(SHARED) + 1})" in text


def test_a_sets_results_are_joined_to_its_rows(warm_set, tmp_path):
    """What a client recorded of a built set, with the shared tokens that the set knows."""
    results = tmp_path / "profile_export.jsonl"
    with results.open("wb") as file:
        for row in warm_set.rows(("formal",)):
            counts = {"usage_prompt_tokens": row.prompt_len, "usage_prompt_cache_read_tokens": row.cached_len}
            counts["usage_completion_tokens"] = row.output_len
            metrics = {key: {"value": value, "unit": "tokens"} for key, value in counts.items()}
            times = {"request_start_ns": 1, "request_end_ns": 2, "benchmark_phase": "profiling"}
            file.write(orjson.dumps({"metadata": {"conversation_id": row.id} | times, "metrics": metrics}))
            file.write(b"\n")
    code, found = inferred(results, "--set", warm_set.folder)
    assert (code, found["observations"]) == (0, 10)
    assert 16 in found["candidates"][0]["quanta"]


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[]",
        '{"prompt_tokens": 5}',
        '{"prompt_tokens": 0, "shared_tokens": 0, "cached_tokens": 0}',
        '{"prompt_tokens": 5, "shared_tokens": "4", "cached_tokens": 0}',
    ],
)
def test_a_line_that_is_no_observation_is_refused(tmp_path, line):
    path = tmp_path / "observed.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(WlgenError, match=r"observed.jsonl:1: expected prompt_tokens, .* For example"):
        inferred(path)


def test_an_empty_file_is_refused(tmp_path):
    path = tmp_path / "observed.jsonl"
    path.write_text("")
    with pytest.raises(WlgenError, match="at least one observation, found none"):
        inferred(path)
    with pytest.raises(WlgenError, match="No such file"):
        inferred(tmp_path / "absent.jsonl")


ONE_LENGTH = [Observation(16012, 16007, 15872), Observation(16031, 16007, 15872)]


def test_one_length_cannot_tell_the_quantum_and_the_smallest_usual_one_is_printed(tmp_path):
    """15872 is 62 x 256 and also 1 x 15872, which no engine has as a page."""
    found = infer(ONE_LENGTH)
    dense = found.candidates[0]
    assert {256, 512, 15872} <= set(dense.quanta)
    assert dense.usual == 256
    assert [kind.written for kind in dense.rules] == [
        "rule: sglang, page_size: 256",
        "rule: vllm, page_size: 256",
    ]
    assert found.telling is not None
    assert len(set(found.telling.figures)) > 2
    path = tmp_path / "observed.jsonl"
    keys = ("prompt_tokens", "shared_tokens", "cached_tokens")
    path.write_bytes(b"".join(orjson.dumps(dict(zip(keys, o[:3], strict=True))) + b"\n" for o in ONE_LENGTH))
    text = CliRunner().invoke(app, ["infer-rule", str(path)]).output
    assert "one length cannot tell which" in text
    assert f"a prompt of {found.telling.prompt_len} tokens sent twice" in text
    assert "page_size: 15872" not in text


def test_vllm_with_small_pages_and_speculation_is_found():
    """Its dropped block may hold the last token: 1024 repeated are 768 with a quantum of 256, not 512."""
    served = made_rule(name="", engine="vllm", page_size=64, hit_quantum=256, speculative=True)
    seen = [Observation(n, n, served.cached_len(n, n)) for n in (600, 1024, 1500, 4097)]
    found = infer(seen)
    assert found.explained == len(seen)
    assert any("in smaller pages" in c.words and 256 in c.quanta for c in found.candidates)
