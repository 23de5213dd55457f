"""Result files on disk: found, recognised and opened, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from wlgen import readers, registry
from wlgen.errors import Problem, WlgenError, counted, regular
from wlgen.readers import Reader, Result, Source

OPENING = 4096  # the first bytes of a file, by which its client is recognised
BOM = b"\xef\xbb\xbf"  # Windows programs write it before UTF-8; it belongs to no line
# Files that no reader reads: how they begin, what they are, what to do.
_FOREIGN = (
    (b"\xff\xfe", "a text in UTF-16", "Convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW."),
    (b"\xfe\xff", "a text in UTF-16", "Convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW."),
    (b"\x1f\x8b", "a gzip archive", "Unpack it: gunzip FILE."),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "Unpack it: unzstd FILE."),
    (b"PK\x03\x04", "a zip archive", "Unpack it: unzip FILE."),
)
EMPTY = "an empty file"
SUFFIXES = (".json", ".jsonl", ".db")


@dataclass(frozen=True, slots=True)
class ResultFiles:
    """Result files with their readers; iterate for (name, results), one file after another.

    A file without results, such as the empty file of a client that was killed, has a Problem instead of a
    reader.
    """

    chosen: Sequence[tuple[Path, Reader | Problem]]

    def __iter__(self) -> Iterator[tuple[str, Iterator[Result | Problem]]]:
        return (_opened(path, reader) for path, reader in self.chosen)

    @property
    def paths(self) -> list[Path]:
        """The files, in the order read."""
        return [path for path, _ in self.chosen]

    @property
    def clients(self) -> list[str]:
        """The names of the clients that wrote them."""
        names = (getattr(reader, "__name__", "").rpartition(".")[2] for reader in self._readers)
        return list(dict.fromkeys(name.replace("_", "-") for name in names))

    @property
    def blind(self) -> list[str]:
        """In words, why some of these clients may keep no cached tokens."""
        return list(dict.fromkeys(reader.BLIND for reader in self._readers if reader.BLIND))

    @property
    def _readers(self) -> list[Reader]:
        return [reader for _, reader in self.chosen if not isinstance(reader, Problem)]


def read_results(paths: Sequence[Path], client: str | None = None) -> ResultFiles:
    """Return (name, results) of each file; a folder stands for the result files below it.

    client: the reader's name; None: recognise each file by its first bytes. Consume a file's results before
    you ask for the next file. WlgenError, before any result is read, lists every path that cannot be used.
    """
    return ResultFiles(_choose(paths, client))


def _opened(path: Path, reader: Reader | Problem) -> tuple[str, Iterator[Result | Problem]]:
    return str(path), iter([reader]) if isinstance(reader, Problem) else _results(path, reader)


def _results(path: Path, reader: Reader) -> Iterator[Result | Problem]:
    def beside(relative: str) -> Path | None:
        other = path.parent / relative
        return other if other.is_file() else None

    with regular(path).open("rb") as content:
        if content.read(len(BOM)) != BOM:
            content.seek(0)
        yield from reader.read(Source(name=str(path), content=content, beside=beside))


def _choose(paths: Sequence[Path], client: str | None) -> list[tuple[Path, Reader | Problem]]:
    known = registry.names(readers)
    wanted = known if client is None else [client]
    loaded = [cast("Reader", registry.load(readers, name, place="--client")) for name in wanted]
    chosen: list[tuple[Path, Reader | Problem]] = []
    problems: list[Problem] = []
    empty: list[tuple[Path, Problem]] = []
    for path in paths:
        if path.is_dir():
            below = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and not _is_extra(p))
            found = [(p, reader) for p in below if (reader := _recognised(p, loaded))]
            if not found:
                expected = f"result files of {client or 'a known client'} in this folder"
                found_files = (
                    f"none among {counted(len(below), 'file')} with the ending {' or '.join(SUFFIXES)}"
                )
                remedy = "Give the folder that the client wrote into, or a file of it with --client."
                problems.append(Problem(place=str(path), expected=expected, found=found_files, remedy=remedy))
            chosen += found
        elif problem := _unreadable(path):
            problems.append(problem)
            if problem.found == EMPTY:
                empty.append((path, problem))
        elif client is not None:
            chosen.append((path, loaded[0]))
        elif reader := _recognised(path, loaded):
            chosen.append((path, reader))
        else:
            remedy = f"Name the client with --client: {', '.join(known)}."
            expected = "a result file whose client can be recognised"
            problems.append(Problem(place=str(path), expected=expected, found="another file", remedy=remedy))
    # A client that was killed leaves an empty file for a rank: an error only if no other file is read.
    if problems and (len(problems) > len(empty) or not chosen):
        raise WlgenError(*problems)
    chosen += empty
    once = {path.resolve(): (path, reader) for path, reader in chosen}  # a file may be given twice
    return [found for path, found in once.items() if len(once) == 1 or not _is_extra(path)]


def _is_extra(path: Path) -> bool:
    # AISBench writes failed records twice, and keeps parts of an unfinished run in tmp/, which are all there
    # is if it was killed before it wrote the details.
    if path.name.endswith("_failed.jsonl"):
        return True
    unfinished = path.parent.name == "tmp" and path.name.startswith("tmp_")
    return unfinished and any(path.absolute().parents[1].glob("*_details.jsonl"))


def _recognised(path: Path, loaded: Sequence[Reader]) -> Reader | None:
    try:
        with regular(path).open("rb") as content:
            opening = content.read(OPENING).removeprefix(BOM)
    except OSError:  # a folder may hold files that wlgen may not read
        return None
    claiming = [reader for reader in loaded if reader.claims(opening)]
    return claiming[0] if len(claiming) == 1 else None


def _unreadable(path: Path) -> Problem | None:
    try:
        with regular(path).open("rb") as content:
            opening = content.read(OPENING)
    except OSError as failure:
        found = failure.strerror or str(failure)
        remedy = "Give the file that the client wrote, or its folder; the run card names it."
    else:
        if not opening.strip(BOM + b" \t\r\n\0"):
            found = EMPTY
            remedy = "The client wrote nothing: see why it stopped, and run it again after `wlgen prepare`."
        elif foreign := next((kind for kind in _FOREIGN if opening.startswith(kind[0])), None):
            _, found, remedy = foreign
        else:
            return None
    return Problem(place=str(path), expected="a result file", found=found, remedy=remedy)
