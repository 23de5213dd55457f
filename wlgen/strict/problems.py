"""The lines of one input's keys, and the problems found in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from wlgen.errors import Problem, WlgenError

MOST_SHOWN = 60  # characters of a value in a message
KeyPath: TypeAlias = tuple[str | int, ...]
"""The way to a value: ("requests", "cached", "min_ratio"); a number is a place in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The line of each key of one input, counted from 1; empty for values that came from no text.

    source: what a message calls the input, a file's path. written: each scalar as it stands in the text.
    """

    source: str
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    written: Mapping[KeyPath, str] = field(default_factory=dict)

    def line(self, path: KeyPath) -> int:
        """Return the line of a key, or of the nearest key around it, or 0 where there are no lines."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)

    def at(self, path: KeyPath, line: int | None = None) -> str:
        """Return 'file:line key.path'; a part that is not known is left out."""
        line = self.line(path) if line is None else line
        return " ".join(filter(None, (f"{self.source}:{line}" if line else self.source, dotted(path))))


def dotted(path: KeyPath) -> str:
    """Return a path as a person writes it: requests.lengths[2].low."""
    parts = (f"[{key}]" if isinstance(key, int) else f".{clip(key)}" for key in path)
    return "".join(parts).removeprefix(".")


def clip(text: str) -> str:
    """Return a text short enough for a message, on one line."""
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


_Key: TypeAlias = tuple[KeyPath, int | None, str]


class Problems:
    """The problems of one input, in the order of its lines, with at most one problem for each value.

    The first problem of a value is kept, so that a value that YAML itself spoils is explained once, and not
    again for its wrong type.
    """

    def __init__(self, places: Places) -> None:
        self.places = places
        self._found: dict[_Key, tuple[int, Problem]] = {}
        self._weak: set[_Key] = set()

    def add(
        self,
        path: KeyPath,
        *,
        expected: str,
        found: str,
        remedy: str = "",
        line: int | None = None,
        weak: bool = False,
    ) -> None:
        """Add a problem of the value at `path`. line: where a duplicate of its key stands, if that is meant.

        weak: a later problem of the same value replaces this one. The YAML reader knows only that body_len:
        99999999999999999999 is too large; the model of body_len knows that the most is 16777216.
        """
        key = (path, line, "")
        place = self.places.at(path, line)
        problem = Problem(place=place, expected=expected, found=found, remedy=remedy)
        if key not in self._found or key in self._weak:
            self._found[key] = (line or self.places.line(path), problem)
        self._weak = self._weak | {key} if weak else self._weak - {key}

    def take(self, path: KeyPath, failure: WlgenError) -> None:
        """Add the problems that reading the file named at `path` raised; they carry their own places."""
        for problem in failure.problems:
            self._found.setdefault((path, None, str(problem)), (self.places.line(path), problem))

    def __len__(self) -> int:
        return len(self._found)

    def error(self) -> WlgenError:
        """Return the error that holds every problem."""
        by_line = sorted(self._found.values(), key=lambda found: found[0])
        return WlgenError(*(problem for _, problem in by_line))
