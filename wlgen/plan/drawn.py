"""The population: rows drawn from a spec's classes, and the seeds and checks that their prefixes need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from wlgen import streams
from wlgen.encodings import Framing
from wlgen.plan.conversation import Conversation
from wlgen.plan.ordinals import Numbering
from wlgen.plan.predict import Predictor
from wlgen.plan.priming import Primed, proved, seeded
from wlgen.plan.request_class import RequestClass
from wlgen.plan.rows import RowPlan
from wlgen.plan.single_turn import SingleTurns
from wlgen.plan.table import Column, Entry, Table, tabulate
from wlgen.spec.arrivals import timestamps
from wlgen.spec.model import Spec
from wlgen.spec.splits import PerPrefix
from wlgen.workload.splits import BEFORE, SPLITS, Split


class Population:
    """Rows drawn from the classes of a spec. frame: the framing of a conversation's roles."""

    def __init__(
        self,
        spec: Spec,
        classes: tuple[RequestClass, ...],
        frame: Callable[[tuple[str, ...]], Framing],
        *,
        dense: bool = False,
    ) -> None:
        self._spec = spec
        self.classes = classes
        self._frame = frame
        self._dense = dense

    @property
    def chained(self) -> bool:
        """Whether a message of some row may have more than one segment: a prefix, and more behind it."""
        return any(of.chain for of in self.classes)

    def reuse(self) -> tuple[Column, Column, Column]:
        """Return the class, prompt_len and cached_len of each formal row, columns of shape (rows,)."""
        if self._predicted is not None:
            rows = (row for rank in range(self._spec.dp_ranks) for row in self.rows(Split.FORMAL, rank, 0))
            found = np.array([(row.task, row.prompt_len, row.cached_len) for row in rows], dtype=np.int64)
            return found[:, 0], found[:, 1], found[:, 2]
        table = self.table
        framing = np.array([of.framing.tokens for of in self.classes])
        cached_len = table.cached_len.copy()
        cached_len[list(self._coldest)] = 0
        return table.request_class, table.body_len + framing[table.request_class], cached_len

    @cached_property
    def table(self) -> Table:
        """The integers of the formal rows."""
        return tabulate(self._spec, self.classes)

    @cached_property
    def _times(self) -> list[int] | None:
        """The sending time of each row n in milliseconds.

        Times go to rows in the order of generation, so that a set that grows keeps them. In another order
        of rows they go to the first row of each rank's file, then to the second row of each, and so on.
        """
        arrivals, session = self._spec.arrivals, self._spec.requests[0].session
        if arrivals is None and (session is None or session.think_ms is None):
            return None
        table = self.table
        order = np.arange(len(table.rank))
        if self._spec.order != "generated":
            at = np.concatenate([np.arange(len(of_rank)) for of_rank in table.orders])
            order = np.concatenate(table.orders)[np.argsort(at, kind="stable")]
        firsts = order[table.turn[order] == 0]
        stream = streams.arrivals(self._spec.random_seed)
        starts = timestamps(arrivals, stream, len(firsts)) if arrivals else [0] * len(firsts)
        of_session = dict(zip(table.session[firsts].tolist(), starts, strict=True))
        think = session.think_ms or 0 if session else 0
        turns = zip(table.session.tolist(), table.turn.tolist(), strict=True)
        return [of_session[s] + t * think for s, t in turns]

    def count(self, split: Split, rank: int, round_: int) -> int:
        """Return the rows of a split on one rank in one round."""
        if split.measured:
            return len(self.table.orders[rank])
        here = split.each_round or round_ == 0
        return self._spec.splits.per_rank(split) * len(self._primed(split, rank)) if here else 0

    def rows(self, split: Split, rank: int, round_: int) -> Iterator[RowPlan]:
        """Yield the rows of a split on one rank in one round, in the order of their file."""
        if split.measured:
            for entry in self.table.entries(self.table.orders[rank]):
                yield self._formal(entry, round_)
        elif split.each_round or round_ == 0:
            yield from self._seeds(split, rank) if split.primes else self._like_formal(split, rank, round_)

    def _is_zero(self, task: int) -> bool:
        return self.classes[task].bound.max_tokens is not None

    def _is_first_file(self, split: Split, rank: int, round_: int) -> bool:
        """Return whether a rank's cache is empty when it gets the first row of this file."""
        earlier = SPLITS[: SPLITS.index(split)]
        return round_ == 0 and not split.primes and all(self.count(s, rank, 0) == 0 for s in earlier)

    @cached_property
    def _coldest(self) -> set[int]:
        """The numbers n of formal rows of zero classes that are the first row of all on their rank.

        With pages of 1 every later row of a zero set finds the framing head cached, 2 tokens for DeepSeek-V4;
        the first row of a rank finds nothing.
        """
        orders = enumerate(self.table.orders)
        firsts = [int(o[0]) for rank, o in orders if len(o) and self._is_first_file(Split.FORMAL, rank, 0)]
        return {n for n in firsts if self._is_zero(int(self.table.request_class[n]))}

    def ordinals(self) -> tuple[int, int]:
        """Return the least and the greatest ordinal that a segment may have."""
        most = int(self.table.number.max(initial=0))
        return self.numbering.least(most), most

    @cached_property
    def numbering(self) -> Numbering:
        """The numbering of streams, which follows from the spec's shape and not from how many rows it has."""
        ranks, classes, per_rank = self._spec.dp_ranks, len(self.classes), self._spec.splits.per_rank
        sizes = {"all": 1, "rank": ranks}
        counts = [sizes.get(level.shared_by, level.groups or 1) for of in self.classes for level in of.levels]
        return Numbering(
            rounds=self._spec.rounds,
            branches=max(counts, default=0) * classes,
            counts={split: per_rank(split) * classes * ranks for split in BEFORE},
            dense=self._dense,
        )

    @cached_property
    def _turns(self) -> SingleTurns:
        return SingleTurns(self.classes, self.numbering)

    def densely(self) -> Population:
        """Return the same rows, with seeds and checks numbered so that no first token stays unused."""
        return Population(self._spec, self.classes, self._frame, dense=True)

    def _primed(self, split: Split, rank: int) -> list[Primed]:
        """Return the prefixes that a rank's seeds prime, or of which it has checks."""
        held = self._primed_of
        if (split, rank) not in held:
            find = seeded if split.primes else proved
            held[split, rank] = find(self.table, rank, self.classes)
        return held[split, rank]

    @cached_property
    def _primed_of(self) -> dict[tuple[Split, int], list[Primed]]:
        return {}

    def _formal(self, entry: Entry, round_: int) -> RowPlan:
        """Return a formal row."""
        if self._predicted is None:
            cached_len, recorded = entry.cached_len, None
            if round_ == 0 and entry.n in self._coldest:
                cached_len = 0
        else:
            cached_len, recorded = self._predicted[entry.n]
        row = self._first_turn(entry, round_, cached_len)
        of = self.classes[entry.request_class]
        if of.requests.session is None:
            return row
        return replace(self._turn(row, of, entry.n), cached_len_recorded=recorded)

    def _first_turn(self, entry: Entry, round_: int, cached_len: int) -> RowPlan:
        """Return a formal row; for a later turn of a session, the row that the first turn would be."""
        path = self.table.paths[entry.path]
        return self._turns.row(
            self.classes[entry.request_class],
            path,
            entry.shared_len,
            split=Split.FORMAL,
            rank=entry.rank,
            index=entry.place,
            round_=round_,
            ordinal=self.numbering.formal(entry.number, round_),
            group=self._turns.group_name(path),
            body_len=entry.body_len,
            cached_len=cached_len,
            output_len=entry.output_len,
            passage_len=entry.output_len,
            timestamp_ms=self._times[entry.n] if self._times else None,
        )

    def _turn(self, row: RowPlan, of: RequestClass, n: int) -> RowPlan:
        """Return a turn of a conversation, given its first turn: all earlier messages, and one more."""
        conversation = Conversation(of, self._frame)
        session, turn = int(self.table.session[n]), int(self.table.turn[n])
        messages = conversation.messages(
            row.messages, turn, partial(streams.message, row.dp_rank, session, row.round)
        )
        return replace(
            row,
            messages=messages,
            prompt_len=conversation.prompt_len(messages),
            shared_len=row.shared_len if turn == 0 else conversation.shared_len(messages),
            session=f"s{session:06d}",
            turn=turn,
        )

    @cached_property
    def _predicted(self) -> list[tuple[int, int]] | None:
        """For each row n, the tokens it finds cached without and with recorded answers.

        None for a set in which each row finds its whole prefix. Other rows, in a cold set or in later turns,
        find what the rows before them have left.
        """
        requests = self._spec.requests
        if not (requests[0].session or any(r.cached.cold for r in requests)):
            return None
        found: dict[int, tuple[int, int]] = {}
        for rank, order in enumerate(self.table.orders):
            plain, recorded = (Predictor(self._spec.cache, self._frame) for _ in range(2))
            for seed in self.rows(Split.SEED, rank, 0):
                plain.send(seed)
                recorded.send(seed)
            for entry in self.table.entries(order):
                of = self.classes[entry.request_class]
                row, session = self._first_turn(entry, 0, 0), of.requests.session
                row = self._turn(row, of, entry.n) if session else row
                found[entry.n] = plain.send(row), recorded.send(row, session.assistant_len if session else 0)
        return [found[n] for n in range(len(found))]

    def _like_formal(self, split: Split, rank: int, round_: int) -> Iterator[RowPlan]:
        """Yield a rank's checks. Each has the shape of its prefix's deepest formal row, and its own text."""
        table = self.table
        coldest = self._is_first_file(split, rank, round_)
        for index, number, (path, shared_len, n), asked in self._each(split, rank, round_):
            of, body_len = self.classes[path[0]], int(table.body_len[n])
            finds_none = coldest and index == 0 and self._is_zero(of.number)
            yield self._turns.row(
                of,
                path,
                shared_len,
                split=split,
                rank=rank,
                index=index,
                round_=round_,
                ordinal=self.numbering.of(split, number, round_),
                group=self._turns.group_name(path),
                body_len=body_len,
                cached_len=0 if finds_none else of.cached_len(body_len, shared_len),
                output_len=asked.output_len,
                passage_len=int(table.output_len[n]),
            )

    def _seeds(self, split: Split, rank: int) -> Iterator[RowPlan]:
        """Yield a rank's seeds: a prefix and just enough behind it, or prompts of their class's full length.

        A seed finds cached what earlier seeds have left: earlier seeds of its prefix, and prefixes above it.
        """
        table, seed = self.table, self._spec.splits.seed
        held = Predictor(self._spec.cache, self._frame)
        for index, number, (path, shared_len, n), asked in self._each(split, rank, 0):
            of = self.classes[path[0]]
            full = seed is not None and seed.shape == "full"
            short_len = of.seed_len(shared_len) - of.framing.tokens
            row = self._turns.row(
                of,
                path,
                shared_len,
                split=split,
                rank=rank,
                index=index,
                round_=0,
                ordinal=self.numbering.of(split, number),
                group=self._turns.group_name(table.paths[table.path[n]]),
                body_len=int(table.body_len[n]) if full else short_len,
                cached_len=0,
                output_len=asked.output_len,
                passage_len=int(table.output_len[n]),
            )
            found = held.send(row)
            yield replace(row, cached_len=found) if found else row

    def _each(self, split: Split, rank: int, round_: int) -> Iterator[tuple[int, int, Primed, PerPrefix]]:
        """Yield (index, number, prefix, what the spec asks) of each row of a split that it counts by prefix.

        index: its place in the rank's file. number: its number among such rows of all ranks and classes, as
        `Numbering.of` takes it. With 2 seeds a rank the first prefix has the indices 0 and 1.
        """
        asked = self._spec.splits.of(split)
        if asked is None:
            return
        primed = self._primed(split, rank)
        for index in range(self.count(split, rank, round_)):
            which, turn = divmod(index, asked.per_rank)
            of = self.classes[primed[which].path[0]]
            number = (turn * len(self.classes) + of.number) * self._spec.dp_ranks + rank
            yield index, number, primed[which], asked
