"""Reads a corpus, from files or a data set of the hub, through `datasets`, until it has enough text."""

from __future__ import annotations

import glob
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import orjson
import xxhash

from wlgen.errors import Problem, WlgenError, error
from wlgen.registry import nearest

MOST_CHARACTERS = 8_000_000  # that are read of a corpus: 2 million tokens of English, 5 million of Chinese
_LARGE = 4 * MOST_CHARACTERS  # bytes: a UTF-8 file above this has more than MOST_CHARACTERS in any language
_FORMATS = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_PACKED = (".bz2", ".gz", ".xz", ".zst")  # datasets unpacks them
_SHOWN = 60  # characters of a bad line in a message

_FirstBad: TypeAlias = Callable[[Path], "tuple[int, str] | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSource:
    """The texts that were read, in order, none twice. cut: whether there was more than MOST_CHARACTERS."""

    texts: tuple[str, ...]
    cut: bool

    @property
    def sha256(self) -> str:
        """The sha256 of all texts, each with its length."""
        digest = hashlib.sha256()
        for text in self.texts:
            content = text.encode()
            digest.update(len(content).to_bytes(8, "little") + content)
        return digest.hexdigest()


class _Part(NamedTuple):
    """A part of the corpus that `datasets` loads in one call.

    place: what messages call it. batch: rows held at a time. joined: whether the rows are lines of one text.
    """

    arguments: dict[str, Any]
    format: str
    files: tuple[Path, ...]
    place: str
    batch: int = 16
    joined: bool = False


def read_files(patterns: Sequence[str], column: str, folder: Path, place: str) -> CorpusSource:
    """Read files of text, JSON lines or Parquet. Patterns are relative to `folder`; a text file is one text.

    WlgenError: a pattern matches no file, a file does not hold what its name says, or has no such column.
    """
    files = _matches(patterns, folder, place)
    with tempfile.TemporaryDirectory(prefix="wlgen-") as cache:
        source = _read(_file_parts(files, cache, place), column)
    if not source.texts:
        found = f"{len(files)} files without text" if len(files) > 1 else f"no text in {files[0]}"
        raise error(place, expected="files with text", found=found, remedy="Give files that are not empty.")
    return source


def read_dataset(
    name: str, *, config: str | None, split: str, revision: str | None, column: str, place: str
) -> CorpusSource:
    """Read a data set of the hub as it arrives; WlgenError if it cannot be loaded or has no such column."""
    arguments = {"path": name, "name": config, "split": split, "revision": revision}
    source = _read([_Part(arguments, "hub", (), place)], column)
    if not source.texts:
        raise error(place, expected="a data set with text", found=f"none in {name}, split {split}")
    return source


def _matches(patterns: Sequence[str], folder: Path, place: str) -> list[Path]:
    """Return the files that the patterns match, in the order of the patterns, each file once."""
    files: dict[Path, Path] = {}
    problems = []
    for pattern in patterns:
        path = folder / os.path.expandvars(Path(pattern).expanduser())
        plain = [path] if path.exists() else []
        found = plain or [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207 (a pattern may be absolute)
        for file in filter(Path.is_file, found):
            files.setdefault(file.resolve(), file)
        if path.is_dir():
            remedy = f"Name its files, for example {pattern.rstrip('/')}/*.jsonl."
            problems.append(Problem(place=place, expected="files", found=f"a folder, {path}", remedy=remedy))
        elif not any(file.is_file() for file in found):
            beside = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
            remedy = nearest(path.name, beside)
            problems.append(Problem(place=place, expected="a file", found=f"none at {path}", remedy=remedy))
    if problems:
        raise WlgenError(*problems)
    return list(files.values())


def _file_parts(files: Sequence[Path], cache: str, place: str) -> Iterator[_Part]:
    """Yield the parts to load: text files together, since each load takes a while, and others one by one.

    Files of other formats may differ in their columns.
    """

    def key(item: tuple[int, Path]) -> tuple[str, int]:
        number, file = item
        large = file.stat().st_size > _LARGE
        return _format(file), -1 if _format(file) == "text" and not large else number

    for (kind, number), items in groupby(enumerate(files), key):
        part = tuple(file for _, file in items)
        names = [glob.escape(str(file.absolute())) for file in part]  # datasets takes names for patterns
        arguments = {"path": kind, "data_files": names, "split": "train", "cache_dir": cache}
        part_place = str(part[0]) if len(part) == 1 else place
        if kind != "text":
            yield _Part(arguments, kind, part, part_place)
        elif number < 0:
            yield _Part({**arguments, "sample_by": "document"}, kind, part, part_place, batch=1)
        else:  # a large file is never held whole
            arguments["sample_by"] = "line"
            yield _Part(arguments, kind, part, part_place, batch=1024, joined=True)


def _format(file: Path) -> str:
    suffixes = [s.lower() for s in file.suffixes if s.lower() not in _PACKED]
    return _FORMATS.get(suffixes[-1], "text") if suffixes else "text"


def _read(parts: Iterator[_Part] | Sequence[_Part], column: str) -> CorpusSource:
    """Take texts until they have MOST_CHARACTERS together; the last text may be cut."""
    texts: list[str] = []
    seen: set[bytes] = set()
    room = MOST_CHARACTERS
    for part in parts:
        values = _values(part, column)
        for value in _joined(values, room) if part.joined else values:
            key = xxhash.xxh3_128_digest(value.encode())
            if key in seen or not value.strip():
                continue
            seen.add(key)
            texts.append(value[:room])
            room -= len(value)
            if room <= 0:
                return CorpusSource(texts=tuple(texts), cut=True)
    return CorpusSource(texts=tuple(texts), cut=False)


def _joined(lines: Iterator[str], room: int) -> Iterator[str]:
    taken: list[str] = []
    for line in lines:
        taken.append(line)
        room -= len(line) + 1
        if room < 0:
            break
    yield "\n".join(taken)


def _values(part: _Part, column: str) -> Iterator[str]:
    """Yield the texts of a part; a WlgenError speaks of the file, not of the library that read it."""
    import datasets  # noqa: PLC0415 (takes a second; other tasks do without)

    rows = 0
    try:
        with _quiet(datasets.logging):
            loaded = datasets.load_dataset(**part.arguments, streaming=True)
            for batch in loaded.iter(batch_size=part.batch):
                values = _column(batch, column, part)
                for row, value in enumerate(values, rows + 1):
                    if value is not None:
                        yield _text(value, row, column, part)
                rows += len(values)
    except WlgenError:
        raise
    except StopIteration:
        return  # a .jsonl file without a line
    except Exception as failure:  # datasets raises what its formats raise
        raise _unreadable(part, failure) from failure


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Keep `datasets` from logging an error that it also raises."""
    level = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(level)


def _column(batch: dict[str, list[Any]], column: str, part: _Part) -> list[Any]:
    if column in batch:
        return batch[column]
    if part.format == "text":
        expected, remedy = "column: text, since a text file has no columns", "Delete column."
        raise error(part.place, expected=expected, found=f"column: {column}", remedy=remedy)
    remedy = nearest(column, list(batch)) or "Name the column that holds the text."
    raise error(part.place, expected=f"the column {column}", found=", ".join(batch) or "none", remedy=remedy)


def _text(value: object, row: int, column: str, part: _Part) -> str:
    if isinstance(value, str):
        return value
    found = "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
    remedy = "Name a column of text; write conversations as one text a row."
    place = f"{part.place} row {row}"
    raise error(place, expected=f"text in the column {column}", found=found[:_SHOWN], remedy=remedy)


def _unreadable(part: _Part, failure: Exception) -> WlgenError:
    """Return the error of a part, with the first bad line of its file if a look into the file finds one."""
    expected, remedy, first_bad = _SAID[part.format]
    for file in part.files:
        if not os.access(file, os.R_OK):
            return error(str(file), expected="a file that may be read", found="no permission to read it")
        wrong = first_bad(file) if first_bad and file.suffix.lower() not in _PACKED else None
        if wrong:
            return error(f"{file}:{wrong[0]}", expected=expected, found=wrong[1], remedy=remedy)
    found = str(failure).strip().partition("\n")[0] or type(failure).__name__
    return error(part.place, expected=expected, found=found, remedy=remedy)


def _bad_line(file: Path) -> tuple[int, str] | None:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                whole = not line.strip() or isinstance(orjson.loads(line), dict)
            except orjson.JSONDecodeError:
                whole = False
            if not whole:
                return number, repr(line[:_SHOWN].decode(errors="replace").rstrip())
    return None


def _bad_byte(file: Path) -> tuple[int, str] | None:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError as failure:
                return number, f"the byte 0x{line[failure.start]:02x}"
    return None


# For each format: what was expected, the remedy, and the function that finds the first bad line.
_SAID: dict[str, tuple[str, str, _FirstBad | None]] = {
    "hub": (
        "a data set of the hub",
        "Correct dataset, config and split; where there is no network, download it and give its files.",
        None,
    ),
    "json": ("a JSON object on each line", "", _bad_line),
    "parquet": ("a Parquet file", "", None),
    "text": ("UTF-8 text", "Save it as UTF-8; name files of other formats .jsonl or .parquet.", _bad_byte),
}
