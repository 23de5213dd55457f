"""The one error a person can fix, and the only one printed without a traceback."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from errno import EINVAL
from pathlib import Path
from stat import S_ISDIR, S_ISREG

MOST_ALIKE = 10  # problems of one kind that are told one by one


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreProblems(Problem):
    """The rest of a list of problems that are like the ones above it, in one line."""

    def __str__(self) -> str:
        return f"and {self.found} like these"


def capped(problems: Sequence[Problem], most: int = MOST_ALIKE) -> list[Problem]:
    """Return the problems; of those that expect the same thing the first `most`, and one line for the rest.

    93 anchors in a spec are 10 lines and "and 83 more lines like these", and a typo among them is still told.
    """
    kinds: dict[str, list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(problem.expected, []).append(problem)
    first = {id(problem) for alike in kinds.values() for problem in alike[:most]}
    told = [problem for problem in problems if id(problem) in first]
    for alike in kinds.values():
        if (rest := len(alike) - most) > 0:
            last, found = alike[most - 1], f"{rest} more line{'s' * (rest != 1)}"
            more = MoreProblems(place=last.place, expected=last.expected, found=found)
            told.insert(told.index(last) + 1, more)
    return told


class WlgenError(Exception):
    """Bad input or environment: exit code 2. Holds the problems of one input, in order.

    Of many problems that are alike it holds the first ten, and one that counts the others.
    """

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = tuple(capped(problems))

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


def error(place: str, *, expected: str, found: str, remedy: str = "") -> WlgenError:
    """Return a WlgenError with one problem."""
    return WlgenError(Problem(place=place, expected=expected, found=found, remedy=remedy))


def regular(path: Path) -> Path:
    """Return the path of a file that may be opened; OSError where it leads to none, before it is opened.

    A pipe that nobody writes into would be waited for without end, and /dev/zero has none.
    """
    mode = path.stat().st_mode
    if not S_ISREG(mode):
        raise OSError(EINVAL, "a directory" if S_ISDIR(mode) else "a pipe, a socket or a device, not a file")
    return path
