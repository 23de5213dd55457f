"""The rows of a set in the order that an export wants; each file is proved as it is read."""

from __future__ import annotations

import heapq
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import TYPE_CHECKING

import orjson

from wlgen.errors import error, regular
from wlgen.exporters import Json, Portion, Prompt, Said
from wlgen.workload.manifest import FileProof
from wlgen.workload.opened import Workload, file_sha256
from wlgen.workload.rows import OPTIONAL_KEYS, ROW_TYPES, parse_row
from wlgen.workload.splits import BY_NAME, Split

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_REMEDY = "Rebuild the set with `wlgen build`."
_READ_AHEAD = 1 << 26  # bytes, of all files that are open at once

# Where a line of the set can be cut. A quote inside a text has a backslash before it, so a text holds none of
# these.
_FIRST = b'"messages":[{"role":"'
_CONTENT = b'","content":'
_NEXT = b'"},{"role":"'
_LAST = b'"}],"body_len":'


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFile:
    """One file of a set: its split, round, rank and proof."""

    split: Split
    round: int
    rank: int
    proof: FileProof


def parse_line(line: bytes, *, place: str) -> Prompt:
    """Return the prompt of a row's line, with its texts cut out of the line and not decoded.

    The texts are those that `wlgen build` wrote if the file has its sha256, which is known only at its end. A
    line of another shape is decoded whole, and WlgenError says what is wrong with it. Cutting saves a third
    of an export's time: warm-128k as text took 0.82 s of CPU with it and 1.16 s with every line decoded
    (medians of 3 alternating runs of `wlgen export --to sglang`, 2026-12-01, 2 cores of an AMD EPYC).
    """
    start, end = line.find(_FIRST), line.rfind(_LAST)
    try:
        fields = orjson.loads(line[:start] + b'"messages":[]' + line[end + 3 :])
        said = _said(line, start + len(_FIRST), end + 1)
    except ValueError:
        fields = None
    if start < 0 or not isinstance(fields, dict) or not _typed(fields):
        return Prompt.of(parse_row(line, place=place))
    return Prompt(**fields | {"messages": said})


def _typed(fields: dict[str, object]) -> bool:
    wanted = {name: kind for name, kind in ROW_TYPES.items() if name in fields or name not in OPTIONAL_KEYS}
    return {name: type(value) for name, value in fields.items()} == wanted


def _said(line: bytes, start: int, end: int) -> tuple[Said, ...]:
    """Cut the messages out of line[start:end], which begins in the first role; ValueError where it cannot."""
    view, said = memoryview(line), []
    while True:
        opening = line.index(_CONTENT, start, end) + len(_CONTENT)
        role = line[start : opening - len(_CONTENT)].decode()
        # A search for one byte is ten times as fast, and a text of the set has no brace.
        more = line.find(b"{", opening, end) >= 0
        closing = line.find(_NEXT, opening, end) + 1 if more else 0
        said.append(Said(role, Json(view[opening : closing or end])))
        if not closing:
            return tuple(said)
        start = closing - 1 + len(_NEXT)


@dataclass(slots=True)
class _Tally:
    """Counts what was read of one split and rank, for its Portion."""

    rows: int = 0
    output_lens: set[int] = field(default_factory=set)
    least_cached: int = sys.maxsize
    most_cached: int = 0
    request_len: int = 0
    shared: dict[str, int] = field(default_factory=dict)
    most_own: int = 0
    all_own: int = 0
    behind: int | None = None

    def add(self, prompt: Prompt, behind: int | None) -> None:
        """Count a row; behind: how many rows earlier the file has the row that it continues."""
        self.rows += 1
        own = prompt.prompt_len - prompt.cached_len + prompt.output_len
        self.request_len = max(self.request_len, prompt.prompt_len + prompt.output_len)
        self.shared[prompt.group] = max(prompt.shared_len, self.shared.get(prompt.group, 0))
        self.most_own, self.all_own = max(self.most_own, own), self.all_own + own
        if behind is not None:
            self.behind = min(behind, self.behind or behind)
        self.output_lens.add(prompt.output_len)
        self.least_cached = min(self.least_cached, prompt.cached_len)
        self.most_cached = max(self.most_cached, prompt.cached_len)


class SetReader:
    """Reads the files of a set, by split and then by rank, and counts what it read.

    Its threads begin at once to hash the files, which takes as long as everything else; `close` ends them.
    """

    def __init__(
        self, workload: Workload, files: Sequence[SetFile], progress: Callable[[int, int], None]
    ) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._found = {f: self._pool.submit(file_sha256, workload.folder / f.proof.path) for f in files}
        self._workload = workload
        self._files = files
        self._progress = progress
        self._tallies = {(f.split, f.round, f.rank): _Tally() for f in files}
        self._done, self._total = 0, sum(f.proof.rows for f in files)
        self._proved = 0
        self._buffer = max(1 << 16, _READ_AHEAD // len({f.rank for f in files}))

    def close(self) -> None:
        """Stop hashing."""
        self._pool.shutdown(cancel_futures=True)

    def prompts(self, *, apart: bool, by_time: bool, ids: bool) -> Iterator[Prompt]:
        """Yield the rows part by part: rank by rank if `apart`, else the ranks in turn, or by their times.

        WlgenError if a file is not the manifest's, at the latest when its last row has been taken.
        """
        ids_of = _recall(self._workload, sorted({f.round for f in self._files})) if ids else None
        for part in dict.fromkeys((f.split, f.round) for f in self._files):
            sources = [self._rows(f) for f in self._files if (f.split, f.round) == part]
            ordered = chain.from_iterable(sources) if apart else in_turn(sources)
            if by_time and not apart and part[0].measured:
                ordered = heapq.merge(*sources, key=lambda prompt: prompt.timestamp_ms or 0)
            turns: dict[str, int] = {}  # a conversation -> the place of its latest turn in the file
            place = 0
            for prompt in ordered:
                tally = self._tallies[prompt.split, prompt.round, prompt.dp_rank]
                place = tally.rows if apart else place + 1
                before = None if prompt.session is None else turns.get(prompt.session)
                tally.add(prompt, None if before is None else place - before)
                if prompt.session is not None:
                    turns[prompt.session] = place
                self._done += 1
                self._progress(self._done, self._total)
                yield replace(prompt, ids=ids_of(prompt)) if ids_of else prompt

    def portions(self) -> list[Portion]:
        """Return what was read; every file must have been proved."""
        if self._proved != len(self._files):
            raise AssertionError("an exporter left rows unread, so their files are not proved")
        return [
            Portion(
                split=split,
                round=round_,
                dp_rank=rank,
                rows=tally.rows,
                output_lens=tuple(sorted(tally.output_lens)),
                cached_lens=(tally.least_cached, tally.most_cached),
                request_len=tally.request_len,
                shared_len=sum(tally.shared.values()),
                own_lens=(tally.most_own, tally.all_own),
                behind=tally.behind,
            )
            for (split, round_, rank), tally in self._tallies.items()
            if tally.rows
        ]

    def _rows(self, file: SetFile) -> Iterator[Prompt]:
        path = self._workload.folder / file.proof.path

        def prompt(number: int, line: bytes) -> Prompt:
            place = f"{path}:{number}"
            found = parse_line(line, place=place)
            here, there = (file.split, file.round, file.rank), (found.split, found.round, found.dp_rank)
            if here != there:
                expected, of = (
                    f"{split}, round {round_}, rank {rank}" for split, round_, rank in (here, there)
                )
                raise error(place, expected=f"a row of {expected}", found=of, remedy=_REMEDY)
            return found

        try:
            with regular(path).open("rb", buffering=self._buffer) as lines:
                # map holds no prompt or line between two rows, though hundreds of files may be open at once.
                yield from map(prompt, count(1), lines)
        except OSError as failure:
            found = failure.strerror or str(failure)
            raise error(str(path), expected="a readable file of the set", found=found) from failure
        if self._found[file].result() != file.proof.sha256:
            expected = f"sha256 {file.proof.sha256}"
            raise error(str(path), expected=expected, found="other bytes", remedy=_REMEDY)
        self._proved += 1


def in_turn(sources: Iterable[Iterator[Prompt]]) -> Iterator[Prompt]:
    """Yield the first prompt of each source, then the second of each, and so on."""
    waiting = deque(sources)
    while waiting:
        source = waiting.popleft()
        for prompt in source:
            yield prompt
            waiting.append(source)
            break


def _recall(workload: Workload, rounds: Sequence[int]) -> Callable[[Prompt], NDArray[np.uint32]]:
    from wlgen.build.recall import Recall  # noqa: PLC0415 (half the time of a small export; most forms do without)

    recall = Recall(workload, rounds)

    def ids(prompt: Prompt) -> NDArray[np.uint32]:
        composed = recall.composed(BY_NAME[prompt.split], prompt.dp_rank, prompt.prompt_sha256)
        return recall.encoded(prompt.row()) if composed is None else composed

    return ids
