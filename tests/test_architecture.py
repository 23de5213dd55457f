"""Imports go up one list of layers only, in functions as well as in modules, and never in a circle."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
KINDS = ("encodings", "cache_rules", "tasks", "exporters", "readers")

# From the bottom up. A name is a module of wlgen or a whole folder; those on one line know nothing of each
# other. A new module takes the lowest line that its imports allow.
LAYERS = """
causes errors number_text pages streams strict windows words
cache_rules disk journal places readers registry shapes
encodings figures results server_replies simulate spec validate yaml_nodes
grammar hit_figures hygiene inputs lexicon request_lines rule_choice server_api spec_checks workload
classes exporters findings plan preflight reencode schedule tasks
conversation diagnosis evidence export_folder join openings pictures predict sharing spec_file table
audited compose infer_rule population prepare_causes prepared refusals trace_rows
class_promises fitting preparation prove report solve store
audit blueprint probe verify
outline prepare recall shares
export_rows jobs outline_text rehearse replay_input
build export replay
commands
cli
"""
LAYER = {name: number for number, line in enumerate(LAYERS.split("\n")) for name in line.split()}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.glob("wlgen/**/*.py"))}


def imported_by(name: str) -> set[str]:
    """Return what a module imports anywhere, for its types too; `from a import b` is both a and a.b."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {full if full in MODULES else str(node.module) for full in whole}
    return found - {name}


IMPORTED = {name: imported_by(name) for name in MODULES}
GRAPH = {name: {other for other in found if other in MODULES} for name, found in IMPORTED.items()}


def unit(module: str) -> str:
    """Return the name under which a module stands in the list."""
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("name", [name for name in MODULES if name != "wlgen"])
def test_a_module_imports_from_lower_layers_or_its_own_folder_only(name):
    assert unit(name) in LAYER, f"{name} stands in no layer"
    for other in GRAPH[name] - {"wlgen"}:
        below = LAYER[unit(other)] < LAYER[unit(name)]
        assert below or unit(other) == unit(name), f"{name} imports {other}, which does not stand below it"


def test_every_name_of_the_list_is_there():
    assert set(LAYER) == {unit(name) for name in MODULES} - {""}


def test_no_module_imports_itself_by_way_of_others():
    list(TopologicalSorter(GRAPH).static_order())


@pytest.mark.parametrize("folder", KINDS)
def test_a_folder_of_kinds_imports_none_of_them(folder):
    """They are found by name, so that a new kind is one new file."""
    assert not any(unit(other) == folder for other in GRAPH[f"wlgen.{folder}"])


@pytest.mark.parametrize("folder", KINDS)
def test_nobody_names_a_kind_but_its_neighbours(folder):
    """The encoding that is packaged with wlgen is the one exception, and the order of simulated chunks."""
    named = {
        (name, other)
        for name, others in GRAPH.items()
        for other in others
        if unit(other) == folder != unit(name) and other != f"wlgen.{folder}"
    }
    private = {pair for pair in named if pair[1].rpartition(".")[2].startswith("_")}
    assert {other for _, other in named - private} <= {"wlgen.encodings.deepseek_v4"}


@pytest.mark.parametrize("name", ["verify", "reencode", "sharing", "hygiene"])
def test_verify_shares_nothing_with_compose_but_types_and_arithmetic(name):
    composing = {"compose", "openings", "lexicon", "words", "tasks", "prove", "store", "build", "recall"}
    assert not {unit(other) for other in GRAPH[f"wlgen.{name}"]} & composing


def test_the_core_touches_no_network_and_no_terminal():
    network = {"server_api", "preflight", "prepare", "preparation", "probe", "rehearse", "report"}
    core = {name for name in LAYER if LAYER[name] < LAYER["build"]} - network
    outside = {"httpx", "socket", "rich", "typer", "click", "starlette", "uvicorn", "subprocess"}
    for name, found in IMPORTED.items():
        if unit(name) in core:
            assert not {other.partition(".")[0] for other in found} & outside, name
