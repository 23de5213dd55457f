"""The house: one package for each step of a journey; imports go up one table of rooms, never in a circle."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
KINDS = ("engines", "encodings", "cache_rules", "faults", "tasks", "exporters", "readers", "witnesses")

# From the bottom up. A room is a package of wlgen or one of its few flat modules; rooms on one line know
# nothing of each other. A new room takes the lowest line that its imports allow.
TABLE = """
errors pages streams
registry
cache readers witnesses
strict engines
cache_rules encodings
text workload
faults
tasks exporters audit
spec
plan
build verify report
export
simulate
server
rehearse
commands
cli
"""
FLOOR = {name: number for number, line in enumerate(TABLE.split("\n")) for name in line.split()}
OUTSIDE = {"wlgen", "wlgen.__main__"}  # the package itself, and `python -m wlgen`
FLAT = {"errors", "pages", "streams", "registry", "cli"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.glob("wlgen/**/*.py"))}
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


def imported_by(name: str) -> set[str]:
    """Return what a module imports anywhere, for its types too; `from a import b` is both a and a.b."""
    found = set()
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {full if full in MODULES else str(node.module) for full in whole}
    return found - {name}


IMPORTED = {name: imported_by(name) for name in MODULES}
GRAPH = {name: {other for other in found if other in MODULES} for name, found in IMPORTED.items()}


def room(module: str) -> str:
    """Return the room that a module stands in, the name under which the table has it."""
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("name", [name for name in MODULES if name not in OUTSIDE])
def test_a_module_imports_from_rooms_below_or_its_own_room_only(name):
    assert room(name) in FLOOR, f"{name} stands in no room of the table"
    for other in GRAPH[name] - {"wlgen"}:
        below = FLOOR[room(other)] < FLOOR[room(name)]
        assert below or room(other) == room(name), f"{name} imports {other}, which does not stand below it"


def test_every_room_of_the_table_is_there():
    assert set(FLOOR) == {room(name) for name in MODULES if name not in OUTSIDE}


def test_five_modules_are_flat_and_all_others_stand_in_packages():
    assert {path.stem for path in ROOT.glob("wlgen/*.py")} - {"__init__", "__main__"} == FLAT


def test_no_module_imports_itself_by_way_of_others():
    list(TopologicalSorter(GRAPH).static_order())


def test_the_rooms_form_no_circle():
    rooms = defaultdict(set)
    for name, others in GRAPH.items():
        rooms[room(name)] |= {room(other) for other in others} - {room(name), ""}
    list(TopologicalSorter(rooms).static_order())


PACKAGES = sorted(set(FLOOR) - FLAT)
FACE_LINE = re.compile(r"^(\w+)  +\S.*$", re.MULTILINE)
MOST_FACES = 14  # modules of one room that other rooms import


def face(package: str) -> set[str]:
    """Return the modules that a package's docstring names as those that other rooms import."""
    return set(FACE_LINE.findall(ast.get_docstring(TREES[f"wlgen.{package}"]) or ""))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_which_of_its_modules_other_rooms_import(package):
    """No more, no less: what the docstring does not name may change without a look at other rooms."""
    imported = {
        other.split(".")[2]
        for name, others in GRAPH.items()
        for other in others
        if room(name) != room(other) == package and other.count(".") == 2
    }
    assert imported == face(package)
    assert len(imported) <= MOST_FACES


def test_nobody_imports_a_private_name():
    """A name with an underscore is its own module's affair, and may change without a look at others."""
    taken = {
        (name, f"{node.module}.{alias.name}")
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("wlgen")
        for alias in node.names
        if alias.name.startswith("_")
        and not alias.name.startswith("__")
        and f"{node.module}.{alias.name}" not in MODULES
    }
    assert taken == set()


def test_a_type_name_means_one_thing():
    """`Options` is the one exception: each kind defines its own."""
    places = defaultdict(list)
    for name, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    assert {k: v for k, v in places.items() if len(v) > 1 and k != "Options"} == {}


@pytest.mark.parametrize("path", sorted(ROOT.glob("tests/*/test_*.py")), ids=lambda path: path.stem)
def test_tests_stand_in_the_folder_of_their_room(path):
    """Beside the rooms stand kinds of test that cross them."""
    crossing = {"benchmarks", "clients", "e2e", "engines", "golden", "kit", "property", "servers"}
    assert path.parent.name in set(FLOOR) - FLAT | crossing


@pytest.mark.parametrize("folder", KINDS)
def test_a_folder_of_kinds_imports_none_of_them(folder):
    """They are found by name, so that a new kind is one new file."""
    kinds = {f"wlgen.{folder}.{path.stem}" for path in ROOT.glob(f"wlgen/{folder}/[!_]*.py")}
    assert not GRAPH[f"wlgen.{folder}"] & kinds


@pytest.mark.parametrize("folder", KINDS)
def test_nobody_names_a_kind_but_its_neighbours(folder):
    """The encoding that is packaged with wlgen is the one exception."""
    named = {
        (name, other)
        for name, others in GRAPH.items()
        for other in others
        if room(other) == folder != room(name) and other != f"wlgen.{folder}"
    }
    private = {pair for pair in named if pair[1].rpartition(".")[2].startswith("_")}
    assert {other for _, other in named - private} <= {"wlgen.encodings.deepseek_v4"}


@pytest.mark.parametrize("name", [name for name in MODULES if room(name) == "verify"])
def test_verify_shares_nothing_with_compose_but_types_and_arithmetic(name):
    assert not {room(other) for other in GRAPH[name]} & {"build", "text", "tasks"}


def test_the_core_touches_no_network_and_no_terminal():
    outward = {"server", "rehearse", "report", "commands", "cli"}
    outside = {"httpx", "socket", "rich", "typer", "click", "starlette", "uvicorn", "subprocess"}
    for name, found in IMPORTED.items():
        if room(name) not in outward:
            assert not {other.partition(".")[0] for other in found} & outside, name


ENGINE_ROOMS = {"engines", "cache_rules", "readers", "witnesses", "exporters"}
ENGINES = {path.stem for path in ROOT.glob("wlgen/engines/*.py") if not path.stem.startswith("_")}


@pytest.mark.parametrize("name", [name for name in MODULES if room(name) not in ENGINE_ROOMS])
def test_nobody_asks_for_an_engine_by_its_name(name):
    """An engine is a value with its facts: what depends on it is a field of the value, not a branch."""
    said = {node.value for node in ast.walk(TREES[name]) if isinstance(node, ast.Constant)} - {None}
    assert not {word for word in said if isinstance(word, str)} & ENGINES, name
