"""The input of a replay: the rows of a built set or of a JSONL file, as requests in the order of sending."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from wlgen.audit.findings import Promised
from wlgen.build.recall import Recall
from wlgen.cache.ranks import Request
from wlgen.cache.rule import Ids
from wlgen.encodings import Encoding
from wlgen.errors import error
from wlgen.simulate.request_lines import Reading, TextAs, read_requests
from wlgen.streams import order, permutation
from wlgen.workload.bounds import Bound
from wlgen.workload.opened import Workload
from wlgen.workload.rows import Row
from wlgen.workload.splits import MEASURED, in_order

Order: TypeAlias = Literal["file", "interleaved", "shuffled"]
_OWN = 1 << 31  # ids of a full seed's own tokens, in no vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How rows are sent.

    order: in file order, one row of each rank in turn, or shuffled by order_seed (a split is then in memory).
    first_rank: send all rows but seeds to the ranks in turn, from this rank on, whatever their dp_rank says.
    """

    order: Order = "file"
    order_seed: int = 0
    skip_seeds: bool = False
    full_seeds: bool = False
    first_rank: int | None = None


def set_requests(workload: Workload, sending: Sending) -> Iterator[Request]:
    """Yield a built set's requests: seeds, then each round's checks and formal rows.

    Each split of a round is in the order asked for.
    """
    rounds = workload.manifest.rounds or (0,)
    parts = [part for part in in_order(rounds) if not (sending.skip_seeds and part[0].primes)]
    full_len = _full_len(workload) if sending.full_seeds else 0
    recall, bound_of = Recall(workload), cache(workload.manifest.bound_of)
    turn = 0
    for split, round_ in parts:
        ranks = [
            _rank_requests(recall, workload.rows((split,), (rank,), (round_,)), rank, full_len, bound_of)
            for rank in workload.manifest.ranks
        ]
        for request in _ordered(ranks, sending, split):
            if sending.first_rank is None or split.primes:
                yield request
                continue
            yield request._replace(dp_rank=(sending.first_rank + turn) % workload.manifest.dp_ranks)
            turn += 1


def file_requests(
    path: Path,
    sending: Sending,
    *,
    dp_ranks: int | None,
    encoding: Callable[[], Encoding],
    text_as: TextAs | None,
    reading: Reading,
) -> Iterator[Request]:
    """Yield the requests of a JSONL file; WlgenError lists the lines that are not requests.

    dp_ranks: how many ranks there are; None: as many as the file names. encoding: returns the encoding of
    texts, and is called only if a row has text. text_as: how to read a text. reading: notes how the file
    was read.
    """
    first = sending.first_rank if dp_ranks is not None else None
    read = read_requests(path, dp_ranks, encoding, first_rank=first, text_as=text_as, reading=reading)
    if sending.order == "interleaved":
        by_rank: dict[int, list[Request]] = {}
        for request in read:
            by_rank.setdefault(request.dp_rank, []).append(request)
        read = _ordered([iter(by_rank[rank]) for rank in sorted(by_rank)], sending, "")
    elif sending.order == "shuffled":
        read = _ordered([read], sending, "")
    yield from read


def _rank_requests(
    recall: Recall,
    rows: Iterator[Row],
    rank: int,
    full_len: int,
    bound_of: Callable[[str | None], Bound],
) -> Iterator[Request]:
    for number, row in enumerate(rows):
        if row.dp_rank != rank:
            expected = f"rows of rank {rank} in its file"
            raise error(f"row {row.id}", expected=expected, found=f"dp_rank {row.dp_rank}")
        ids = recall.ids(row)
        if row.split.primes and len(ids) < full_len:
            ids = _lengthened(ids, row, full_len, number)
        yield Request(
            id=row.id,
            dp_rank=rank,
            ids=ids,
            output_len=row.output_len,
            split=row.split,
            overlaps=row.split.measured,
            promised=promised(row, bound_of(row.request_class)),
            bound=limits(row, bound_of(row.request_class)),
        )


def promised(row: Row | Promised, bound: Bound) -> tuple[int, int]:
    """Return the least and most that keep a row's promise.

    Rows of a zero class share only the framing head, which the first row of an empty rank does not find.
    """
    return (row.cached_len if bound.max_tokens is None else 0), row.cached_len


def limits(row: Row | Promised, bound: Bound) -> tuple[int, int] | None:
    """Return the bound of a check or formal row."""
    return None if row.split.primes else (bound.least(row.prompt_len), bound.most(row.prompt_len))


def _lengthened(ids: Ids, row: Row, full_len: int, number: int) -> Ids:
    """Return a seed's shared prefix, filled up to full_len with tokens that no other row has."""
    start = _OWN + number * full_len
    own = np.arange(start, start + full_len - row.shared_len, dtype=np.uint32)
    return np.concatenate((ids[: row.shared_len], own))


def _full_len(workload: Workload) -> int:
    """Return the greatest prompt_len of a rank's formal rows: what a seed of full length has."""
    rank = workload.manifest.ranks[0]
    return max(row.prompt_len for row in workload.rows(MEASURED, (rank,)))


def _ordered(ranks: Sequence[Iterator[Request]], sending: Sending, split: str) -> Iterator[Request]:
    if sending.order == "interleaved":
        for turn in zip_longest(*ranks):
            yield from (request for request in turn if request is not None)
        return
    in_turn = chain.from_iterable(ranks)
    if sending.order == "file":
        yield from in_turn
        return
    held = list(in_turn)
    for index in permutation(order(sending.order_seed, split), len(held)):
        yield held[index]
