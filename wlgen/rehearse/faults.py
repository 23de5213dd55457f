"""Faults on demand, `NAME=VALUE`: what goes wrong on real servers, at a stated rate and at fixed requests.

A rate of 0.25 strikes each fourth request and not a random one in four, so that a rehearsal can be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from wlgen.errors import Problem, WlgenError, error
from wlgen.faults._asked import WantedFault, parse_fault
from wlgen.faults._names import every_fault
from wlgen.registry import nearest

THINKING_TOKENS = 79  # the preamble vLLM puts before the user's text of DeepSeek V4 in thinking mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What goes wrong. Rates are shares of requests, from 0 to 1.

    lose_cache: this rank's cache keeps nothing. ignore_pins: the server ignores the rank of a request.
    thinking: this many tokens stand before the user's text. no_usage: the answer has no usage. no_cached:
    usage has no cached tokens. error: HTTP 500. cut: the stream breaks half-way. stall: no answer ever comes.
    omit_zero: usage lacks cached tokens of 0, as on older servers. restart: after this many requests the
    server goes away for a second, once, and comes back with empty caches.
    """

    lose_cache: int | None = None
    ignore_pins: bool = False
    thinking: int = 0
    no_usage: float = 0.0
    no_cached: float = 0.0
    error: float = 0.0
    cut: float = 0.0
    stall: float = 0.0
    omit_zero: bool = False
    restart: int = 0

    def __str__(self) -> str:
        default = Faults()
        changed = {f.name: getattr(self, f.name) for f in fields(self)}
        wrong = (f"{k.replace('_', '-')}={v}" for k, v in changed.items() if v != getattr(default, k))
        return " ".join(wrong) or "none"


class Strikes:
    """Decides for each request whether a fault with a rate strikes: evenly spaced, the same in each run."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._seen = 0

    def next(self) -> bool:
        """Return whether the fault strikes the next request. Modifies the count."""
        self._seen += 1
        return int(self._seen * self._rate) > int((self._seen - 1) * self._rate)


def parse_faults(options: Sequence[str]) -> Faults:
    """Return the faults of `NAME=VALUE` options; WlgenError lists every option that is not understood."""
    found: dict[str, Any] = {}
    problems = []
    for option in options:
        name, equals, value = option.partition("=")
        try:
            found[name.replace("-", "_")] = _READERS[name](value if equals else "")
        except KeyError:
            expected = f"NAME=VALUE with a known name: {', '.join(_READERS)}"
            hint = nearest(name, list(_READERS))
            problems.append(Problem(place="--fault", expected=expected, found=repr(option), remedy=hint))
        except ValueError:
            expected = f"{name}={_VALUES[_READERS[name]]}"
            problems.append(Problem(place="--fault", expected=expected, found=repr(option)))
    if problems:
        raise WlgenError(*problems)
    return Faults(**found)


def of_runs(options: Sequence[str]) -> tuple[list[str], WantedFault | None]:
    """Return the options that are faults of this server, and the one fault of faults/ among them."""
    known = {each.name for each in every_fault()} - set(_READERS)
    named = [option for option in options if option.partition(":")[0] in known]
    if len(named) > 1:
        raise error("--fault", expected="one fault of runs at a time", found=" and ".join(named))
    return [option for option in options if option not in named], parse_fault(named[0]) if named else None


def _rate(text: str) -> float:
    rate = float(text or "1")
    if not 0 <= rate <= 1:
        raise ValueError(text)
    return rate


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise ValueError(text)
    return count


def _flag(text: str) -> bool:
    if text not in ("", "on"):
        raise ValueError(text)
    return True


def _thinking(text: str) -> int:
    return THINKING_TOKENS if text in ("", "on") else _count(text)


_VALUES = {_rate: "RATE from 0 to 1", _count: "COUNT", _flag: "on", _thinking: "on or TOKENS"}
_READERS = {
    "lose-cache": _count,
    "ignore-pins": _flag,
    "thinking": _thinking,
    "no-usage": _rate,
    "no-cached": _rate,
    "error": _rate,
    "cut": _rate,
    "stall": _rate,
    "omit-zero": _flag,
    "restart": _count,
}
