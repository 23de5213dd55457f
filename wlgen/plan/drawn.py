"""The population: rows drawn from a spec's classes, with the seeds and checks that their prefixes need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial

from wlgen import streams
from wlgen.encodings import Framing
from wlgen.plan.conversation import Conversation
from wlgen.plan.ordinals import Numbering
from wlgen.plan.predict import Predictor
from wlgen.plan.priming import Primed, proved, seeded
from wlgen.plan.request_class import RequestClass
from wlgen.plan.rows import MessagePlan, RowPlan, Segment, row_id
from wlgen.plan.table import Path, Table, tabulate
from wlgen.spec.arrivals import timestamps
from wlgen.spec.model import Spec
from wlgen.workload.splits import SPLITS, Split


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
        self._prefixes: dict[tuple[Path, int], Segment] = {}
        self._names: dict[Path, str] = {}

    @property
    def chained(self) -> bool:
        """Whether a message of any row may have more than one segment: a prefix, and more behind it."""
        return any(of.chain for of in self.classes)

    def reuse(self) -> Iterator[tuple[int, int, int]]:
        """Yield the class, prompt_len and cached_len of each formal row."""
        if self._predicted is not None:
            for rank in range(self._spec.dp_ranks):
                yield from ((r.task, r.prompt_len, r.cached_len) for r in self.rows(Split.FORMAL, rank, 0))
            return
        table = self.table
        columns = (table.request_class.tolist(), table.body_len.tolist(), table.cached_len.tolist())
        for n, (number, body_len, cached_len) in enumerate(zip(*columns, strict=True)):
            yield number, self.classes[number].prompt_len(body_len), 0 if n in self._coldest else cached_len

    @cached_property
    def table(self) -> Table:
        """The integers of the formal rows."""
        return tabulate(self._spec, self.classes)

    @cached_property
    def _times(self) -> list[int] | None:
        """Milliseconds of each row, by n, in the order of generation, so that growth keeps them.

        In another order, rows at the same place of their files follow one another.
        """
        arrivals, session = self._spec.arrivals, self._spec.requests[0].session
        if arrivals is None and (session is None or session.think_ms is None):
            return None
        orders = self.table.orders
        sent = sorted((at, rank, n) for rank, order in enumerate(orders) for at, n in enumerate(order))
        order = range(len(sent)) if self._spec.order == "generated" else [n for _, _, n in sent]
        firsts = [n for n in order if self.table.turn[n] == 0]
        stream = streams.arrivals(self._spec.random_seed)
        starts = timestamps(arrivals, stream, len(firsts)) if arrivals else [0] * len(firsts)
        of_session = {int(self.table.session[n]): time for n, time in zip(firsts, starts, strict=True)}
        think = session.think_ms or 0 if session else 0
        turns = zip(self.table.session.tolist(), self.table.turn.tolist(), strict=True)
        return [of_session[s] + t * think for s, t in turns]

    def count(self, split: Split, rank: int, round_: int) -> int:
        """Return the rows of a split on one rank in one round."""
        if split.measured:
            return len(self.table.orders[rank])
        here = split.each_round or round_ == 0
        return self._per_rank(split) * len(self._primed(split, rank)) if here else 0

    def _per_rank(self, split: Split) -> int:
        splits = self._spec.splits
        return splits.check.per_rank if split is Split.CHECK else splits.seed.per_rank if splits.seed else 0

    def rows(self, split: Split, rank: int, round_: int) -> Iterator[RowPlan]:
        """Yield the rows of a split on one rank in one round, in the order of their file."""
        if split.measured:
            for n in self.table.orders[rank]:
                yield self._formal(n, round_)
        elif split.each_round or round_ == 0:
            primed, count = self._primed(split, rank), self.count(split, rank, round_)
            # Seeds find what the seeds before them have left: other turns of their prefix, and its ancestors.
            held = Predictor(self._spec.cache, self._frame) if split.primes and count > 1 else None
            for index in range(count):
                which, turn = divmod(index, self._per_rank(split))
                make = self._seed if split.primes else self._check
                row = make(primed[which], turn, index, rank, round_)
                if held is not None:
                    row = replace(row, cached_len=held.send(row))
                elif index == 0 and self._is_first_file(split, rank, round_) and self._is_zero(row.task):
                    row = replace(row, cached_len=0)
                yield row

    def _is_zero(self, task: int) -> bool:
        return self.classes[task].bound.max_tokens is not None

    def _is_first_file(self, split: Split, rank: int, round_: int) -> bool:
        """Return whether a rank's cache is empty when it gets the first row of this file."""
        earlier = SPLITS[: SPLITS.index(split)]
        return round_ == 0 and not split.primes and all(self.count(s, rank, 0) == 0 for s in earlier)

    @cached_property
    def _coldest(self) -> set[int]:
        """The formal rows of zero classes that are the first which their rank gets, by n.

        With pages of 1 every later row of a zero set finds the framing head, 2 tokens of DeepSeek-V4; the
        first row of a rank finds none.
        """
        firsts = (
            order[0]
            for rank, order in enumerate(self.table.orders)
            if len(order)
            if self._is_first_file(Split.FORMAL, rank, 0)
        )
        return {n for n in firsts if self._is_zero(int(self.table.request_class[n]))}

    def ordinals(self) -> tuple[int, int]:
        """Return bounds of every segment's ordinal, the least and the greatest."""
        most = int(max(self.table.number, default=0))
        return self.numbering.least(most), most

    @cached_property
    def numbering(self) -> Numbering:
        """How streams are numbered, from the spec alone, so that growth moves nothing."""
        ranks, classes = self._spec.dp_ranks, len(self.classes)
        sizes = {"all": 1, "rank": ranks}
        counts = [sizes.get(level.shared_by, level.groups or 1) for of in self.classes for level in of.levels]
        return Numbering(
            rounds=self._spec.rounds,
            branches=max(counts, default=0) * classes,
            seeds=self._per_rank(Split.SEED) * classes * ranks,
            checks=self._per_rank(Split.CHECK) * classes * ranks,
            dense=self._dense,
        )

    def densely(self) -> Population:
        """Return the same rows, whose seeds and checks leave no first token unused."""
        return Population(self._spec, self.classes, self._frame, dense=True)

    def _primed(self, split: Split, rank: int) -> list[Primed]:
        """Return the prefixes that a rank's seeds prime, or its checks prove."""
        held = self._primed_of
        if (split, rank) not in held:
            find = seeded if split.primes else proved
            held[split, rank] = find(self.table, rank, self.classes)
        return held[split, rank]

    @cached_property
    def _primed_of(self) -> dict[tuple[Split, int], list[Primed]]:
        return {}

    def _formal(self, n: int, round_: int) -> RowPlan:
        """Return a formal row."""
        row = self._first_turn(n, round_)
        of = self.classes[row.task]
        if of.requests.session is not None:
            row = self._turn(row, of, n)
        if self._predicted is None:
            return replace(row, cached_len=0) if round_ == 0 and n in self._coldest else row
        cached_len, recorded = self._predicted[n]
        return replace(row, cached_len=cached_len, cached_len_recorded=recorded if row.session else None)

    def _first_turn(self, n: int, round_: int) -> RowPlan:
        """Return a formal row, or what it is in the first turn of its session."""
        table, index, rank = self.table, int(self.table.place[n]), int(self.table.rank[n])
        of = self.classes[int(table.request_class[n])]
        body_len, shared_len = int(table.body_len[n]), int(table.shared_len[n])
        own = Segment(
            stream=streams.row(Split.FORMAL, rank, index, round_),
            ordinal=self.numbering.formal(int(table.number[n]), round_),
            tokens=of.own_len(body_len, shared_len),
            kind="own",
        )
        return RowPlan(
            id=row_id(Split.FORMAL, rank, index, round_),
            split=Split.FORMAL,
            dp_rank=rank,
            group=self.group_name(table.paths[n]),
            round=round_,
            messages=self._messages(of, table.paths[n], shared_len, own),
            prompt_len=of.prompt_len(body_len),
            shared_len=shared_len,
            cached_len=int(table.cached_len[n]),
            output_len=int(table.output_len[n]),
            request_class=of.name or None,
            timestamp_ms=self._times[n] if self._times else None,
            passage_len=int(table.output_len[n]),
            task=of.number,
            bound=of.bound,
        )

    def _turn(self, row: RowPlan, of: RequestClass, n: int) -> RowPlan:
        """Return a turn of a conversation, given its first: all messages before it, and one more."""
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
        """For each row by n, what it finds cached without and with recorded answers; None: its whole prefix.

        Rows that nothing primes for (a cold start, later turns) find what the rows before them have left.
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
            for n in order:
                row = self._first_turn(n, 0)
                session = self.classes[row.task].requests.session
                row = self._turn(row, self.classes[row.task], n) if session else row
                found[n] = plain.send(row), recorded.send(row, session.assistant_len if session else 0)
        return [found[n] for n in range(len(found))]

    def _check(self, primed: Primed, turn: int, index: int, rank: int, round_: int) -> RowPlan:
        """Return a check: the formal row that is deepest in its prefix, with a text of its own."""
        formal = self._first_turn(primed.row, round_)
        of = self.classes[primed.path[0]]
        number = (turn * len(self.classes) + of.number) * self._spec.dp_ranks + rank
        body_len = int(self.table.body_len[primed.row])
        own = Segment(
            stream=streams.row(Split.CHECK, rank, index, round_),
            ordinal=self.numbering.check(number, round_),
            tokens=of.own_len(body_len, primed.shared_len),
            kind="own",
        )
        return replace(
            formal,
            id=row_id(Split.CHECK, rank, index, round_),
            split=Split.CHECK,
            dp_rank=rank,  # not that of the row where the rank has none
            messages=self._messages(of, primed.path, primed.shared_len, own),
            prompt_len=of.prompt_len(body_len),
            shared_len=primed.shared_len,
            cached_len=of.cached_len(body_len, primed.shared_len),
            output_len=self._spec.splits.check.output_len,
            session=None,
            turn=None,
            timestamp_ms=None,
        )

    def _seed(self, primed: Primed, turn: int, index: int, rank: int, round_: int) -> RowPlan:
        """Return a seed: the prefix and just enough behind it, or a prompt of the class's full length."""
        seed, of = self._spec.splits.seed, self.classes[primed.path[0]]
        full = seed is not None and seed.shape == "full"
        prompt_len = (
            of.prompt_len(int(self.table.body_len[primed.row])) if full else of.seed_len(primed.shared_len)
        )
        number = (turn * len(self.classes) + of.number) * self._spec.dp_ranks + rank
        own = Segment(
            stream=streams.row(Split.SEED, rank, index, round_),
            ordinal=self.numbering.seed(number),
            tokens=of.own_len(prompt_len - of.framing.tokens, primed.shared_len),
            kind="own",
        )
        return RowPlan(
            id=row_id(Split.SEED, rank, index, round_),
            split=Split.SEED,
            dp_rank=rank,
            group=self.group_name(self.table.paths[primed.row]),
            round=round_,
            messages=self._messages(of, primed.path, primed.shared_len, own),
            prompt_len=prompt_len,
            shared_len=primed.shared_len,
            cached_len=0,
            output_len=1,
            request_class=of.name or None,
            passage_len=int(self.table.output_len[primed.row]),
            task=of.number,
            bound=of.bound,
        )

    def _messages(
        self, of: RequestClass, path: Path, shared_len: int, own: Segment
    ) -> tuple[MessagePlan, ...]:
        """Return the messages of a single turn: the chain of prefixes, then the row's own part."""
        left, segments = shared_len - of.offset, []
        for depth, tokens in enumerate(of.chain, 2):
            if left <= 0:
                break
            take = left if tokens is None else min(left, tokens)
            segments.append(self._prefix(of, path[:depth], take))
            left -= take
        if not of.in_system:
            return (MessagePlan(role="user", segments=(*segments, own)),)
        return (
            MessagePlan(role="system", segments=tuple(segments)),
            MessagePlan(role="user", segments=(own,)),
        )

    def _prefix(self, of: RequestClass, path: Path, tokens: int) -> Segment:
        key = (path, tokens)
        if key not in self._prefixes:
            self._prefixes[key] = self._make_prefix(of, path, tokens)
        return self._prefixes[key]

    def _make_prefix(self, of: RequestClass, path: Path, tokens: int) -> Segment:
        groups = path[1:]
        first = groups[0] * len(self.classes) + of.number
        return Segment(
            stream=streams.prefix(of.name, groups),
            ordinal=self.numbering.branch(groups[-1] if len(groups) > 1 else first),
            tokens=tokens,
            kind="prefix",
        )

    def group_name(self, path: Path) -> str:
        """Return the name of a prefix, as rows carry it: all, r03, g0007, or a chain of them."""
        if path not in self._names:
            self._names[path] = self._make_name(path)
        return self._names[path]

    def _make_name(self, path: Path) -> str:
        of = self.classes[path[0]]
        letters = {"all": "all", "rank": "r{:02d}", "group": "g{:04d}"}
        names = [letters[level.shared_by].format(g) for level, g in zip(of.levels, path[1:], strict=False)]
        return "/".join(([of.name] if of.name else []) + (names or ["none"]))
