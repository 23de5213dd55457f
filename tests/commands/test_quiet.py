"""`-q` is one option of every command that reports: it prints what needs a person, and nothing else."""

from __future__ import annotations

import json

import pytest
import typer
from kit.audits import plain, rows, write_set
from kit.rehearsals import rehearsal, small_set
from typer.testing import CliRunner

from wlgen.cli import app

REFERENCES = {"list", "explain", "schema"}  # they print what is asked for and nothing beside it
SERVERS = {"rehearse", "route"}


def ran(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    return result.exit_code, result.stdout


def test_every_command_that_reports_has_the_same_option():
    helps = {}
    for name, command in typer.main.get_command(app).commands.items():
        for option in command.params:
            if "--quiet" in option.opts:
                assert "-q" in option.opts
                helps[name] = option.help
    assert set(helps) == set(typer.main.get_command(app).commands) - REFERENCES - SERVERS
    assert len(set(helps.values())) == 1


@pytest.fixture
def run(tmp_path):
    """Return a set, and a function that writes results of it in which one row may find nothing."""
    content = rows(2, 2)
    write_set(tmp_path / "set", content)

    def results(found: int | None = None):
        lines = [plain(row) for row in content if row.split == "formal"]
        if found is not None:
            usage = {"prompt_tokens": 2052, "prompt_tokens_details": {"cached_tokens": found}}
            lines[0] = json.dumps(json.loads(lines[0]) | {"usage": usage}).encode() + b"\n"
        (tmp_path / "results.jsonl").write_bytes(b"".join(lines))
        return tmp_path / "set", tmp_path / "results.jsonl"

    return results


def test_an_audit_of_a_kept_run_prints_nothing_and_another_its_verdict(run):
    assert ran("audit", *run(), "-q") == (0, "")
    code, printed = ran("audit", *run(0), "-q")
    assert code == 1
    assert "NOT KEPT" in printed
    assert len(printed) < len(ran("audit", *run(0))[1]) / 2


def test_a_plan_and_a_schedule_without_a_fault_print_nothing():
    assert ran("plan", "specs/zero-16k.yaml", "-q") == (0, "")
    assert ran("schedule", "--prompt-len", 16388, "-q") == (0, "")


def test_a_rule_that_was_found_prints_nothing_and_none_says_so(tmp_path):
    line = {"prompt_tokens": 2052, "shared_tokens": 1664}
    (tmp_path / "seen.jsonl").write_text(json.dumps(line | {"cached_tokens": 1664}))
    assert ran("infer-rule", tmp_path / "seen.jsonl", "-q") == (0, "")
    (tmp_path / "seen.jsonl").write_text(json.dumps(line | {"cached_tokens": 1665}))
    assert ran("infer-rule", tmp_path / "seen.jsonl", "-q") == (1, "explained  0 of 1 observations\n")


def test_a_probe_that_finds_a_rule_prints_nothing():
    with rehearsal(small_set()) as running:
        assert ran("probe", "--url", running.url, "--longest", 4096, "-q") == (0, "")
