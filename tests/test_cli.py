"""The command line only translates: exit codes, errors on one line, and nothing heavy before it is needed."""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import subprocess
import sys

import pytest
from kit.audits import plain
from kit.sets import spec_of
from typer.testing import CliRunner

import wlgen
from wlgen import cli, commands, registry
from wlgen.build.build import build
from wlgen.errors import Problem, WlgenError

# Not pydantic: typer imports it by itself.
HEAVY = ["transformers", "datasets", "torch", "tokenizers", "numpy", "httpx", "starlette", "uvicorn"]


def exit_of(monkeypatch: pytest.MonkeyPatch, failure: BaseException) -> object:
    """Return the exit code of a command line whose command fails so."""

    def fail() -> None:
        raise failure

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_bad_input_is_exit_2_and_one_line_a_problem(monkeypatch, capsys):
    problems = [Problem(place=f"s.yaml:{n}", expected="a", found="b", remedy="Do c.") for n in (1, 2)]
    assert exit_of(monkeypatch, WlgenError(*problems)) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        "wlgen: s.yaml:1: expected a, found b. Do c.\nwlgen: s.yaml:2: expected a, found b. Do c.\n"
    )


def test_a_bug_is_exit_70_with_its_traceback(monkeypatch, capsys):
    assert exit_of(monkeypatch, RuntimeError("broken inside")) == 70
    shown = capsys.readouterr().err
    assert "Traceback (most recent call last)" in shown
    assert "RuntimeError: broken inside" in shown
    assert shown.endswith("wlgen: this is a bug in wlgen; please report it with the traceback above\n")


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["build"], ["build", "a", "b"], ["build", "a", "--rank", "x"], ["verify", "--no"]],
)
def test_a_wrong_command_line_is_exit_2(arguments):
    assert CliRunner().invoke(cli.app, arguments).exit_code == 2


def loaded_by(*arguments: str) -> set[str]:
    """Return which heavy modules a real process has loaded when its command ends."""
    code = (
        "import sys, atexit; from wlgen.cli import main\n"
        f"atexit.register(lambda: sys.stderr.write('loaded:' + ','.join({HEAVY!r} & sys.modules.keys())))\n"
        f"sys.argv = ['wlgen', *{list(arguments)!r}]; main()"
    ).replace(f"{HEAVY!r} &", f"set({HEAVY!r}) &")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(filter(None, done.stderr.rpartition("loaded:")[2].split(",")))


def test_help_loads_nothing_heavy():
    assert loaded_by("--help") == set()
    assert loaded_by("build", "--help") == set()


def test_list_loads_neither_transformers_nor_datasets():
    assert not loaded_by("list") & {"transformers", "datasets", "torch", "tokenizers"}


def test_list_names_every_kind():
    lines = CliRunner().invoke(cli.app, ["list"]).output.splitlines()
    for kind, names in registry.all_names().items():
        said = lines[lines.index(kind.replace("_", " ")) :]
        assert all(f"  {name}" in said for name in names)
    assert max(map(len, lines)) <= 80


def test_list_says_of_a_rule_its_pages_and_how_it_was_checked():
    shown = " ".join(CliRunner().invoke(cli.app, ["list"]).output.split())
    assert "page 128, hit quantum 2048, unless a spec says otherwise" in shown
    assert "taken from vllm-ascend issues 10710, 9326 and 16270, not run" in shown


def test_the_version_comes_from_one_place():
    shown = CliRunner().invoke(cli.app, ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"wlgen {wlgen.__version__}\n")
    assert importlib.metadata.version("wlgen") == wlgen.__version__


def test_python_m_wlgen_is_the_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "wlgen", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"wlgen {wlgen.__version__}\n")


def test_help_shows_commands_in_the_order_of_use_in_80_columns():
    shown = CliRunner().invoke(cli.app, ["--help"], env={"COLUMNS": "80", "TERM": "dumb"}).output
    places = [shown.index(f" {name} ") for name in ("plan", "build", "verify", "export", "prepare", "audit")]
    assert places == sorted(places)
    assert max(map(len, shown.splitlines())) <= 80
    assert [group for group in commands.GROUPS if group not in shown] == []


def test_a_shell_completes_the_commands():
    """The words that bash hands over when a person types `wlgen pre` and the tab key."""
    asked = {"_WLGEN_COMPLETE": "complete_bash", "COMP_WORDS": "wlgen pre", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv = ['wlgen']; from wlgen.cli import main; main()"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | asked,
    )
    assert done.stdout.split() == ["prepare"]


COMMANDS = [
    ["list"],
    ["audit", "SET", "RESULTS"],
    ["verify", "SET"],
    ["simulate", "SET"],
    ["schedule", "SET"],
    ["schema"],
    ["--help"],
]


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """Return each command of COMMANDS with a set and a kept run of it."""
    place = tmp_path_factory.mktemp("ends")
    workload = build(spec_of(formal={"total": 4}), place).workload
    (place / "formal.jsonl").write_bytes(b"".join(plain(row) for row in workload.rows(("formal",))))
    names = {"SET": str(workload.folder), "RESULTS": str(place / "formal.jsonl")}
    return [[sys.executable, "-m", "wlgen", *(names.get(word, word) for word in line)] for line in COMMANDS]


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=[line[0] for line in COMMANDS])
@pytest.mark.parametrize("end", ["full", "closed", "little memory"])
def test_an_output_that_takes_nothing_and_a_memory_too_small_are_one_line(lines, number, end):
    """A closed pipe was exit 1 without a word wherever rich prints, as if a promise were broken."""
    command = lines[number]
    reading, writing = os.pipe() if end == "closed" else (-1, os.open("/dev/full", os.O_WRONLY))
    if end == "closed":
        os.close(reading)
    if end == "little memory":
        command = ["bash", "-c", f"ulimit -v 200000; exec {' '.join(command)}"]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(writing)
    (said,) = ended.stderr.decode().splitlines()
    begins = {"full": "standard output: expected", "closed": "standard output: expected"}
    assert said.startswith(f"wlgen: {begins.get(end, 'memory: expected at least 512 MB')}")
    assert ended.returncode == 2


@pytest.mark.parametrize("name", sorted(commands.names()))
def test_help_fits_80_columns_and_breaks_no_sentence(name):
    """A line of a paragraph ends only where the next word would not fit."""
    shown = CliRunner().invoke(cli.app, [name, "--help"], env={"COLUMNS": "80", "TERM": "dumb"}).output
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    words = [line.rstrip() for line in lines[2 : next(n for n, x in enumerate(lines) if x.startswith("╭"))]]
    for line, following in itertools.pairwise(words):
        if line and following:
            assert len(line) + 1 + len(following.split()[0]) > 79
