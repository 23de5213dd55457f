"""The one error a person can fix, and the only one printed without a traceback."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong: where, what was expected, what was found, what to do."""

    place: str
    expected: str
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{self.place}: expected {self.expected}, found {self.found}"
        return f"{line}. {self.remedy}" if self.remedy else line


class WlgenError(Exception):
    """Bad input or environment: exit code 2. Holds every problem of one input, in order."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


def error(place: str, *, expected: str, found: str, remedy: str = "") -> WlgenError:
    """Return a WlgenError with one problem."""
    return WlgenError(Problem(place=place, expected=expected, found=found, remedy=remedy))
