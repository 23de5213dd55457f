"""Checks of a spec's keys against each other, made on keys that are valid alone; every problem at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from wlgen.pages import MOST_TOKENS, ceil_to, floor_to
from wlgen.spec.lengths import MOST_ROWS
from wlgen.spec.model import Ranks, Session
from wlgen.spec.prefix import Prefix
from wlgen.spec.splits import FormalSplit, SeedSplit, Splits
from wlgen.strict.problems import KeyPath, Problems
from wlgen.workload.bounds import Bound
from wlgen.workload.splits import BEFORE

T = TypeVar("T")
_SESSION = ("requests", "session")


def check(value: dict[str, Any], problems: Problems) -> None:
    """Add a problem for each contradiction between keys of a spec's mapping."""
    classes = list(_classes(value))
    if not classes:
        return
    _check_names(classes, problems)
    _check_seeds(value, classes, problems)
    formal = _valid(TypeAdapter(FormalSplit), value_at(value, ("splits", "formal")))
    ranks = _valid(TypeAdapter[int](Ranks), value_at(value, ("dp_ranks",), 1))
    if formal is None or ranks is None:
        return
    rows = formal.rows(ranks)
    _check_size(value, rows, ranks, problems)
    for path, of in classes:
        count = of.get("count")
        _check_groups(path, of, count if type(count) is int else rows, ranks, problems)
    if isinstance(value["requests"], list):
        _check_shares(classes, rows, problems)
    else:
        _check_session(value, classes[0][1], rows, problems)


def value_at(value: Any, path: KeyPath, default: object = None) -> Any:
    """Return the value at a path of keys, or the default where a key is absent."""
    for key in path:
        known = isinstance(key, int) if isinstance(value, list) else isinstance(value, dict) and key in value
        if not known:
            return default
        value = value[key]
    return value


def _classes(value: dict[str, Any]) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Yield the mapping of each class with its path; none for a trace."""
    asked = value.get("requests")
    if isinstance(asked, list):
        yield from ((("requests", i), of) for i, of in enumerate(asked) if isinstance(of, dict))
    elif isinstance(asked, dict) and "trace" not in asked:
        yield ("requests",), asked


def _valid(adapter: TypeAdapter[T], value: object) -> T | None:
    """Return a part of a spec if it is valid by itself, or None: then the spec's own model reports why."""
    try:
        return adapter.validate_python(value)
    except ValidationError:
        return None


def _check_names(classes: list[tuple[KeyPath, dict[str, Any]]], problems: Problems) -> None:
    """Check that each class of a list has a name, and that a single class has no name, weight or count."""
    for path, of in classes:
        several = len(path) > 1
        if several and "name" not in of:
            remedy = "Add it, for example `name: cold`."
            problems.add((*path, "name"), expected="the key name", found="no such key", remedy=remedy)
        for key in () if several else ("name", "weight", "count"):
            if key in of:
                expected = f"{key} in a list of classes only"
                remedy = "Delete it, or write a list of classes."
                problems.add((*path, key), expected=expected, found="one class", remedy=remedy)


def _check_seeds(
    value: dict[str, Any], classes: list[tuple[KeyPath, dict[str, Any]]], problems: Problems
) -> None:
    """Check that only a warm set has seeds, and that a spec with a cold class has only cold classes."""
    path = ("splits", "seed")
    asked = value_at(value, path, {})
    every = [_valid(TypeAdapter(Bound), of.get("cached")) for _, of in classes]
    seed = _valid(TypeAdapter(SeedSplit), {"per_rank": 0} if asked is None else asked)
    bounds = [cached for cached in every if cached is not None]
    if len(bounds) < len(every) or seed is None:
        return
    if any(b.cold for b in bounds) and any(b.warm for b in bounds):
        found = "cold beside a bound that needs seeds"
        problems.add(("requests",), expected="every class cold, or none", found=found)
    rounds = value.get("rounds")
    if any(b.cold for b in bounds) and type(rounds) is int and rounds > 1:
        expected = "one round of a cold set, since a later one finds what the first has left"
        problems.add(("rounds",), expected=expected, found=str(rounds), remedy="Delete rounds.")
    for (at, of), cached in zip(classes, bounds, strict=True):
        prefix = _valid(TypeAdapter(Prefix), of.get("prefix", {}))
        if cached.cold and prefix and not prefix.chain[-1].has_length:
            expected = "the prefix's length, since a cold class has no bound to derive it from"
            remedy = "Add tokens, pages or ratio to the last level, for example `tokens: 4096`."
            problems.add((*at, "prefix"), expected=expected, found="none", remedy=remedy)
    if any(b.cold for b in bounds):
        _check_fills_no_cache(value, problems)
    warm = any(b.warm for b in bounds)
    if asked == {}:
        return
    if warm and not seed.per_rank:
        expected = "at least 1 seed a rank, since the bound asks for cached tokens"
        problems.add(path, expected=expected, found="none", remedy="Delete splits.seed for 1 a rank.")
    if not warm and seed.per_rank:
        expected = "no seeds, since the bound asks for no cached tokens"
        remedy = "Delete splits.seed, or ask for tokens in requests.cached."
        problems.add(path, expected=expected, found=f"{seed.per_rank} a rank", remedy=remedy)


def _check_fills_no_cache(value: dict[str, Any], problems: Problems) -> None:
    """Check that a cold set has no checks or other rows before its formal ones."""
    for split in (split for split in BEFORE if not split.primes):
        if value_at(value, ("splits", split, "per_rank"), 0):
            remedy = f"Delete splits.{split}: a cold set has none."
            expected = f"no {split}s, which would fill the cache before the formal rows"
            problems.add(("splits", split.value), expected=expected, found="some", remedy=remedy)


def _check_size(value: dict[str, Any], rows: int, ranks: int, problems: Problems) -> None:
    """Check that all rounds together have no more formal rows and checks than a plan can hold."""
    splits, rounds = _valid(TypeAdapter(Splits), value.get("splits")), value.get("rounds", 1)
    if splits is None or type(rounds) is not int:
        return
    before = sum(splits.per_rank(split) for split in BEFORE if split.each_round)
    total = rounds * (rows + before * ranks)
    if total > MOST_ROWS:
        expected = f"at most {MOST_ROWS} formal rows and checks in all rounds"
        remedy = "Ask for fewer rows or rounds, or split the spec into several of other random_seeds."
        problems.add(("splits",), expected=expected, found=str(total), remedy=remedy)


def _check_groups(path: KeyPath, of: dict[str, Any], rows: int, ranks: int, problems: Problems) -> None:
    """Check that ranks with prefixes of their own get equally many formal rows, and each group at least 1."""
    prefix = _valid(TypeAdapter(Prefix), of.get("prefix", {}))
    if prefix is None:
        return
    if any(level.shared_by == "rank" for level in prefix.chain) and rows % ranks:
        expected = f"a multiple of dp_ranks {ranks}, since each rank has its own prefix"
        lower, upper = floor_to(rows, ranks), ceil_to(rows, ranks)
        remedy = f"The nearest are {lower} and {upper}." if lower else f"The least is {upper}."
        problems.add(("splits", "formal", "total"), expected=expected, found=str(rows), remedy=remedy)
    for number, level in enumerate(prefix.chain):
        where = (
            (*path, "prefix", "groups")
            if prefix.levels is None
            else (*path, "prefix", "levels", number, "groups")
        )
        if level.groups is not None and level.groups > rows:
            expected = f"at most one group for each of the {rows} formal rows"
            remedy = "Ask for fewer groups, or for more formal rows."
            problems.add(where, expected=expected, found=str(level.groups), remedy=remedy)


def _check_shares(classes: list[tuple[KeyPath, dict[str, Any]]], rows: int, problems: Problems) -> None:
    """Check that the classes of a list differ in name, and that weights or counts fit the formal rows."""
    names = [of.get("name") for _, of in classes]
    for (path, of), name in zip(classes, names, strict=True):
        if isinstance(name, str) and names.count(name) > 1:
            problems.add((*path, "name"), expected="a name of its own for each class", found=repr(name))
        if of.get("session") is not None:
            problems.add(
                (*path, "session"), expected="sessions in a spec of one class", found="a list of classes"
            )
    counts = [of.get("count") for _, of in classes]
    if any(c is not None for c in counts):
        if not all(type(c) is int for c in counts) or any("weight" in of for _, of in classes):
            expected = "a count for each class and no weight, or weights alone"
            problems.add(("requests",), expected=expected, found=f"counts {counts}")
        elif sum(c for c in counts if c) != rows:
            expected = f"counts that sum to the {rows} formal rows"
            problems.add(("requests",), expected=expected, found=f"{sum(c for c in counts if c)}")
    elif not any(of.get("weight", 1) for _, of in classes):
        problems.add(("requests",), expected="at least one weight above 0", found="none")


def _check_session(value: dict[str, Any], of: dict[str, Any], rows: int, problems: Problems) -> None:
    session = _valid(TypeAdapter(Session), of.get("session"))
    if session is not None and value.get("order") == "shuffled":
        remedy = "Delete order: the turns of different sessions already alternate."
        problems.add(
            ("order",), expected="an order that keeps the turns of a session", found="shuffled", remedy=remedy
        )
    if session is not None and rows % session.turns:
        expected = f"a multiple of the {session.turns} turns of a session"
        lower = floor_to(rows, session.turns)
        remedy = f"The nearest are {lower} and {lower + session.turns}."
        problems.add(("splits", "formal"), expected=expected, found=f"{rows} rows", remedy=remedy)
    body_len = of.get("body_len")
    if session is not None and type(body_len) is int:
        longest = body_len + (session.turns - 1) * (session.user_len + session.assistant_len)
        if longest > MOST_TOKENS:
            expected = f"a last turn of at most {MOST_TOKENS} tokens"
            remedy = "Ask for fewer turns, or for shorter ones."
            problems.add((*_SESSION, "turns"), expected=expected, found=str(longest), remedy=remedy)
    if session is not None and isinstance(body_len, dict):
        expected = "one number, the tokens of the first message of a session"
        problems.add(("requests", "body_len"), expected=expected, found="a distribution")
