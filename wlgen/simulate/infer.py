"""Which cache rules explain what a server reported: a probe from figures alone. All quantities are tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import orjson
from pydantic import ValidationError

from wlgen import cache_rules, engines, registry
from wlgen.audit.findings import Promised
from wlgen.audit.join import Rows, join
from wlgen.audit.results import read_results
from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.errors import Problem, WlgenError, error, regular
from wlgen.spec.kinds import RuleKind, rule_kind
from wlgen.workload.opened import Workload
from wlgen.workload.splits import Split

_KEYS = ("prompt_tokens", "shared_tokens", "cached_tokens")
_MOST_PROBLEMS = 20
_EXAMPLE = '{"prompt_tokens": 16388, "shared_tokens": 14848, "cached_tokens": 14336}'


class Observation(NamedTuple):
    """One reported request: tokens of its prompt, those shared with what its rank held, those cached."""

    prompt_len: int
    shared_len: int
    cached_len: int
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Rules alike but for their quantum. words: how they count. rules: each with how a spec writes it.

    quanta: those that explain as much as any. or_more: nothing was cached, so larger ones do too.
    """

    words: str
    quanta: tuple[int, ...]
    or_more: bool
    rules: tuple[RuleKind, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """What explains the observations. candidates: all that explain the most of them.

    unexplained: observations that the first candidate does not explain; empty where one explains all.
    """

    observations: int
    explained: int
    candidates: tuple[Candidate, ...]
    unexplained: tuple[Observation, ...]


class _Form(NamedTuple):
    """A way of counting that some engines share: their named rule takes the quantum as page_size."""

    words: str
    engines: tuple[str, ...]
    speculative: bool

    def rule(self, quantum: int) -> CacheRule:
        return _plain_rule(self.engines[0], quantum, speculative=self.speculative)


def _plain_rule(engine: str, quantum: int, *, speculative: bool) -> CacheRule:
    sizes = {"page_size": quantum, "hit_quantum": quantum}
    return engines.cache_rule(RuleNumbers(name="", engine=engine, speculative=speculative, **sizes))


def _forms() -> Iterator[_Form]:
    """Yield each way in which a known engine counts: two engines count alike where they look ahead alike."""
    alike: dict[tuple[bool, str], list[engines.Engine]] = {}
    for known, speculative in product(engines.every_engine(), (False, True)):
        ahead = _plain_rule(known.name, 64, speculative=speculative).lookahead
        loss = {0: "", 64: ", less one"}.get(ahead, f" but {ahead} token")
        alike.setdefault((speculative, loss), []).append(known)
    for (speculative, loss), known_ones in sorted(
        alike.items(), key=lambda item: (item[0][0], -len(item[0][1]))
    ):
        whose = f" ({', '.join(one.title for one in known_ones)} with EAGLE/MTP)" if speculative else ""
        words = f"whole quanta of what is shared{loss}{whose}"
        yield _Form(words, tuple(one.name for one in known_ones), speculative)


def infer(observations: Iterable[Observation]) -> Inference:
    """Return the rules and quanta that explain all observations, or else the most of them.

    A quantum explains an observation if its cached figure is what the rule gives, to the token.
    """
    firsts: dict[tuple[int, int, int], Observation] = {}
    counts: Counter[tuple[int, int, int]] = Counter()
    for seen in observations:
        firsts.setdefault(seen[:3], seen)
        counts[seen[:3]] += 1
    distinct = {seen: counts[figures] for figures, seen in firsts.items()}
    ways = list(_forms())
    forms = [(form, q, _explained(form.rule(q), distinct)) for form in ways for q in _quanta(distinct)]
    named = [(kind, _explained(kind.rule, distinct)) for kind in _named_rules()]
    best = max([score for *_, score in forms + named], default=0)
    if best == 0:
        return Inference(observations=counts.total(), explained=0, candidates=(), unexplained=tuple(distinct))
    none_cached = not any(seen.cached_len for seen in distinct)
    rules = [form.rule(q) for form, q, score in forms if score == best]
    rules += [kind.rule for kind, score in named if score == best]
    return Inference(
        observations=counts.total(),
        explained=best,
        candidates=tuple(_candidates(forms, named, best, none_cached=none_cached)),
        unexplained=tuple(seen for seen in distinct if not _explains(rules[0], seen)),
    )


def read_observations(path: Path) -> Iterator[Observation]:
    """Yield the observations of a JSONL file; WlgenError lists the lines, at most 20, that are none."""
    problems: list[Problem] = []
    try:
        with regular(path).open("rb") as lines:
            for number, line in enumerate(lines, 1):
                found = _observation(line, f"{path}:{number}")
                if isinstance(found, Problem):
                    problems.append(found)
                elif not problems:
                    yield found
                if len(problems) >= _MOST_PROBLEMS:
                    break
    except OSError as failure:
        found_words = failure.strerror or str(failure)
        raise error(str(path), expected="a JSONL file of observations", found=found_words) from failure
    if problems:
        raise WlgenError(*problems)


def set_observations(
    workload: Workload, results: Sequence[Path], splits: Sequence[Split]
) -> Iterator[Observation]:
    """Yield what a client's results say of a set's rows; what was not reported is left out.

    WlgenError where a result file cannot be used.
    """
    rows = Rows(map(Promised.of, workload.rows()))
    joined = join(rows, read_results(results), splits)
    if joined.problems:
        raise WlgenError(*joined.problems)
    for row, result in joined.pairs:
        if row.split in splits and result.success and result.cached_tokens is not None:
            prompt_len = result.prompt_tokens or row.prompt_len
            yield Observation(prompt_len, row.shared_len, result.cached_tokens, result.place)


def _observation(line: bytes, place: str) -> Observation | Problem:
    expected = f"{', '.join(_KEYS)}, whole numbers"
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as failure:
        return Problem(place=place, expected=expected, found=str(failure), remedy=f"For example {_EXAMPLE}.")
    values = [row.get(key) if isinstance(row, dict) else None for key in _KEYS]
    numbers = [value for value in values if type(value) is int and value >= 0]
    if len(numbers) < len(values) or not numbers[0]:
        found = line.decode(errors="replace").strip()[:80]
        return Problem(place=place, expected=expected, found=found, remedy=f"For example {_EXAMPLE}.")
    return Observation(numbers[0], numbers[1], numbers[2], place)


def _quanta(observations: Iterable[Observation]) -> list[int]:
    """Return the quanta worth trying: divisors of what was cached, or the least that explains only misses."""
    cached = {o.cached_len for o in observations if o.cached_len}
    if not cached:
        usable = max((min(o.shared_len, o.prompt_len - 1) for o in observations), default=0)
        return [usable + 1]
    return sorted({d for length in cached for d in _divisors(length)})


def _divisors(number: int) -> Iterator[int]:
    for small in range(1, math.isqrt(number) + 1):
        if number % small == 0:
            yield from {small, number // small}


def _explains(rule: CacheRule, seen: Observation) -> bool:
    return rule.cached_len(seen.shared_len, seen.prompt_len) == seen.cached_len


def _explained(rule: CacheRule, counts: dict[Observation, int]) -> int:
    return sum(count for seen, count in counts.items() if _explains(rule, seen))


def _candidates(
    found: Sequence[tuple[_Form, int, int]],
    named: Sequence[tuple[RuleKind, int]],
    best: int,
    *,
    none_cached: bool,
) -> Iterator[Candidate]:
    for form in _forms():
        quanta = tuple(q for other, q, score in found if other == form and score == best)
        if quanta:
            given = {"page_size": quanta[-1]} | ({"speculative": True} if form.speculative else {})
            rules = tuple(rule_kind(engine, **given) for engine in form.engines)
            yield Candidate(words=form.words, quanta=quanta, or_more=none_cached, rules=rules)
    fitting = tuple(kind for kind, score in named if score == best)
    if fitting:
        quanta = tuple(sorted({kind.rule.hit_quantum for kind in fitting}))
        yield Candidate(words="a named rule", quanta=quanta, or_more=False, rules=fitting)


def _named_rules() -> Iterator[RuleKind]:
    """Yield each named rule whose sizes the engine forces, with every option it takes."""
    for name in registry.names(cache_rules):
        if name in registry.names(engines):
            continue  # their sizes are free: the forms try all of them
        for page_size, speculative in product((None, 32), (False, True)):
            options = {"page_size": page_size, "speculative": speculative or None}
            given = {key: value for key, value in options.items() if value is not None}
            try:
                yield rule_kind(name, **given)
            except ValidationError:
                continue
