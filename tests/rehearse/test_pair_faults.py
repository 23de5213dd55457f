"""Each fault of a prefill/decode pair, acted by a rehearsed pair, is named by the audit of the run.

A small client sends the rows through the pair's router, reads the prefill side's counters before and after
them, and the audit is given both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from kit.pairs import RehearsedPair, rehearsed_pair
from kit.rehearsals import small_set
from typer.testing import CliRunner

from wlgen.cli import app
from wlgen.faults._asked import parse_fault
from wlgen.rehearse.acting import Acting
from wlgen.rehearse.pair import FAKE_HOST
from wlgen.server.scrape import Address, scrape, write_scrape
from wlgen.simulate.faulted import planned_run
from wlgen.workload.opened import Workload
from wlgen.workload.rows import Row


@pytest.fixture
def warm() -> Workload:
    return small_set(name="pair-faults")


def in_turn(workload: Workload, split: str) -> list[Row]:
    """Return a split's rows, one of each rank in turn."""
    by_rank = [list(workload.rows((split,), (rank,))) for rank in workload.manifest.ranks]
    return [row for turn in zip_longest(*by_rank) for row in turn if row is not None]


def post(row: Row, url: str, **fields: object) -> httpx.Response:
    body = {
        "model": "rehearsal",
        "messages": [m._asdict() for m in row.messages],
        "max_tokens": row.output_len,
        "ignore_eos": True,
        "routed_dp_rank": row.dp_rank,
        "disagg_prefill_dp_rank": row.dp_rank,
    }
    body |= fields
    sent = {key: value for key, value in body.items() if value is not None}
    return httpx.post(f"{url}/v1/chat/completions", json=sent, timeout=30)


def record(row: Row, answer: httpx.Response) -> dict[str, Any]:
    if answer.status_code != 200:
        return {"id": row.id, "success": False, "error": answer.text}
    return {"id": row.id, "usage": answer.json()["usage"]}


def written(records: Iterable[dict[str, Any]], folder: Path) -> Path:
    path = folder / "results.jsonl"
    path.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in records))
    return path


class Sending:
    """One run against a pair: what was sent, what was answered, and both scrapes of the prefill side."""

    def __init__(self, workload: Workload, pair: RehearsedPair, folder: Path) -> None:
        self.workload, self.pair, self.folder = workload, pair, folder
        self.before, self.after = folder / "before.json", folder / "after.json"

    def send(self, rows: Iterable[Row], **fields: object) -> list[dict[str, Any]]:
        return [record(row, post(row, self.pair.url, **fields)) for row in rows]

    def prime(self) -> None:
        """Send the seeds and the checks."""
        for split in ("seed", "check"):
            self.send(in_turn(self.workload, split))

    def count(self, path: Path) -> None:
        sides = [Address(self.pair.prefill, "prefill"), Address(self.pair.decode, "decode")]
        write_scrape(asyncio.run(scrape(sides, patience=5)), path)

    def measured(self, **fields: object) -> dict[str, Any]:
        """Count, send the formal rows, count again, and audit."""
        self.count(self.before)
        records = self.send(in_turn(self.workload, "formal"), **fields)
        self.count(self.after)
        return self.audited(records)

    def audited(self, records: Iterable[dict[str, Any]]) -> dict[str, Any]:
        results = written(records, self.folder)
        counters = ["--counters", str(self.before), str(self.after)]
        done = CliRunner().invoke(
            app, ["audit", str(self.workload.folder), str(results), *counters, "--json"]
        )
        assert done.exit_code in (0, 1), done.output
        found: dict[str, Any] = orjson.loads(done.stdout)
        return found


@contextmanager
def sending(workload: Workload, folder: Path, **sides: Any) -> Iterator[Sending]:
    with rehearsed_pair(workload, **sides) as pair:
        yield Sending(workload, pair, folder)


def cause(found: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the one cause that the audit names, and its parameters."""
    (told,) = found["diagnosis"]
    return told["cause"], told["parameters"]


def promises(found: dict[str, Any]) -> set[tuple[str, str]]:
    return {(each["promise"], each["id"]) for each in found["findings"]}


def test_a_kept_run_is_proved(warm, tmp_path):
    with sending(warm, tmp_path) as run:
        run.prime()
        found = run.measured()
    assert (found["verdict"], found["diagnosis"]) == ("KEPT", [])


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("decode_figure", ("decode_figure", {})),
        ("doubled_figure", ("doubled_figure", {})),
        ("lost_cache:ranks=1", ("lost_cache", {"ranks": [1]})),
        ("rank_not_seeded:ranks=0", ("rank_not_seeded", {"ranks": [0]})),
    ],
)
def test_a_fault_of_runs_strikes_the_prefill_side_and_is_named(warm, tmp_path, fault, named):
    planned, _ = planned_run(warm, warm.manifest.cache)
    with sending(warm, tmp_path, acting=Acting(parse_fault(fault), planned)) as run:
        run.prime()
        found = run.measured()
    assert found["verdict"] != "KEPT"
    assert cause(found) == named


def test_decodes_own_cache_claims_hits_and_the_prefill_sides_counters_decide(warm, tmp_path):
    """The prefill side was emptied after the checks; decode still holds every prefix that it received."""
    with sending(warm, tmp_path, decode_radix=True) as run:
        run.prime()
        httpx.post(f"{run.pair.prefill}/flush_cache", timeout=10).raise_for_status()
        found = run.measured()
    assert found["verdict"] == "NOT KEPT"
    assert promises(found) == {("cached_sum", f"pair-faults rank {rank}") for rank in range(3)}
    assert any("a decode server with a radix cache of its own" in note for note in found["notes"])


def test_a_pin_by_one_field_conflicts_with_rooms_and_is_named(warm, tmp_path):
    """Two thirds of the rooms contradict a pin to one of three ranks; each such row hangs and fails."""
    rows = in_turn(warm, "formal")
    with sending(warm, tmp_path, hangs=0.2) as run:
        run.prime()
        run.count(run.before)
        records = run.send(rows, disagg_prefill_dp_rank=None)
        while all(each.get("success", True) for each in records):  # each room agreed by chance: 1 of 729
            records = run.send(rows, disagg_prefill_dp_rank=None)
        run.count(run.after)
        found = run.audited(records)
    assert found["verdict"] == "NOT KEPT"
    assert cause(found)[0] == "not_transferred"
    assert "routed_dp_rank and disagg_prefill_dp_rank together" in found["diagnosis"][0]["remedy"]


def test_a_router_that_drops_pins_is_named_by_the_counters_of_each_rank(warm, tmp_path):
    """Each rank holds the prefix, so each row finds its plan wherever it went; the ranks' counts tell."""
    with sending(warm, tmp_path, router="sglang-router") as run:
        for row in in_turn(warm, "seed"):  # seeded as on its own rank
            post(
                row,
                run.pair.prefill,
                bootstrap_host="127.0.0.1",
                bootstrap_port=1,
                bootstrap_room=row.dp_rank,
            )
        run.count(run.before)
        records = run.send([*in_turn(warm, "formal")])
        run.count(run.after)
        found = run.audited(records)
        computed = [rank.looked_up for rank in run.pair.life.prefill.ranks]
    if len(set(computed)) > 1:  # a random room may have sent two rows to each of three ranks
        assert found["verdict"] == "NOT KEPT"
        assert "dp_rank" in {promise for promise, _ in promises(found)}


def test_a_seed_sent_as_the_warm_up_is_primes_nothing(warm, tmp_path):
    with sending(warm, tmp_path) as run:
        for row in in_turn(warm, "seed"):
            as_warm_up = {"bootstrap_host": FAKE_HOST, "bootstrap_port": 8998, "bootstrap_room": 1}
            post(row, run.pair.prefill if row.dp_rank == 1 else run.pair.url, **as_warm_up)
        found = run.measured()
    assert cause(found) == ("rank_not_seeded", {"ranks": [1]})


def test_a_flush_that_is_half_done_leaves_an_earlier_run_on_a_busy_rank(warm, tmp_path):
    """Rank 1 was busy when the set was flushed for its second run; without a timeout rank 0 decides: 200."""
    with sending(warm, tmp_path) as run:
        run.prime()
        run.measured()
        busy = run.pair.life.prefill.ranks[1]
        busy.running += 1
        assert httpx.post(f"{run.pair.prefill}/flush_cache", timeout=10).status_code == 200
        busy.running -= 1
        run.prime()
        found = run.measured()
    named, parameters = cause(found)
    assert named == "sent_twice"
    assert parameters["rows"] == ["formal-r01-000000", "formal-r01-000001"]


def test_a_prefill_server_that_a_request_without_a_rank_ended_is_named(warm, tmp_path):
    rows = in_turn(warm, "formal")
    with sending(warm, tmp_path, hangs=0.2) as run:
        run.prime()
        records = run.send(rows[:2])
        with pytest.raises(httpx.HTTPError):
            post(rows[2], run.pair.prefill, routed_dp_rank=None, disagg_prefill_dp_rank=None)
        records += run.send(rows[2:])
        results = written(records, tmp_path)
    done = CliRunner().invoke(app, ["audit", str(warm.folder), str(results), "--pair", "--json"])
    found = orjson.loads(done.stdout)
    assert done.exit_code == 1
    assert [f["promise"] for f in found["findings"]] == ["success"] * 4
    assert cause(found)[0] == "not_transferred"
