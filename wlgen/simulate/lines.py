"""JSONL that people hand in: each kind of mistake is told once, with the number of lines like it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import orjson

from wlgen.errors import MoreProblems, Problem, WlgenError, error, regular

T = TypeVar("T")


def read_lines(
    path: Path, parse: Callable[[object, str], T], *, expected: str, file_of: str, remedy: str
) -> Iterator[T]:
    """Yield what `parse` makes of each line's JSON value and its place; WlgenError once all lines are read.

    After a bad line nothing is yielded, but the rest is checked. expected: what a line is; file_of: what the
    file is. 40 lines without a prompt are one problem and "and 39 more lines like these".
    """
    first: dict[str, Problem] = {}
    more: dict[str, int] = {}
    try:
        with regular(path).open("rb") as lines:
            for number, line in enumerate(lines, 1):
                place = f"{path}:{number}"
                try:
                    found = parse(_value(line, place, expected, remedy), place)
                except WlgenError as failure:
                    for problem in failure.problems:
                        more[problem.expected] = more.get(problem.expected, -1) + 1
                        first.setdefault(problem.expected, problem)
                    continue
                if not first:
                    yield found
    except OSError as failure:
        words = failure.strerror or str(failure)
        raise error(str(path), expected=file_of, found=words) from failure
    if first:
        raise WlgenError(*_told(first, more))


def _value(line: bytes, place: str, expected: str, remedy: str) -> object:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as failure:
        raise error(place, expected=expected, found=str(failure), remedy=remedy) from failure


def _told(first: dict[str, Problem], more: dict[str, int]) -> Iterator[Problem]:
    for kind, problem in first.items():
        yield problem
        if (rest := more[kind]) > 0:
            found = f"{rest} more line{'s' * (rest != 1)}"
            yield MoreProblems(place=problem.place, expected=kind, found=found, rest=rest)
