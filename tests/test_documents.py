"""Documents cannot drift from the program: every shipped spec plans, every command explains itself."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wlgen.build.ready import blueprint
from wlgen.cli import app
from wlgen.encodings import Encoding, deepseek_v4
from wlgen.plan.rows import Plan, RowPlan
from wlgen.spec import file as spec_file
from wlgen.workload.splits import Split

ROOT = Path(__file__).parent.parent
SPECS = sorted(ROOT.glob("specs/*.yaml"))
COMMANDS = sorted(
    path.stem.replace("_", "-") for path in ROOT.glob("wlgen/commands/*.py") if not path.stem.startswith("_")
)


@cache
def deepseek() -> Encoding:
    return deepseek_v4.load(deepseek_v4.Options(), place="test")


def plan_of(name: str) -> Plan:
    return blueprint(spec_file.load(ROOT / "specs" / f"{name}.yaml"), deepseek()).plan


def rows_of(plan: Plan, split: Split) -> list[RowPlan]:
    return [row for rank in range(plan.spec.dp_ranks) for row in plan.rows(split, rank)]


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_shipped_spec_is_named_as_its_file_and_plans(path):
    spec = spec_file.load(path)
    assert spec.name == path.stem
    assert blueprint(spec).plan.spec == spec


def test_the_warm_set_is_that_of_the_design():
    plan = plan_of("warm-128k")
    formal = {(row.body_len, row.prompt_len, row.cached_len) for row in rows_of(plan, "formal")}
    assert formal == {(131072, 131076, 118784)}
    assert {row.cached_len for row in rows_of(plan, "check")} == {928 * 128} == {58 * 2048}
    assert plan.spec.dp_ranks == 16
    assert [sum(plan.count(split, rank) for rank in range(16)) for split in ("formal", "seed", "check")] == [
        640,
        16,
        16,
    ]
    assert {plan.count(split, rank) for split in ("seed", "check") for rank in range(16)} == {1}
    assert {row.output_len for row in plan.rows("formal", 0)} == {1024}
    assert {row.output_len for split in ("seed", "check") for row in plan.rows(split, 3)} == {1}
    assert f"{plan.promises.per_request_min:.6f}" == "0.906222"
    assert plan.promises.configured == 0.9
    assert plan.spec.requests[0].task.name == "copy"


def test_the_zero_set_is_that_of_the_design():
    plan = plan_of("zero-16k")
    for split in ("check", "formal"):
        found = {(row.body_len, row.prompt_len, row.cached_len) for row in rows_of(plan, split)}
        assert found == {(16384, 16388, 0)}
    assert [sum(plan.count(split, rank) for rank in range(16)) for split in ("formal", "seed", "check")] == [
        640,
        0,
        16,
    ]
    assert {row.output_len for row in plan.rows("formal", 0)} == {1024}
    assert {row.output_len for row in plan.rows("check", 0)} == {1}


def test_the_quickstart_is_small():
    plan = plan_of("quickstart")
    assert sum(row.prompt_len for row in rows_of(plan, "formal")) < 100_000


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_for_itself_and_each_option(name):
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert shown.exit_code == 0
    assert f"Usage: root {name}" in shown.output or f"wlgen {name}" in shown.output
    command = next(c for c in app.registered_commands if c.name == name)
    assert command.callback is not None
    assert command.callback.__doc__ is not None
    assert command.callback.__doc__.partition("\n")[0] in shown.output


def test_the_command_line_lists_every_command():
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    for name in COMMANDS:
        assert f" {name} " in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_stands_in_the_readme(name):
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("there is no README.md")
    assert f"wlgen {name}" in readme.read_text()


def test_every_module_says_in_one_line_what_it_is():
    for path in ROOT.glob("wlgen/**/*.py"):
        first = path.read_text().split("\n", 1)[0]
        assert first.startswith('"""'), path
        assert first.removesuffix('"""').endswith("."), path


def test_no_module_is_longer_than_350_lines():
    assert [path for path in ROOT.glob("wlgen/**/*.py") if path.read_text().count("\n") > 350] == []


def test_the_list_of_specs_has_a_line_for_each_with_its_own_words():
    listed = (ROOT / "specs" / "README.md").read_text()
    for path in SPECS:
        first = next(line for line in path.read_text().splitlines() if not line.startswith("# yaml-language"))
        assert f"| [`{path.stem}`]({path.name}) | {first.removeprefix('# ')} |" in listed


def test_the_chinese_quick_start_gives_the_commands_and_figures_of_the_readme():
    readme, chinese = (ROOT / "README.md").read_text(), (ROOT / "specs" / "README.zh.md").read_text()
    commands = [line for line in chinese.splitlines() if line.startswith(("$ ", "pip install"))]
    assert len(commands) == 8
    assert [line for line in commands if line not in readme] == []
    figures = ("16388", "131076", "118784 = 58 x 2048", "89.9387 %", "90.6222 %", "117888")
    assert [figure for figure in figures if figure not in chinese or figure not in readme] == []
