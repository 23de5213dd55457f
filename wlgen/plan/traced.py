"""Rows of a trace: prompts of the trace's lengths, which share the blocks that the trace's lines share.

|<- block 0, 512 tokens ->|<- block 1 ->| ... |<- last block ->|
head | body ...................................................... | tail

A block is a stream of its own, named by the chain of blocks up to it, so that two rows share exactly the
blocks in which they agree from the start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError

from wlgen import streams
from wlgen.encodings import Framing
from wlgen.errors import error
from wlgen.pages import ceil_to
from wlgen.plan.ordinals import Numbering
from wlgen.plan.predict import Predictor
from wlgen.plan.rows import MessagePlan, RowPlan, Segment, row_id
from wlgen.spec.inputs import own_name
from wlgen.spec.model import Spec, Trace
from wlgen.strict.jsonl import parse_lines
from wlgen.strict.model import Strict
from wlgen.workload.bounds import UNBOUNDED, Tokens
from wlgen.workload.manifest import Promises
from wlgen.workload.splits import Split


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One line of a trace. blocks: each block's number. places: each block's index among its siblings."""

    timestamp_ms: int
    prompt_len: int
    output_len: int
    blocks: tuple[int, ...]
    places: tuple[int, ...]


class TraceRows:
    """The formal rows of a trace, in the order of its lines, which go to the ranks in turn."""

    chained = True

    def __init__(self, spec: Spec, frame: Callable[[tuple[str, ...]], Framing]) -> None:
        self._spec = spec
        self._frame = frame
        self._framing = frame(("user",))

    @cached_property
    def lines(self) -> list[TraceRow]:
        """The rows of the trace that the spec takes."""
        return self._read[0][: self._spec.splits.formal.total]

    @property
    def left_out(self) -> int:
        """How many lines of the trace min_len or max_len leaves out."""
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[list[TraceRow], int]:
        trace = self._spec.trace
        if trace is None:
            return [], 0
        content = self._spec.inputs[trace.path]
        place = self._spec.at("requests", "trace")
        return read_trace(trace, content, place, self._framing.tokens + 1)

    def count(self, split: Split, rank: int, round_: int) -> int:
        """Return the rows of a split on one rank: formal rows only."""
        del round_
        return len(range(rank, len(self.lines), self._spec.dp_ranks)) if split.measured else 0

    def rows(self, split: Split, rank: int, round_: int) -> Iterator[RowPlan]:
        """Yield a rank's rows in the trace's order."""
        for index in range(self.count(split, rank, round_)):
            n = index * self._spec.dp_ranks + rank
            shared_len, cached_len = self._reuse[n]
            yield replace(self._row(n, round_), shared_len=shared_len, cached_len=cached_len)

    def ordinals(self) -> tuple[int, int]:
        """Return the least and the greatest ordinal that a segment may have."""
        most = max((place for line in self.lines for place in line.places), default=0)
        return self.numbering.least(most), most

    @cached_property
    def numbering(self) -> Numbering:
        """The numbering of streams: a trace has neither seeds nor checks."""
        return Numbering(rounds=self._spec.rounds)

    def densely(self) -> TraceRows:
        """Return these rows: a trace has no lanes that could leave first tokens unused."""
        return self

    def promises(self) -> Promises:
        """Return the promises: no bound, and the tokens that each row finds from the rows before it."""
        cached = [cached for _, cached in self._reuse]
        prompts = [line.prompt_len for line in self.lines]
        least = min(c / p for c, p in zip(cached, prompts, strict=True))
        return Promises(configured=0.0, aggregate=sum(cached) / sum(prompts), per_request_min=least)

    def _row(self, n: int, round_: int) -> RowPlan:
        """Return a row with shared_len and cached_len still 0."""
        line = self.lines[n]
        index, rank = divmod(n, self._spec.dp_ranks)
        return RowPlan(
            id=row_id(Split.FORMAL, rank, index, round_),
            split=Split.FORMAL,
            dp_rank=rank,
            group=f"b{line.blocks[0]:06d}",
            round=round_,
            messages=(MessagePlan(role="user", segments=self._segments(line, round_)),),
            prompt_len=line.prompt_len,
            shared_len=0,
            cached_len=0,
            output_len=line.output_len,
            timestamp_ms=line.timestamp_ms,
            passage_len=line.output_len,
            task=0,
            bound=UNBOUNDED,
        )

    def _segments(self, line: TraceRow, round_: int) -> tuple[Segment, ...]:
        """Return a row's blocks. The framing head replaces its first tokens, and the tail its last ones."""
        size = self._spec.trace.block_size if self._spec.trace else 0
        head, tail = len(self._framing.ids[0]), len(self._framing.ids[-1])
        stop = line.prompt_len - tail
        segments = []
        for number, (block, place) in enumerate(zip(line.blocks, line.places, strict=True)):
            start, end = max(head, number * size), min(stop, (number + 1) * size)
            if end > start:
                ordinal = self.numbering.formal(place, round_)
                segments.append(
                    Segment(
                        stream=streams.block(block, round_), ordinal=ordinal, tokens=end - start, kind="block"
                    )
                )
        return tuple(segments)

    @cached_property
    def _reuse(self) -> list[tuple[int, int]]:
        """For each row, the tokens that it shares with an earlier row of its rank, and its cached tokens."""
        ranks = self._spec.dp_ranks
        predictors = [Predictor(self._spec.cache, self._frame) for _ in range(ranks)]
        held = [_Held() for _ in range(ranks)]
        reuse = []
        for n in range(len(self.lines)):
            row, rank = self._row(n, 0), n % ranks
            shared_len = held[rank].shared_len(row, len(self._framing.ids[0]))
            reuse.append((shared_len, predictors[rank].send(row)))
        return reuse


class _Held:
    """The blocks that the rows of one rank have sent, and how much of each."""

    def __init__(self) -> None:
        self._tokens: dict[int, int] = {}
        self._prompts: set[tuple[int, int]] = set()

    def shared_len(self, row: RowPlan, head_len: int) -> int:
        """Return the tokens that a row shares with an earlier row at most, then add its blocks."""
        end = shared = head_len
        alive = bool(self._prompts)
        block = -1
        for segment in row.messages[0].segments:
            block = streams.block_number(segment.stream)
            before = self._tokens.get(block, 0)
            shared = end + min(before, segment.tokens) if alive else shared
            alive = alive and before >= segment.tokens
            self._tokens[block] = max(before, segment.tokens)
            end += segment.tokens
        prompt = (block, row.prompt_len)
        repeated = prompt in self._prompts
        self._prompts.add(prompt)
        return row.prompt_len if repeated else shared


def read_trace(trace: Trace, content: bytes, place: str, least_len: int) -> tuple[list[TraceRow], int]:
    """Return the rows that the spec takes of a Mooncake trace, and how many lines its lengths leave out.

    WlgenError lists what is wrong, line by line. content: the file's bytes. place: what messages call the
    trace. least_len: the tokens of the shortest prompt: the framing and one token.
    """
    rows: list[TraceRow] = []
    blocks, name = _Blocks(), own_name(trace.path)
    before: float = 0
    left_out = 0

    def timed(value: object, line_place: str) -> _Line:
        nonlocal before
        line = _line(value, line_place, trace, least_len)
        if line.timestamp < before:
            expected = "a timestamp of at least that of the line above it"
            raise error(line_place, expected=expected, found=f"{line.timestamp:g} below {before:g}")
        before = line.timestamp
        if _is_taken(line, trace):
            _check_unit(line.timestamp, trace, place, line_place)
        return line

    for line in parse_lines(content.splitlines(), name, timed):
        if _is_taken(line, trace):
            rows.append(blocks.row(line, trace))
        else:
            left_out += 1
        if len(rows) == trace.limit:
            break
    if not rows:
        remedy = "Change min_len or max_len, or give another trace."
        raise error(place, expected="rows", found=f"none; {left_out} left out by their length", remedy=remedy)
    return rows, left_out


def _is_taken(line: _Line, trace: Trace) -> bool:
    return (trace.min_len or 0) <= line.input_length <= (trace.max_len or line.input_length)


def _check_unit(timestamp: float, trace: Trace, place: str, line: str) -> None:
    """Refuse times that are not whole numbers, if the spec does not say their unit.

    Bailian's traces count seconds: read as milliseconds, 61.114 would send a minute of requests at once.
    """
    if trace.time_unit is None and trace.time_scale is None and timestamp != int(timestamp):
        raise error(
            place,
            expected="timestamps in whole milliseconds, or a time_unit",
            found=f"{timestamp:g} at {line}",
            remedy="Add `time_unit: s` if the trace counts seconds, or `time_unit: ms`.",
        )


class _Line(Strict):
    """A line of a Mooncake trace; other keys are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)
    timestamp: Annotated[float | int, Field(ge=0)]
    input_length: Tokens
    output_length: Tokens
    hash_ids: list[int]


def _line(value: object, place: str, trace: Trace, least_len: int) -> _Line:
    try:
        line = _Line.model_validate(value)
    except ValidationError as failure:
        first = failure.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        expected = "timestamp, input_length, output_length and hash_ids"
        raise error(f"{place} {where}", expected=expected, found=first["msg"]) from failure
    if not _is_taken(line, trace):
        return line
    if line.input_length < least_len:
        expected = f"an input_length of at least {least_len}, the framing and one token"
        remedy = f"Add `min_len: {least_len}` to requests.trace to leave shorter lines out."
        raise error(place, expected=expected, found=str(line.input_length), remedy=remedy)
    blocks = ceil_to(line.input_length, trace.block_size) // trace.block_size
    if len(line.hash_ids) != blocks:
        expected = f"{blocks} hash_ids for {line.input_length} tokens in blocks of {trace.block_size}"
        remedy = "Check block_size."
        raise error(place, expected=expected, found=str(len(line.hash_ids)), remedy=remedy)
    return line


def _milliseconds(timestamp: float, trace: Trace) -> int:
    unit = 1000 if trace.time_unit == "s" else 1
    return int(Fraction(str(timestamp)) * unit * Fraction(str(trace.time_scale or 1)))


class _Blocks:
    """Numbers blocks by the chain up to them: the same hash id behind other blocks is another block."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int], tuple[int, int]] = {}
        self._children: Counter[int] = Counter()

    def row(self, line: _Line, trace: Trace) -> TraceRow:
        """Return the row of a line, its new blocks numbered in the order in which they appear."""
        blocks, places, parent = [], [], -1
        for hash_id in line.hash_ids:
            key = (parent, hash_id)
            if key not in self._numbers:
                self._numbers[key] = (len(self._numbers), self._children[parent])
                self._children[parent] += 1
            parent, place = self._numbers[key]
            blocks.append(parent)
            places.append(place)
        return TraceRow(
            timestamp_ms=_milliseconds(line.timestamp, trace),
            prompt_len=line.input_length,
            output_len=line.output_length,
            blocks=tuple(blocks),
            places=tuple(places),
        )
