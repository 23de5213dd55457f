"""Proof by ceiling: what two scrapes of counters prove of each request between them. Values in, values out.

A formal row that is sent once finds at most its planned cached_len: its own part is new to the server, and
the rule allows no more. So if the cached tokens of 640 rows sum to 640 x 118784, each row found exactly
118784: no row can be above its plan and hide another row below its plan. The proof needs conditions, and
checks each of them. If one does not hold, the audit names it, and the sum proves nothing of a single row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wlgen.audit.findings import Promised
from wlgen.audit.moved import Moved, movement
from wlgen.errors import counted
from wlgen.witnesses import Scrape

UNCOUNTED = "not counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of the proof: its name, whether it holds, and what was seen."""

    name: str
    holds: bool
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """Cached tokens that a sum lacks, and how many rows must have fallen short.

    rank: None for the whole server. least, most: bounds on the number of rows; most is None if a row may be
    above its plan, since then any number may be below.
    """

    rank: int | None
    planned: int
    observed: int
    least: int
    most: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """What the counters prove of the rows that were sent between the two scrapes.

    kept: whether each row found exactly its plan. comparable: whether the counters count exactly these rows,
    so that their sum may be compared with the plan; if not, the audit states neither proof nor shortfall.
    """

    conditions: tuple[Condition, ...]
    moved: Moved
    planned: int
    observed: int | None
    comparable: bool
    kept: bool
    short: tuple[Shortfall, ...] = ()

    @property
    def failed(self) -> list[Condition]:
        """The conditions that do not hold."""
        return [condition for condition in self.conditions if not condition.holds]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRows:
    """The rows that were sent between the two scrapes, as the result files show them.

    rows: the rows that have a result. spoilt: why they are not "each row once, successful, in one attempt".
    quantum: the rule's hit quantum. prompts: by row id, the prompt tokens that the server counted.
    at_other_time: in words, that the results' own times lie outside of the scrapes; "" if they do not.
    """

    rows: Sequence[Promised]
    spoilt: Sequence[str] = ()
    set_sha256: str = ""
    quantum: int = 1
    prompts: Mapping[str, int] = field(default_factory=dict)
    at_other_time: str = ""


def prove(sent: SentRows, before: Scrape, after: Scrape) -> Ceiling:
    """Return what the counters of two scrapes prove of the rows sent between them."""
    moved = movement(before.servers, after.servers)
    planned = sum(row.cached_len for row in sent.rows)
    observed = moved.total.get("cached_tokens")
    of_these = list(_of_these_rows(sent, moved))
    comparable = bool(sent.rows) and observed is not None and all(c.holds for c in of_these)
    resting = Condition(
        name="the servers rested at both scrapes",
        holds=before.quiet and after.quiet,
        seen="two readings a second apart were equal and nothing ran"
        if before.quiet and after.quiet
        else f"{'BEFORE' if not before.quiet else 'AFTER'} was read while requests ran or counters moved",
    )
    ceiling = [
        resting,
        *_history(sent, before),
        *_no_second_try(moved),
        _no_outer_store(moved),
        *_of_the_plan(sent),
    ]
    bounded = comparable and all(c.holds for c in ceiling)
    # A sum of 0 means that each row found 0, whatever was served before.
    nothing = comparable and resting.holds and observed == planned == 0
    return Ceiling(
        conditions=(*of_these, *ceiling),
        moved=moved,
        planned=planned,
        observed=observed,
        comparable=comparable,
        kept=nothing or (bounded and observed == planned),
        short=tuple(_shortfalls(sent, moved, observed, bounded=bounded)) if comparable else (),
    )


def fewest_short(plans: Sequence[int], lack: int) -> int:
    """Return the fewest rows that together can lack `lack` tokens: those with the greatest plans."""
    count = 0
    for plan in sorted(plans, reverse=True):
        if lack <= 0:
            break
        lack -= plan
        count += 1
    return count


def _of_these_rows(sent: SentRows, moved: Moved) -> Iterator[Condition]:
    """Yield the conditions under which the counters count exactly these rows."""
    spoilt = list(sent.spoilt) if sent.rows else ["no results: nothing says which rows were sent"]
    yield Condition(
        name="the results show each row once, successful, in one attempt",
        holds=not spoilt,
        seen="; ".join(spoilt) or f"{counted(len(sent.rows), 'row')}, each once",
    )
    if not sent.rows:
        return
    role = "prefill side" if moved.role == "prefill" else "servers"
    yield Condition(
        name="both scrapes are of the servers that hold the prefix cache",
        holds=not moved.changed,
        seen=moved.changed or f"{role} of both",
    )
    yield Condition(
        name="the rows were sent between the two scrapes",
        holds=not sent.at_other_time,
        seen=sent.at_other_time or "no time of the results says otherwise",
    )
    again = [*_restarts(moved), *(f"{name} went down" for name in moved.fell)]
    yield Condition(
        name="no server restarted",
        holds=not again,
        seen="; ".join(again) or "the processes are the same",
    )
    prompts = sum(sent.prompts.get(row.id, row.prompt_len) for row in sent.rows)
    yield _counted("requests", "requests served", moved, len(sent.rows))
    yield _counted("prompt_tokens", "prompt tokens served", moved, prompts)
    if "cached_tokens" not in moved.total:
        yield Condition(name="cached tokens are counted", holds=False, seen=UNCOUNTED)


def _restarts(moved: Moved) -> list[str]:
    """Return the servers that restarted, and those that may have, as nothing tells one start from another."""
    unknown = (f"{url} exports nothing that tells a restart" for url in moved.unknown)
    return [*(f"{url} restarted" for url in moved.restarted), *unknown]


def _counted(count: str, name: str, moved: Moved, expected: int) -> Condition:
    found = moved.total.get(count)
    seen = UNCOUNTED if found is None else f"{found:,} counted, {expected:,} of these rows"
    return Condition(name=f"{name} are those of these rows", holds=found == expected, seen=seen)


def _history(sent: SentRows, before: Scrape) -> Iterator[Condition]:
    """Yield whether BEFORE follows a flush after which only this set's seeds and checks were served.

    After an earlier run of the same rows their own parts are in the cache: a row may find more than planned.
    """
    name = "since the flush only this set's seeds and checks were served before the run"
    known = before.prepared
    if known is None:
        seen = "BEFORE does not say: `wlgen prepare` writes the scrape that does, counters-before.json"
        yield Condition(name=name, holds=False, seen=seen)
        return
    moved = movement(known.flushed, before.servers)
    wrong = []
    if known.set_sha256 != sent.set_sha256:
        wrong.append("BEFORE was taken for another set")
    wrong += [f"after the flush {words}" for words in _restarts(moved)]
    wrong += [words for words in (moved.changed,) if words]
    for count, expected in (("requests", known.requests), ("prompt_tokens", known.prompt_tokens)):
        if (found := moved.total.get(count)) != expected:
            shown = UNCOUNTED if found is None else f"{found:,}"
            wrong.append(f"{count.replace('_', ' ')}: {shown}, of its seeds and checks {expected:,}")
    wrong += _tries(moved)
    yield Condition(name=name, holds=not wrong, seen="; ".join(wrong) or f"{known.requests} seeds and checks")


def _no_second_try(moved: Moved) -> Iterator[Condition]:
    """Yield whether no request was tried twice: the second try would find the pages of the first."""
    wrong = _tries(moved)
    yield Condition(
        name="no request was aborted, retracted or preempted",
        holds=not wrong,
        seen="; ".join(wrong) or "none was",
    )


def _no_outer_store(moved: Moved) -> Condition:
    """Return whether no hit came from a store that a flush leaves as it was.

    A flush empties a server's device and host memory. A store below them (HiCache's storage, a connector's
    server) keeps what an earlier run of this set wrote there, and a row may then find its own part in it.
    """
    hits = {
        tier: max(moved.total.get(f"cached_{tier}", 0), moved.total.get(f"hit_{tier}", 0))
        for tier in ("storage", "external")
    }
    found = [f"{count:,} cached tokens came from the {tier} tier" for tier, count in hits.items() if count]
    return Condition(
        name="no hit came from a store that a flush does not empty",
        holds=not found,
        seen="; ".join(found) or "none is counted",
    )


def _tries(moved: Moved) -> list[str]:
    wrong = []
    for count in ("aborted", "retracted"):
        found = moved.total.get(count)
        if found is None:
            wrong.append(f"{count}: {UNCOUNTED}")
        elif found:
            wrong.append(f"{found} {count}")
    return wrong


def _of_the_plan(sent: SentRows) -> Iterator[Condition]:
    """Yield whether no row can find more cached tokens than planned."""
    wrong = []
    if loose := sum(not row.is_bounded for row in sent.rows):
        wrong.append(f"{loose} rows have no bound: they find what others leave")
    if turns := sum(row.session is not None for row in sent.rows):
        wrong.append(f"{turns} rows are turns of conversations, and find their own earlier turns")
    if sent.quantum == 1:
        wrong.append("at page size 1 rows whose own parts begin alike find a token more")
    if several := sum(1 for row in sent.rows if row.cached_len % sent.quantum):
        wrong.append(f"{several} rows are planned off the hit quantum of {sent.quantum}")
    yield Condition(
        name="no row can find more than its plan",
        holds=not wrong,
        seen="; ".join(wrong) or "each row's own part is new to the server",
    )


def _shortfalls(sent: SentRows, moved: Moved, observed: int | None, *, bounded: bool) -> Iterator[Shortfall]:
    """Yield where cached tokens are missing: each rank that lacks tokens, or else the whole sum."""
    if observed is None or observed >= sum(row.cached_len for row in sent.rows):
        return
    by_rank: dict[int, list[Promised]] = defaultdict(list)
    for row in sent.rows:
        by_rank[row.dp_rank].append(row)
    if _ranks_are_apart(by_rank, moved, observed):
        for rank, rows in sorted(by_rank.items()):
            yield from _shortfall(rank, rows, moved.cached_of(rank) or 0, sent.quantum, bounded=bounded)
        return
    yield from _shortfall(None, sent.rows, observed, sent.quantum, bounded=bounded)


def _shortfall(
    rank: int | None, rows: Sequence[Promised], observed: int, quantum: int, *, bounded: bool
) -> Iterator[Shortfall]:
    plans = [row.cached_len for row in rows]
    lack = sum(plans) - observed
    if lack > 0:
        most = min(sum(plan > 0 for plan in plans), lack // quantum) if bounded else None
        least = fewest_short(plans, lack)
        yield Shortfall(rank=rank, planned=sum(plans), observed=observed, least=least, most=most)


def _ranks_are_apart(by_rank: Mapping[int, Sequence[Promised]], moved: Moved, observed: int) -> bool:
    """Return whether the counters of each rank are those of the rows planned for it.

    SGLang's health probes add a few computed tokens to a rank, so a rank may count more than its prompts. A
    rank that counts fewer did not get its rows, and a rank with more cached tokens than planned got rows of
    another rank.
    """
    cached = {rank: moved.cached_of(rank) for rank in by_rank}
    if (
        any(count is None for count in cached.values())
        or sum(count or 0 for count in cached.values()) != observed
    ):
        return False
    for rank, rows in by_rank.items():
        prompt = moved.prompt_of(rank)
        if prompt is None or prompt < sum(row.prompt_len for row in rows):
            return False
        if (cached[rank] or 0) > sum(row.cached_len for row in rows):
            return False
        requests = moved.ranks[rank].get("requests")
        if requests is not None and requests != len(rows):
            return False
    return True
