"""JSONL that people hand in: each line is checked, and each kind of mistake is reported once with a count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import orjson

from wlgen.errors import MoreProblems, Problem, WlgenError, error, regular

T = TypeVar("T")


def read_lines(
    path: Path, parse: Callable[[object, str], T], *, expected: str, file_of: str, remedy: str
) -> Iterator[T]:
    """Yield what `parse` makes of each line of a file, as `parse_lines` does.

    file_of: what a message says was expected where the file cannot be read, such as "a file of results".
    """
    try:
        with regular(path).open("rb") as lines:
            yield from parse_lines(lines, str(path), parse, expected=expected, remedy=remedy)
    except OSError as failure:
        words = failure.strerror or str(failure)
        raise error(str(path), expected=file_of, found=words) from failure


def parse_lines(
    lines: Iterable[bytes],
    name: str,
    parse: Callable[[object, str], T],
    *,
    expected: str = "a JSON object a line",
    remedy: str = "",
) -> Iterator[T]:
    """Yield what `parse` makes of each line's JSON value and its place, "name:3" for the third line.

    `parse` raises WlgenError for a value that does not fit. After a bad line the reader yields nothing more,
    but checks the lines that are left, and then raises a WlgenError with the first mistake of each kind: 40
    lines without a prompt are one problem and "and 39 more lines like these".
    expected, remedy: what the message says of a line that is not JSON.
    """
    first: dict[str, Problem] = {}
    more: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        place = f"{name}:{number}"
        try:
            found = parse(_value(line, place, expected, remedy), place)
        except WlgenError as failure:
            for problem in failure.problems:
                more[problem.expected] = more.get(problem.expected, -1) + 1
                first.setdefault(problem.expected, problem)
            continue
        if not first:
            yield found
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
