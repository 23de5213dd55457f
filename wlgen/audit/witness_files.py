"""The servers' own files on disk: scrapes of counters, request files and logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from wlgen import registry, witnesses
from wlgen.audit.given import Given
from wlgen.errors import Problem, WlgenError, regular
from wlgen.witnesses import Scrape, Told, Witness

OPENING = 1 << 16  # the first bytes, by which a file's kind is recognised; a log begins with a long line


def read_given(
    *,
    counters: Sequence[Path] = (),
    requests: Sequence[Path] = (),
    logs: Sequence[Path] = (),
    pair: bool = False,
) -> Given:
    """Return what servers say. counters: BEFORE and AFTER, or nothing. Other files are read when used.

    A folder means the files of the kind below it. WlgenError lists every file that cannot be used, before
    anything long is read.
    """
    problems: list[Problem] = []
    scrapes = [_scrape(path, problems) for path in counters]
    chosen = {
        option: [each for path in paths for each in _chosen(path, option, problems)]
        for option, paths in (("requests", requests), ("log", logs))
    }
    if problems:
        raise WlgenError(*problems)
    before, after = scrapes or (None, None)
    # Any: which of the kinds a module yields, its OPTION says, and the type system cannot know.
    told: dict[str, Any] = {option: [_opened(*each) for each in files] for option, files in chosen.items()}
    return Given(before=before, after=after, requests=told["requests"], logs=told["log"], pair=pair)


def _opened(path: Path, kind: Witness) -> tuple[str, Iterator[Told | Problem]]:
    return str(path), _told(path, kind)


def _told(path: Path, kind: Witness) -> Iterator[Told | Problem]:
    with regular(path).open("rb") as content:
        yield from kind.read(str(path), content)


def _scrape(path: Path, problems: list[Problem]) -> Scrape | None:
    for _, kind in _chosen(path, "counters", problems):
        for found in _told(path, kind):
            if isinstance(found, Scrape):
                return found
            if isinstance(found, Problem):
                problems.append(found)
    return None


def _chosen(path: Path, option: str, problems: list[Problem]) -> Iterator[tuple[Path, Witness]]:
    """Yield (path, kind) of the option's file, or of those below a folder; else add a problem."""
    below = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    found = False
    why = "no such file below it" if path.is_dir() else "another file"
    for each in below:
        try:
            with regular(each).open("rb") as content:
                opening = content.read(OPENING)
        except OSError as failure:
            why = failure.strerror or str(failure)
            continue
        for kind in _kinds(option):
            if kind.claims(opening):
                found = True
                yield each, kind
    if not found:
        expected = {
            "counters": "a scrape that `wlgen counters` or `wlgen prepare` wrote",
            "requests": "SGLang's request metrics (--export-metrics-to-file)",
            "log": "SGLang's log with its prefill batches",
        }[option]
        problems.append(Problem(place=str(path), expected=expected, found=why, remedy=f"See --{option}."))


def _kinds(option: str) -> list[Witness]:
    loaded = [registry.load(witnesses, name, place=f"--{option}") for name in registry.names(witnesses)]
    return [cast("Witness", kind) for kind in loaded if kind.OPTION == option]  # noqa: SIM300 (a name, no constant)
