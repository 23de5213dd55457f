"""Schedule: the prefill rounds of SGLang, beside the published sequences."""

from __future__ import annotations

import json

import pytest
from kit import sets
from typer.testing import CliRunner

from wlgen.build.build import build
from wlgen.cli import app
from wlgen.errors import WlgenError
from wlgen.simulate.rounds import RoundPrompt, Scheduler, schedule


def scheduled(*arguments: object) -> dict:
    done = CliRunner().invoke(app, ["schedule", *map(str, arguments), "--json"])
    if isinstance(done.exception, WlgenError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


@pytest.mark.parametrize(
    ("length", "chunk", "page_size", "max_requests", "rounds"),
    [
        (16388, 8192, 128, 1, 960),
        (16388, 8192, 128, 2, 645),
        (16388, 8192, 128, 4, 645),
        (16388, 8192, 128, None, 645),
        (16388, 8192, 1, None, 641),
        (16388, 8192, 64, None, 643),
        (16388, 8192, 256, None, 650),
        (16388, 4096, 128, None, 1290),
        (16388, 16384, 128, None, 323),
        (16384, 8192, 128, 1, 640),
        (16384, 8192, 128, 2, 640),
    ],
)
def test_rounds_of_320_requests(length, chunk, page_size, max_requests, rounds):
    scheduler = Scheduler(chunk=chunk, page_size=page_size, max_requests=max_requests)
    found = schedule(scheduler, [RoundPrompt(length)] * 320)
    assert (found.rounds, found.tokens) == (rounds, 320 * length)


def test_one_request_a_round_leaves_lone_tails():
    found = schedule(Scheduler(chunk=8192, page_size=128, max_requests=1), [RoundPrompt(16388)] * 320)
    assert found.first_rounds[:6] == ((8192,), (8192,), (4,)) * 2
    assert found.lone_tails == 320
    assert found.chunks == {8192: 640, 4: 320}


def test_a_tail_bills_a_whole_page():
    """The 4-token tail bills 128, which leaves 8064 = 63 * 128 for the next request."""
    found = schedule(Scheduler(chunk=8192, page_size=128, max_requests=2), [RoundPrompt(16388)] * 320)
    assert found.first_rounds[:7] == (
        (8192,), (8192,), (4, 8064), (8192,), (132, 7936), (8192,), (260, 7808),
    )  # fmt: skip
    assert found.lone_tails == 0


def test_max_prefill_tokens_stops_a_round_too():
    found = schedule(Scheduler(chunk=8192, max_prefill_tokens=4096), [RoundPrompt(3000)] * 4)
    assert found.first_rounds == ((3000, 3000), (3000, 3000))


def test_cached_tokens_are_not_computed():
    found = schedule(Scheduler(chunk=8192, page_size=128), [RoundPrompt(131076, 118784)] * 40)
    assert found.tokens == 40 * 12292
    assert found.first_rounds[:2] == ((8192,), (4100, 3968))


def test_the_command_answers_scripts():
    found = scheduled(
        "--prompt-len", 16388, "--requests", 320, "--chunk", 8192, "--max-requests", 2, "--page-size", 128
    )
    assert found["rounds"] == 645
    assert found["first_rounds"][:3] == [[8192], [8192], [4, 8064]]
    assert "not device time" in found["note"]


def test_dp_attention_divides_the_chunk():
    common = ("--prompt-len", 4096, "--requests", 4)
    assert scheduled(*common, "--chunk", 4096, "--dp-size", 4)["rounds"] == 16


def test_a_sets_formal_rows_rank_by_rank(tmp_path):
    """Pages are the set's, and each row finds cached what it promises."""
    workload = build(sets.spec_of(formal={"total": 7}), tmp_path).workload
    found = scheduled(workload.folder, "--chunk", 64)
    computed = sum(row.prompt_len - row.cached_len for row in workload.rows(("formal",), (0,)))
    assert found["tokens"] == computed
    assert list(found["ranks"]) == ["0", "1"]
    assert found["rounds"] == found["ranks"]["0"] > found["ranks"]["1"]
    text = CliRunner().invoke(app, ["schedule", str(workload.folder), "--chunk", "64"]).output
    assert text.startswith(f"rank 0, the busiest of 2: {found['rounds']} rounds")


def test_words_name_lone_tails_and_say_that_rounds_are_no_time():
    arguments = ("--prompt-len", "16388", "--requests", "2", "--max-requests", "1", "--page-size", "128")
    text = CliRunner().invoke(app, ["schedule", *arguments]).output
    assert "6 rounds" in text
    assert "2 rounds hold nothing but a tail of less than a page of 128" in text
    assert "Rounds are batches of the scheduler, not device time" in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "expected a built set or --prompt-len, found neither"),
        (
            ("--prompt-len", 10, "--chunk", 3, "--page-size", 128),
            "--chunk: expected at least one page of 128",
        ),
        (("--prompt-len", 128, "--cached", 128, "--page-size", 128), "less than the prompt's 128 tokens"),
        (("--prompt-len", 128, "--cached", 100, "--page-size", 64), "a multiple of the page size 64"),
    ],
)
def test_numbers_that_make_no_schedule_are_refused(options, said):
    with pytest.raises(WlgenError) as failure:
        scheduled(*options)
    assert said in str(failure.value)


def test_a_set_for_vllm_is_refused(tmp_path):
    vllm = {"engine": "vllm", "page_size": 16}
    folder = build(sets.spec_of(cache_rule=vllm), tmp_path).workload.folder
    with pytest.raises(WlgenError, match="a set for SGLang, whose scheduler this is"):
        scheduled(folder)
