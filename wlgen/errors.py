"""The one error a person can fix, and the only one printed without a traceback."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from errno import EINVAL
from pathlib import Path
from stat import S_ISDIR, S_ISREG

MOST_ALIKE = 10  # problems of one kind that each get a line
PROBLEM_KEYS = ("place", "expected", "found", "remedy")  # what JSON tells of a problem
SHOWN = 300  # characters of foreign words that a message repeats


def printable(words: str, most: int = SHOWN) -> str:
    r"""Return foreign words as one line of at most `most` characters that does nothing to a terminal.

    "\x1b[2J", which clears a screen, becomes the seven characters \x1b[2J.
    """
    line = " ".join(words.split())
    line = escaped(line[: most + 1])
    return line if len(line) <= most else line[:most] + "..."


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, which has an s unless the count is 1: "1 row", "1,024 rows"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def escaped(words: str) -> str:
    """Return words whose every character but a line end is printable; the others are spelled as escapes."""
    if words.isprintable():
        return words
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong: where, what was expected, what was found, what to do."""

    place: str
    expected: str
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"{self.place}: expected {self.expected}, found {self.found}"
        return escaped(f"{line}. {self.remedy}" if self.remedy else line)

    @property
    def places(self) -> int:
        """How many places this problem stands for: 1, but for the line that ends a long list."""
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreProblems(Problem):
    """One line in place of the problems that are like those told above it.

    rest: how many problems the line replaces, so that 200 unreadable lines count as 200 and not as 2.
    """

    rest: int

    def __str__(self) -> str:
        return f"and {self.found} like these"

    @property
    def places(self) -> int:
        """How many problems the line stands for."""
        return self.rest


def capped(problems: Sequence[Problem], most: int = MOST_ALIKE) -> list[Problem]:
    """Return the first `most` problems of each kind, and a line that counts the others of that kind.

    Problems that expect the same thing are of one kind. 93 anchors in a spec become 10 lines and "and 83 more
    lines like these", so that a typo among them is still seen.
    """
    kinds: dict[str, list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(problem.expected, []).append(problem)
    first = {id(problem) for alike in kinds.values() for problem in alike[:most]}
    told = [problem for problem in problems if id(problem) in first]
    for alike in kinds.values():
        if rest := sum(problem.places for problem in alike[most:]):
            last, found = alike[most - 1], f"{rest} more line{'s' * (rest != 1)}"
            more = MoreProblems(place=last.place, expected=last.expected, found=found, rest=rest)
            told.insert(told.index(last) + 1, more)
    return told


class WlgenError(Exception):
    """Bad input or environment: exit code 2. Holds the problems of one input, in order.

    Of more than ten problems of one kind it holds the first ten, and one that counts the others.
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
    """Return `path` if a regular file stands there, and raise OSError before anything else is opened.

    To open a pipe that nobody writes into is to wait for ever, and /dev/zero can be read without end.
    """
    mode = path.stat().st_mode
    if not S_ISREG(mode):
        raise OSError(EINVAL, "a directory" if S_ISDIR(mode) else "a pipe, a socket or a device, not a file")
    return path
