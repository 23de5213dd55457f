"""Every fault by its name, from all files of the folder."""

from __future__ import annotations

from functools import cache

from wlgen import faults, registry
from wlgen.errors import error
from wlgen.faults import Fault


@cache
def every_fault() -> tuple[Fault, ...]:
    """Return all faults, by file and then in the order in which a file has them."""
    modules = (registry.load(faults, name, place="fault") for name in registry.names(faults))
    return tuple(each for module in modules for each in module.FAULTS)


def fault_named(name: str, *, place: str) -> Fault:
    """Return the fault of a name; WlgenError at `place` lists the known ones."""
    known = {each.name: each for each in every_fault()}
    if name not in known:
        raise error(
            place,
            expected=f"a fault: {', '.join(known)}",
            found=repr(name),
            remedy=registry.nearest(name, list(known)),
        )
    return known[name]
