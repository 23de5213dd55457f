"""Kinds found by name: a kind is one module of a folder, and the module's name is the name in the spec."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING

from wlgen.errors import error

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType


KINDS = (
    "engines",
    "encodings",
    "cache_rules",
    "faults",
    "tasks",
    "exporters",
    "readers",
    "witnesses",
)  # the folders of wlgen that hold kinds


def names(folder: ModuleType) -> list[str]:
    """Return the names of the kinds in a package, sorted, without importing them."""
    return _names(folder.__path__)


def all_names() -> dict[str, list[str]]:
    """Return the names of the kinds in each folder of KINDS, without importing the folders either."""
    specs = {kind: importlib.util.find_spec(f"wlgen.{kind}") for kind in KINDS}
    return {kind: _names(spec.submodule_search_locations or ()) for kind, spec in specs.items() if spec}


def about(kind: str, name: str) -> str:
    """Return the first sentence of a kind's docstring, which says what it is for, without importing it."""
    spec = importlib.util.find_spec(f"wlgen.{kind}")
    folder = Path((spec.submodule_search_locations or ("",))[0] if spec else "")
    tree = ast.parse((folder / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8"))
    first = (ast.get_docstring(tree) or "").partition("\n\n")[0]
    return " ".join(first.split()).removeprefix(f"{name}: ")


def _names(path: Iterable[str]) -> list[str]:
    found = (module.name for module in pkgutil.iter_modules(path) if not module.name.startswith("_"))
    return sorted(name.replace("_", "-") for name in found)


def load(folder: ModuleType, name: str, *, place: str) -> ModuleType:
    """Return the module of the kind `name`; WlgenError lists the known names and the nearest one."""
    known = names(folder)
    if name not in known:
        kind = folder.__name__.rsplit(".", 1)[-1].rstrip("s").replace("_", " ")
        expected = f"a known {kind}: {', '.join(known)}"
        raise error(place, expected=expected, found=repr(name), remedy=nearest(name, known))
    return importlib.import_module(f"{folder.__name__}.{name.replace('-', '_')}")


def nearest(word: str, known: list[str]) -> str:
    """Return 'Did you mean X?' for the known word nearest to `word`, or ''."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"Did you mean {close[0]!r}?" if close else ""
