"""A fault that a person asks for: `lost_cache:ranks=3` is the fault and its parameters."""

from __future__ import annotations

from typing import Any, NamedTuple

from wlgen.errors import error
from wlgen.faults import Asked, Fault, Figure, Parameters, Run
from wlgen.faults._names import every_fault, fault_named

_LISTS = ("ranks", "rows")


class WantedFault(NamedTuple):
    """A fault with the parameters that somebody gave it."""

    fault: Fault
    parameters: Parameters

    @property
    def words(self) -> str:
        """What is made to happen, in a sentence without its end."""
        return self.fault.words(self.parameters)

    def act(self, run: Run) -> Run:
        """Return the run with the fault in it; WlgenError where a parameter is missing or does not fit."""
        if self.fault.act is None:
            raise AssertionError(self.fault.name)
        try:
            acted = self.fault.act(run, self.parameters)
        except (KeyError, TypeError) as failure:
            takes = ", ".join(self.fault.takes)
            raise error("--fault", expected=f"{self.fault.name}:{takes}", found=self.text) from failure
        if acted == run:
            expected = "a fault that changes this run"
            remedy = "Look at the ids, groups and ranks that it names."
            raise error("--fault", expected=expected, found=self.text, remedy=remedy)
        return acted

    @property
    def text(self) -> str:
        """The fault as it is asked for."""
        given = ",".join(f"{key}={value}" for key, value in self.parameters.items())
        return f"{self.fault.name}:{given}" if given else self.fault.name


def parse_fault(text: str) -> WantedFault:
    """Return the fault of NAME[:KEY=VALUE,...], such as lost_cache:ranks=0+3,from=formal-r00-000004.

    WlgenError where the fault acts on no cache, since it then changes no figure, or takes no such parameter.
    """
    name, _, given = text.partition(":")
    fault = fault_named(name, place="--fault")
    if fault.act is None:
        acting = ", ".join(each.name for each in every_fault() if each.act is not None)
        expected = f"a fault that acts on caches: {acting}"
        raise error("--fault", expected=expected, found=f"{name}, which acts on answers alone")
    parameters: dict[str, Any] = {}
    for part in filter(None, given.split(",")):
        key, equals, value = part.partition("=")
        if key not in fault.takes or not equals:
            takes = f"{name} with {', '.join(f'{each}=VALUE' for each in fault.takes)}"
            raise error("--fault", expected=takes if fault.takes else f"{name} alone", found=repr(part))
        parameters[key] = _value(key, value)
    wanted = WantedFault(fault, parameters)
    try:
        wanted.words  # noqa: B018 (words need what the fault needs)
    except (KeyError, TypeError, IndexError) as failure:
        takes = ", ".join(f"{each}=VALUE" for each in fault.takes)
        raise error("--fault", expected=f"{name}:{takes}", found=repr(text)) from failure
    return wanted


def told(run: Run, asked: Asked, cached: int) -> Figure:
    """Return the figure that a client is told; the greatest where it may be told several."""
    if run.reported is None:
        return cached
    figures = [figure for figure in run.reported(asked, cached) if figure is not None]
    return max(figures, default=None)


def _value(key: str, text: str) -> Any:
    if key in _LISTS:
        return [int(each) if each.isdecimal() else each for each in text.split("+")]
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdecimal() else text
