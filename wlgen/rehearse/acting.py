"""A fault of faults/ on a live server: it treats each known row as the planned run with the fault does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wlgen.cache.made_up import MadeUp
from wlgen.cache.rule import CacheRule, Ids
from wlgen.errors import error
from wlgen.faults import After, Asked, Chain, Run
from wlgen.faults._asked import WantedFault, told


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """What happens to one row. rank: the cache that it meets. keeps: whether its prompt stays there.

    asked: the request as the fault makes it. sent: the chain that the client sends. flushed: ranks that are
    emptied before it, None in it for all. earlier: requests that the server serves before it, such as a whole
    first sending of the set before its first formal row.
    """

    asked: Asked
    sent: Chain
    rank: int
    keeps: bool = True
    flushed: tuple[int | None, ...] = ()
    earlier: tuple[Asked, ...] = ()


class Acting:
    """The treatment of each row, by its id. Modified as rows come: what stands before a row happens once."""

    def __init__(self, wanted: WantedFault, planned: Run) -> None:
        self.words = wanted.words
        self._run = wanted.act(planned)
        self._rows: dict[str, Treatment] = {}
        planned_by_id = {asked.id: asked for asked in planned.asked}
        self._made_up = MadeUp()
        rows = [a for a in self._run.asked if (a.row is None) == (planned_by_id[a.id].row is None)]
        if self._run.in_flight != planned.in_flight or _reorders(rows, planned):
            expected = "a fault that a server can act"
            remedy = f"`wlgen simulate DIR --fault {wanted.text}` predicts it."
            found = f"{wanted.fault.name}, which changes what the client sends"
            raise error("--fault", expected=expected, found=found, remedy=remedy)
        earlier: list[Asked] = []
        flushed: list[int | None] = []
        for place, asked in enumerate(self._run.asked):
            flushed += [rank for at, rank in sorted(self._run.flushes, key=str) if at == place]
            if asked.row is None and planned_by_id[asked.id].row is not None:
                earlier.append(asked)
                continue
            self._rows[asked.id] = Treatment(
                asked=asked,
                sent=planned_by_id[asked.id].chain,
                rank=asked.rank,
                keeps=asked.keeps,
                flushed=tuple(flushed),
                earlier=tuple(earlier),
            )
            flushed, earlier = [], []
        for asked in planned.asked:  # a seed that the run lacks is answered and leaves nothing
            lacking = Treatment(asked=asked, sent=asked.chain, rank=asked.rank, keeps=False)
            self._rows.setdefault(asked.id, lacking)

    @property
    def rule(self) -> CacheRule:
        """The rule by which the server reuses prefixes."""
        return self._run.rule

    @property
    def capacity(self) -> int | None:
        """Tokens that a rank's cache holds; None for no limit."""
        return self._run.capacity

    @property
    def ranks(self) -> int:
        """How many caches the server needs."""
        return 1 + max(each.rank for each in self._rows.values())

    def find(self, row_id: str | None) -> Treatment | None:
        """Return the treatment of a row; None if the planned run does not know it."""
        return self._rows.get(row_id or "")

    def take(self, row_id: str | None) -> Treatment | None:
        """Return the treatment of a row that comes; None if the planned run does not know it."""
        found = self._rows.get(row_id or "")
        if found is not None and (found.flushed or found.earlier):
            self._rows[found.asked.id] = replace(found, flushed=(), earlier=())
        return found

    def met(self, treatment: Treatment, prompt: Ids) -> Ids:
        """Return the ids that meet the cache, shape (tokens,), of a prompt that the client sends.

        Tokens that the fault takes from the prompt are the prompt's own; those that it adds are made up.
        """
        asked = treatment.asked
        if asked.chain == treatment.sent:
            return prompt
        begins: dict[object, tuple[int, int]] = {}
        at = 0
        for stream, tokens in treatment.sent:
            begins[stream] = at, at + tokens
            at += tokens
        parts = []
        for stream, tokens in asked.chain:
            whole = stream.stream if isinstance(stream, After) else stream
            start, stop = begins.get(whole, (0, 0))
            start = stop - tokens if isinstance(stream, After) else start
            known = prompt[start : min(stop, start + tokens)]
            more = self._made_up.run(("more", stream), tokens - len(known))
            parts += [known, more] if len(more) else [known]
        return np.concatenate(parts)

    def told(self, treatment: Treatment, cached_len: int) -> int | None:
        """Return the figure that the client is told."""
        return told(self._run, treatment.asked, cached_len)


def _reorders(rows: Sequence[Asked], planned: Run) -> bool:
    kept = {asked.id for asked in rows}
    return [asked.id for asked in rows] != [asked.id for asked in planned.asked if asked.id in kept]
