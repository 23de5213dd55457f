"""One module a command: it parses, calls one function, prints and exits. Heavy imports happen inside.

`wlgen --help` shows the commands in the groups and the order below, in which a person needs them. A command
that no group names stands under "More".

What other rooms import of it:
_answer  the JSON that every command prints for --json, and for bad input
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

GROUPS = {
    "Design a set": ("new", "plan", "schema", "explain", "list", "schedule"),
    "Build and prove it": ("build", "verify", "simulate", "export"),
    "Meet a server": ("probe", "infer-rule", "rehearse", "route", "prepare", "counters"),
    "Judge a run": ("audit", "compare"),
}


def names() -> set[str]:
    """Return the name of every command: one for each module of this folder without an underscore."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return {name.replace("_", "-") for name in found if not name.startswith("_")}


def answering() -> dict[str, Callable[[], Any]]:
    """Return, for each command with --json, the function that describes its answer."""
    modules = {name: importlib.import_module(f"{__name__}.{name.replace('-', '_')}") for name in names()}
    return {name: module.shape for name, module in sorted(modules.items()) if hasattr(module, "shape")}
