"""Export: a set's rows through one client's exporter into a folder; the set is proved while it is read."""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, cast

from wlgen import export_folder, exporters, registry
from wlgen.errors import error
from wlgen.exporters import Exporter, Form, Portion, Target, _run_card
from wlgen.workload import MANIFEST, SPLITS, FileProof, Row, Split, Workload, file_sha256, parse_row, row_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from wlgen.exporters import Prompt

_READ_AHEAD = 1 << 24  # bytes, of all files that are open at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export wrote."""

    folder: Path
    client: str
    form: str
    rows: int
    files: tuple[export_folder.Written, ...]


def export(
    workload: Workload,
    client: str,
    output: Path,
    *,
    form: str | None = None,
    splits: Sequence[str] = (),
    ranks: Sequence[int] = (),
    model: str = "",
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Exported:
    """Write the files and the run card of a client into `output`, in place of an earlier export there.

    form: None for the exporter's first. splits, ranks: empty for all that the set has. model: the server's
    model name, for clients that send whole bodies. progress: called with the rows read and all rows.
    WlgenError, with nothing left behind: an unknown client or form, rows the client cannot carry, a set
    whose files do not have the manifest's hashes, a place that is not free or not writable.
    """
    exporter = cast("Exporter", registry.load(exporters, client, place="--to"))
    chosen = _form(exporter, client, form)
    wanted = _wanted(workload, splits, ranks)
    out, folder = output.resolve(), workload.folder.resolve()
    export_folder.check(out, folder)
    target = _target(workload, chosen, out, model)
    reader = _Reader(workload, wanted, progress)
    with export_folder.staging(out) as stage, ThreadPoolExecutor(1) as proving:
        prompts = reader.prompts(proving, apart=target.apart(exporter.ONE_FILE_A), ids=chosen.ids)
        made = exporter.files(prompts, target)
        written = [export_folder.write(stage, name, chunks) for name, chunks in made]
        portions = reader.portions()
        card = exporter.run_card(target, portions)
        text = _run_card.render(card, target, portions, client=client, folder=str(folder))
        written.append(export_folder.write(stage, _run_card.NAME, [text.encode()]))
        rows = sum(p.rows for p in portions)
        facts = {
            "set": workload.manifest.name,
            "spec_sha256": workload.manifest.spec_sha256,
            "client": client,
            "form": chosen.name,
            "splits": list(dict.fromkeys(f.split for f in wanted)),
            "ranks": sorted({f.rank for f in wanted}),
            "rows": rows,
        }
        export_folder.exchange(stage, out, facts, written)
    return Exported(folder=out, client=client, form=chosen.name, rows=rows, files=tuple(written))


def _form(exporter: Exporter, client: str, name: str | None) -> Form:
    known = {form.name: form for form in exporter.FORMS}
    if name is None:
        return exporter.FORMS[0]
    if name not in known:
        expected = f"a form of {client}: " + ", ".join(f"{f.name} ({f.about})" for f in exporter.FORMS)
        remedy = registry.nearest(name, list(known))
        raise error("--form", expected=expected, found=repr(name), remedy=remedy)
    return known[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SetFile:
    split: Split
    rank: int
    proof: FileProof


def _wanted(workload: Workload, splits: Sequence[str], ranks: Sequence[int]) -> list[_SetFile]:
    """Return the files that are to be exported, in the order seed, check, formal, then rank."""
    by_path = {f.path: f for f in workload.manifest.files}
    have = [
        _SetFile(split=split, rank=rank, proof=by_path[path])
        for split in SPLITS
        for rank in range(workload.manifest.dp_ranks)
        if (path := row_file(split, rank)) in by_path
    ]
    for option, asked, known in (
        ("--split", splits, list(dict.fromkeys(f.split for f in have))),
        ("--rank", ranks, sorted({f.rank for f in have})),
    ):
        for value in asked:
            if value not in known:
                expected = f"one that the set has: {', '.join(map(str, known)) or 'none'}"
                raise error(option, expected=expected, found=str(value))
    wanted = [f for f in have if (not splits or f.split in splits) and (not ranks or f.rank in ranks)]
    if not wanted:
        found = "none for these splits and ranks"
        raise error(str(workload.folder), expected="rows to export", found=found)
    return wanted


def _target(workload: Workload, form: Form, out: Path, model: str) -> Target:
    tokenizer = b""
    if form.tokenizer:
        tokenizer = _tokenizer(workload)
    return Target(
        manifest=workload.manifest, form=form.name, folder=out.as_posix(), model=model, tokenizer=tokenizer
    )


def _tokenizer(workload: Workload) -> bytes:
    """Return the set's tokenizer.json; the packaged one is known by its hash, without parsing it."""
    from wlgen.encodings.deepseek_v4 import packaged_json  # noqa: PLC0415 (most forms do without)

    packaged = packaged_json()
    if hashlib.sha256(packaged).hexdigest() == workload.manifest.encoding["tokenizer_sha256"]:
        return packaged
    from wlgen import spec_file  # noqa: PLC0415 (a small export takes twice the time with it)
    from wlgen.build import load_encoding  # noqa: PLC0415 (the same)

    spec = spec_file.from_content(workload.manifest.spec, str(workload.folder / MANIFEST))
    return load_encoding(spec).tokenizer.to_str().encode()


def _recall(workload: Workload) -> Callable[[Row], NDArray[np.uint32]]:
    from wlgen.recall import Recall  # noqa: PLC0415 (half the time of a small export; most forms do without)

    return Recall(workload).ids


@dataclass(slots=True)
class _Tally:
    """What has been read of one split and rank; becomes its Portion."""

    rows: int = 0
    output_lens: set[int] = field(default_factory=set)
    least_cached: int = sys.maxsize
    most_cached: int = 0

    def add(self, row: Row) -> None:
        self.rows += 1
        self.output_lens.add(row.output_len)
        self.least_cached = min(self.least_cached, row.cached_len)
        self.most_cached = max(self.most_cached, row.cached_len)


class _Reader:
    """Reads rows in the order an exporter wants, proves each file at its end, and counts what it read."""

    def __init__(
        self, workload: Workload, files: Sequence[_SetFile], progress: Callable[[int, int], None]
    ) -> None:
        self._workload = workload
        self._files = files
        self._progress = progress
        self._tallies = {(f.split, f.rank): _Tally() for f in files}
        self._done, self._total = 0, sum(f.proof.rows for f in files)
        self._proved = 0
        self._buffer = max(1 << 16, _READ_AHEAD // len({f.rank for f in files}))

    def prompts(self, thread: Executor, *, apart: bool, ids: bool) -> Iterator[Prompt]:
        """Yield the rows split by split: rank by rank if apart, else the ranks in turn; prove in `thread`."""
        ids_of = _recall(self._workload) if ids else lambda _row: None
        for split in dict.fromkeys(f.split for f in self._files):
            sources = [self._rows(f.proof, thread) for f in self._files if f.split == split]
            for row in chain.from_iterable(sources) if apart else _in_turn(sources):
                self._tallies[row.split, row.dp_rank].add(row)
                self._done += 1
                self._progress(self._done, self._total)
                yield row, ids_of(row)

    def portions(self) -> list[Portion]:
        """Return what was read; every file must have been proved."""
        if self._proved != len(self._files):
            raise AssertionError("an exporter left rows unread, so their files are not proved")
        return [
            Portion(
                split=split,
                dp_rank=rank,
                rows=tally.rows,
                output_lens=tuple(sorted(tally.output_lens)),
                cached_lens=(tally.least_cached, tally.most_cached),
            )
            for (split, rank), tally in self._tallies.items()
            if tally.rows
        ]

    def _rows(self, proof: FileProof, thread: Executor) -> Iterator[Row]:
        path = self._workload.folder / proof.path
        digest = thread.submit(file_sha256, path)
        try:
            with path.open("rb", buffering=self._buffer) as lines:
                # map keeps no row or line while it waits: hundreds of files may be open at once.
                yield from map(
                    lambda number, line: parse_row(line, place=f"{path}:{number}"), count(1), lines
                )
        except OSError as failure:
            found = failure.strerror or str(failure)
            raise error(str(path), expected="a readable file of the set", found=found) from failure
        if digest.result() != proof.sha256:
            found, remedy = "other bytes", "Rebuild the set with `wlgen build`."
            raise error(str(path), expected=f"sha256 {proof.sha256}", found=found, remedy=remedy)
        self._proved += 1


def _in_turn(sources: Iterable[Iterator[Row]]) -> Iterator[Row]:
    """Yield the first row of each source, then the second of each, and so on."""
    waiting = deque(sources)
    while waiting:
        source = waiting.popleft()
        for row in source:
            yield row
            waiting.append(source)
            break
