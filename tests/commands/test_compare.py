"""Compare: runs side by side, each change quoted only where it can mean what it seems to say."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kit.audits import CACHED, plain, rows, write_set
from kit.rehearsals import Rehearsal, rehearsal, small_set
from pydantic import TypeAdapter
from typer.testing import CliRunner

from wlgen import cli, commands
from wlgen.errors import WlgenError
from wlgen.rehearse.settings import TimeModel
from wlgen.workload.rows import Row

FORMAL = 64  # rows a rank: 128 in all, the floor
CONTENT = rows(FORMAL)


def wlgen(*arguments: object):
    return CliRunner().invoke(cli.app, [*map(str, arguments)], catch_exceptions=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp("set"), CONTENT)


@pytest.fixture
def case(folder, tmp_path):
    """Audit a run of 128 rows that takes `gap` seconds a row, and return the file of its JSON."""

    def made(name: str, *options: object, gap: float = 0.5, ttft: float = 0.2, **spoilt: object) -> Path:
        results = tmp_path / f"{name}.jsonl"
        formal = [each for each in CONTENT if each.split == "formal"]
        formal.sort(key=lambda each: each.id.rpartition("-")[2])  # the ranks in turn
        sent = [(n * gap, each) for n, each in enumerate(formal)]
        results.write_bytes(
            b"".join(
                plain(each, start=at, first_token=at + ttft, end=at + 1.0, **(spoilt if at == 0 else {}))
                for at, each in sent
            )
        )
        done = wlgen("audit", folder, results, *options, "--json")
        path = tmp_path / f"{name}.json"
        path.write_text(done.stdout)
        return path

    return made


def compared(*arguments: object) -> tuple[int, dict]:
    done = wlgen("compare", *arguments, "--json")
    TypeAdapter(commands.answering()["compare"]()).validate_json(done.stdout, strict=True)
    return done.exit_code, json.loads(done.stdout)


def test_a_change_is_quoted_where_one_thing_differs(case):
    """128 rows in 64.5 s and in 96.25 s: 1.984 and 1.330 requests/s, a third fewer."""
    first, second = case("a", "--concurrency", 16), case("b", "--concurrency", 8, gap=0.75, ttft=0.3)
    code, answer = compared(first, second)
    found = answer["comparisons"][0]
    assert (code, found["refusals"]) == (0, [])
    assert found["differs"] == {"concurrency": ["16", "8"]}
    assert found["changes"]["requests/s"] == pytest.approx(100 * (64.5 / 96.25 - 1))
    assert found["changes"]["TTFT p50 s"] == pytest.approx(50)
    assert found["changes"]["worst cached"] == 0
    shown = wlgen("compare", first, second).output
    assert "requests/s                 1.984           1.33        -33.0 %" in shown
    assert f"{second} differs in: concurrency 16 -> 8" in shown


def refused(words: str, *arguments: object) -> None:
    """Check that a comparison ends with 1 and one line of these words, and shows its figures."""
    code, answer = compared(*arguments)
    found = answer["comparisons"][0]
    assert code == 1
    assert [each for each in found["refusals"] if words in each] == found["refusals"] != []
    assert found["changes"] == {}
    assert answer["cases"][1]["figures"]["requests/s"] > 0
    quiet = wlgen("compare", *arguments, "--quiet")
    assert quiet.output.count("\n") == len(found["refusals"])
    assert quiet.output.startswith("NO CHANGE QUOTED of ")


def test_two_differences_are_refused_unless_somebody_says_why(case):
    first, second = case("a", "--concurrency", 16), case("b", "--concurrency", 8, "--cards", 4)
    refused("differ in 2 things, so none of them is the cause: concurrency 16 and 8; cards", first, second)
    code, answer = compared(first, second, "--because", "half the cards at half the load")
    assert (code, answer["because"]) == (0, "half the cards at half the load")


def test_a_stable_window_beside_a_whole_one_is_refused(case):
    """One client keeps its limit of 2 busy all along; the other never reaches its own limit of 16."""
    first, second = case("a", "--concurrency", 2), case("b", "--concurrency", 16)
    code, answer = compared(first, second, "--window", "stable_v2")
    words = "the AISBench stable V2 beside the whole run"
    assert code == 1
    assert any(words in each for each in answer["comparisons"][0]["refusals"])


def test_a_window_under_its_floor_is_refused(case):
    first, second = case("a"), case("b", gap=0.25)
    refused("b.json is under the floor of 128 requests and 60 s: 128 requests in 32.8 s", first, second)


def test_a_run_that_broke_its_promises_is_refused(case):
    usage = {"prompt_tokens": CONTENT[-1].prompt_len, "completion_tokens": CONTENT[-1].output_len}
    short = usage | {"prompt_tokens_details": {"cached_tokens": CACHED - 128}}
    refused("b.json: its promises are NOT KEPT", case("a"), case("b", usage=short))
    refused("b.json: its promises are NOT PROVED", case("a"), case("b", usage=usage))


def test_sets_of_two_fingerprints_are_refused(case):
    first, second = case("a"), case("b")
    content = json.loads(second.read_text())
    content["provenance"]["set_sha256"] = "1" * 64
    second.write_text(json.dumps(content))
    refused("the sets differ: their fingerprints are 000000000000 and 111111111111", first, second)


def test_a_folder_is_a_ledger_in_the_order_of_its_names(case, tmp_path):
    for number, gap in enumerate((0.5, 0.55, 0.6)):
        case(f"case-{number}", gap=gap)
    (tmp_path / "counters.json").write_text('{"command": "counters"}')
    code, answer = compared(tmp_path)
    assert (code, [Path(each["file"]).name for each in answer["cases"]]) == (
        0,
        [f"case-{n}.json" for n in range(3)],
    )
    lines = wlgen("compare", tmp_path).output.splitlines()
    assert [each.split()[1] for each in lines[1:4]] == ["KEPT"] * 3
    assert max(map(len, lines[:4])) <= 80


def test_the_page_shows_everything_and_escapes_it(case, tmp_path):
    first, second, page = case("a"), case("b", gap=0.25), tmp_path / "page.html"
    assert wlgen("compare", first, second, "--because", "<b>&", "--html", page).exit_code == 1
    html = page.read_text()
    assert "&lt;b&gt;&amp;" in html
    assert "under the floor of 128 requests and 60 s: 128 requests in 32.8 s" in html
    assert "output tokens/s" in html
    assert "<script" not in html


def test_what_is_no_audit_is_refused_by_name(case, tmp_path):
    other, text, absent = (tmp_path / f"{name}.json" for name in ("other", "text", "absent"))
    other.write_text('{"command": "verify"}')
    text.write_text("no json")
    with pytest.raises(WlgenError) as refusal:
        wlgen("compare", other, text, absent)
    assert [problem.place for problem in refusal.value.problems] == [
        str(other),
        str(text),
        str(tmp_path / "absent.json"),
    ]
    with pytest.raises(WlgenError, match=r"expected two audits or more, found .*a\.json alone"):
        wlgen("compare", case("a"))


def with_acceptance(path: Path, length: float) -> Path:
    """Put into an audit's JSON what counters of a server with speculative decoding would have added."""
    content = json.loads(path.read_text())
    tasks = {
        "copy": "a draft model predicts a copied passage easily, so it is higher than on people's prompts"
    }
    content["acceptance"] = {
        "witness": "counters",
        "output_tokens": 512,
        "verify_steps": 200,
        "length": length,
    }
    content["acceptance"] |= {"by_slots": None, "by_proposals": None, "tasks": tasks}
    path.write_text(json.dumps(content))
    return path


def test_acceptance_lengths_stand_side_by_side_with_the_task_and_its_warning(case, tmp_path):
    first = with_acceptance(case("a", "--concurrency", 16), 2.56)
    second = with_acceptance(case("b", "--concurrency", 8), 3.2)
    code, answer = compared(first, second)
    assert code == 0
    assert answer["comparisons"][0]["changes"]["acceptance length"] == pytest.approx(25)
    shown = wlgen("compare", first, second, "--html", tmp_path / "page.html").output
    assert "acceptance length           2.56            3.2        +25.0 %" in shown
    for place in (shown, (tmp_path / "page.html").read_text()):
        assert "cceptance length: of the whole run, whatever the window" in place
        assert "on the task copy: a draft model predicts a copied passage easily" in place
    assert "acceptance length" not in wlgen("compare", case("c"), case("d")).output


def sent(row: Row, running: Rehearsal) -> str:
    """Send a row, and return its line of a result file."""
    start = time.time()
    more = {"routed_dp_rank": row.dp_rank, "max_tokens": row.output_len, "ignore_eos": True}
    usage = running.chat(row.messages[-1].content, **more)["usage"]
    line = {"id": row.id, "text_sha256": row.text_sha256, "usage": usage, "start": start, "end": time.time()}
    return json.dumps(line) + "\n"


def test_two_real_runs_on_a_rehearsed_server(tmp_path):
    """Six rows at once, on a server that decodes 20 and then 10 tokens/s: too few to quote, and said so."""
    warm = small_set(name="compared")
    for name, rate in (("fast", 20), ("slow", 10)):
        times = TimeModel(prefill_rate=1e9, decode_rate=rate)
        with rehearsal(warm, times=times) as running, ThreadPoolExecutor(6) as clients:
            wlgen("prepare", warm.folder, "--url", running.url, "--journal", tmp_path / name)
            lines = list(clients.map(lambda row: sent(row, running), warm.rows(("formal",))))
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
        done = wlgen("audit", warm.folder, tmp_path / f"{name}.jsonl", "--json")
        (tmp_path / f"{name}.json").write_text(done.stdout)
    code, answer = compared(tmp_path / "fast.json", tmp_path / "slow.json")
    figures = [each["figures"]["E2EL p50 s"] for each in answer["cases"]]
    assert [each["verdict"] for each in answer["cases"]] == ["KEPT", "KEPT"]
    assert code == 1
    assert figures[1] > figures[0] >= 7 / 20
    assert [each.rpartition(": ")[0].rpartition("/")[2] for each in answer["comparisons"][0]["refusals"]] == [
        "fast.json is under the floor of 128 requests and 60 s",
        "slow.json is under the floor of 128 requests and 60 s",
    ]
