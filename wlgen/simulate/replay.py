"""A replay from input to report: requests are read and sent through caches, and hits may go to a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from wlgen import encodings, registry
from wlgen.cache.ranks import Eviction, RankCaches, Replayed, Request
from wlgen.cache.rule import CacheRule
from wlgen.encodings import Encoding
from wlgen.engines import new_cache
from wlgen.errors import error
from wlgen.simulate.hits import HitFigures, Outside, Pass
from wlgen.simulate.input import Sending, file_requests, set_requests
from wlgen.simulate.request_lines import Reading, TextAs
from wlgen.spec.rule_choice import RuleChoice
from wlgen.workload.opened import open_workload, prove_files
from wlgen.workload.writer import check_output


@dataclass(frozen=True, slots=True, kw_only=True)
class PassReport:
    """One pass over the input: figures by split ("" for a JSONL file) and, without seeds, by rank."""

    splits: Mapping[str, HitFigures]
    ranks: Mapping[int, HitFigures]
    outside: Outside | None
    unpromised: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A replay's outcome. working_set: tokens of whole pages that each rank holds at the end.

    reading: lines that say how a JSONL file was read. in_flight: how many requests of a rank run together.
    own_rule: whether the replay used the set's own rule, so that each promise must be met to the token.
    """

    rule: CacheRule
    own_rule: bool
    capacity: int | None
    passes: tuple[PassReport, ...]
    working_set: Mapping[int, int]
    evictions: tuple[Eviction, ...]
    reading: tuple[str, ...] = ()
    in_flight: int = 1

    @property
    def holds(self) -> bool:
        """Whether no request of the first pass was outside its bound."""
        return self.passes[0].outside is None


def replay(
    source: Path,
    choice: RuleChoice,
    sending: Sending,
    *,
    capacity: int | None,
    chunk: int,
    passes: int,
    dp_ranks: int | None,
    encoding: str,
    text_as: TextAs | None = None,
    in_flight: int = 1,
    out: Path | None,
) -> Report:
    """Replay a built set's folder or a JSONL file; `out` gets one line for each request, in replay order."""
    workload = open_workload(source) if source.is_dir() else None
    if out is not None:
        check_output(out, source)
    if workload:
        prove_files(workload)
    own = workload.manifest.cache if workload else None
    rule = choice.resolve(own)
    _check_sending(sending, workload.manifest.dp_ranks if workload else dp_ranks)
    if chunk < rule.page_size:
        expected = f"at least one page of {rule.page_size} tokens, or no prompt could start"
        raise error("--chunk", expected=expected, found=str(chunk))

    reading = Reading()

    def requests() -> Iterator[Request]:
        if workload:
            return set_requests(workload, sending)
        return file_requests(
            source,
            sending,
            dp_ranks=dp_ranks,
            encoding=lambda: _load(encoding),
            text_as=text_as,
            reading=reading,
        )

    simulation = RankCaches(lambda: new_cache(rule, capacity, chunk=chunk), capacity=capacity)
    reports = []
    with hits_file(out) as write:
        for _ in range(passes):
            figures = Pass()
            for hit in simulation.replay(requests(), in_flight):
                figures.add(hit)
                write(hit)
            if not figures.splits:
                raise error(str(source), expected="at least one request", found="none")
            reports.append(pass_report(figures))
    return Report(
        rule=rule,
        own_rule=rule == own,
        capacity=capacity,
        passes=tuple(reports),
        working_set=simulation.held(),
        evictions=tuple(simulation.evictions),
        reading=tuple(reading.lines()),
        in_flight=in_flight,
    )


def pass_report(figures: Pass) -> PassReport:
    """Return the report of one pass."""
    return PassReport(
        splits={split: hits.figures() for split, hits in figures.splits.items()},
        ranks={rank: figures.ranks[rank].figures() for rank in sorted(figures.ranks)},
        outside=figures.outside,
        unpromised=figures.unpromised,
    )


def _check_sending(sending: Sending, dp_ranks: int | None) -> None:
    if sending.first_rank is None:
        return
    if dp_ranks is None:
        expected = "--dp-ranks beside --unpinned, for a JSONL file"
        raise error("--dp-ranks", expected=expected, found="no such option")
    if sending.first_rank >= dp_ranks:
        expected = f"a rank from 0 to {dp_ranks - 1}"
        raise error("--unpinned", expected=expected, found=str(sending.first_rank))


def _load(name: str) -> Encoding:
    """Load an encoding by its name, or the chat template of a folder or hub id."""
    place = "--encoding"
    known = name in registry.names(encodings)
    module = registry.load(encodings, name if known else "chat-template", place=place)
    options = module.Options() if known else module.Options(path=name)
    loaded: Encoding = module.load(options, place=place)
    return loaded


@contextmanager
def hits_file(path: Path | None) -> Iterator[Callable[[Replayed], None]]:
    """Give a function that writes a hit's line. The file gets its name only when all lines are written."""
    if path is None:
        yield lambda _hit: None
        return
    part = path.with_name(path.name + ".part")
    try:
        file = part.open("wb")
    except OSError as failure:
        found = failure.strerror or str(failure)
        raise error(f"--out {path}", expected="a file that can be written", found=found) from failure
    try:
        with file:
            yield lambda hit: _write(file.write, hit)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _write(write: Callable[[bytes], object], hit: Replayed) -> None:
    keys = {
        "id": hit.id,
        "dp_rank": hit.dp_rank,
        "prompt_len": hit.prompt_len,
        "cached_len": hit.cached_len,
    }
    write(orjson.dumps(keys, option=orjson.OPT_APPEND_NEWLINE))
