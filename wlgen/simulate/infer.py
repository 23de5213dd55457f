"""Which cache rules explain the cached tokens that a server reported. All quantities are tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from wlgen import cache_rules, engines, registry
from wlgen.audit.findings import Promised
from wlgen.audit.join import Rows, join
from wlgen.audit.results import read_results
from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.errors import WlgenError, error
from wlgen.simulate.telling import Telling, telling
from wlgen.spec.kinds import RuleKind, rule_kind
from wlgen.strict.jsonl import read_lines
from wlgen.workload.opened import Workload
from wlgen.workload.splits import Split

_KEYS = ("prompt_tokens", "shared_tokens", "cached_tokens")
_EXAMPLE = '{"prompt_tokens": 16388, "shared_tokens": 14848, "cached_tokens": 14336}'
_EXPECTED = f"{', '.join(_KEYS)}, whole numbers"
_REMEDY = f"For example {_EXAMPLE}."
_GREATEST_USUAL = 1 << 14  # tokens: vllm-ascend serves DeepSeek V4 so


class Observation(NamedTuple):
    """One reported request: tokens of its prompt, those shared with what its rank held, those cached."""

    prompt_len: int
    shared_len: int
    cached_len: int
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Rules that differ in their quantum alone. words: how they count. rules: as a spec writes them.

    quanta: the quanta that explain the most observations. usual: the smallest power of two among them, which
    `rules` have; None if there is none, and then `rules` have the smallest quantum. or_more: nothing was
    cached, so larger quanta explain as much.
    """

    words: str
    quanta: tuple[int, ...]
    usual: int | None
    or_more: bool
    rules: tuple[RuleKind, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """What explains the observations. candidates: those that explain the most observations.

    unexplained: observations that the first candidate does not explain; empty if it explains all.
    telling: the prompt that tells the most candidates apart; None if there is only one candidate, or if no
    prompt tells two of them apart.
    """

    observations: int
    explained: int
    candidates: tuple[Candidate, ...]
    unexplained: tuple[Observation, ...]
    telling: Telling | None = None


class _Form(NamedTuple):
    """A way in which some engines count hits. finer: whether pages are smaller than the quantum."""

    words: str
    engines: tuple[str, ...]
    speculative: bool
    finer: bool

    def rule(self, quantum: int) -> CacheRule | None:
        """Return the rule at a quantum; None if no page is smaller than the quantum."""
        if self.finer and quantum % 2:
            return None
        return _plain_rule(self.engines[0], quantum, speculative=self.speculative, finer=self.finer)

    def kinds(self, quantum: int) -> Iterator[RuleKind]:
        """Yield the rule of each engine at a quantum, as a spec writes it."""
        given: dict[str, Any] = {"page_size": quantum // 2 if self.finer else quantum}
        given |= {"hit_quantum": quantum} if self.finer else {}
        given |= {"speculative": True} if self.speculative else {}
        for engine in self.engines:
            if engine in registry.names(cache_rules):
                yield rule_kind(engine, **given)
                continue
            whole = _plain_rule(engine, quantum, speculative=self.speculative, finer=self.finer)
            yield RuleKind(rule=whole, content={"engine": engine, **given})


def _plain_rule(engine: str, quantum: int, *, speculative: bool, finer: bool) -> CacheRule:
    sizes = {"page_size": quantum // 2 if finer else quantum, "hit_quantum": quantum}
    return engines.cache_rule(RuleNumbers(name="", engine=engine, speculative=speculative, **sizes))


def _forms() -> Iterator[_Form]:
    """Yield each way in which a known engine counts; engines whose rules have the same facts share a way.

    Pages smaller than the quantum are a separate way only if the engine counts otherwise with them: vLLM
    under EAGLE/MTP, whose dropped block may hold the last token.
    """
    alike: dict[tuple[bool, str, int, bool], list[engines.Engine]] = {}
    for known, speculative in product(engines.every_engine(), (False, True)):
        whole, fine = (_plain_rule(known.name, 64, speculative=speculative, finer=f) for f in (False, True))
        loss = {0: "", 64: ", less one"}.get(whole.lookahead, f" but {whole.lookahead} token")
        alike.setdefault((speculative, loss, whole.computed, False), []).append(known)
        if (fine.lookahead, fine.computed) != (whole.lookahead, whole.computed):
            alike.setdefault((speculative, loss, fine.computed, True), []).append(known)
    plain_first = sorted(alike.items(), key=lambda item: (item[0][0], -len(item[1])))
    for (speculative, loss, _, finer), who in plain_first:
        whose = f" ({', '.join(one.title for one in who)} with EAGLE/MTP)" if speculative else ""
        words = f"whole quanta of what is shared{loss}{', in smaller pages' if finer else ''}{whose}"
        yield _Form(words, tuple(one.name for one in who), speculative, finer)


def infer(observations: Iterable[Observation]) -> Inference:
    """Return the rules and quanta that explain all observations, or as many of them as any rule does.

    A quantum explains an observation if the rule gives exactly its number of cached tokens.
    """
    firsts: dict[tuple[int, int, int], Observation] = {}
    counts: Counter[tuple[int, int, int]] = Counter()
    for seen in observations:
        firsts.setdefault(seen[:3], seen)
        counts[seen[:3]] += 1
    distinct = {seen: counts[figures] for figures, seen in firsts.items()}
    tried = ((form, q, form.rule(q)) for form in _forms() for q in _quanta(distinct))
    forms = [(form, q, rule, _explained(rule, distinct)) for form, q, rule in tried if rule is not None]
    named = [(kind, _explained(kind.rule, distinct)) for kind in _named_rules()]
    best = max([score for *_, score in forms + named], default=0)
    if best == 0:
        return Inference(observations=counts.total(), explained=0, candidates=(), unexplained=tuple(distinct))
    none_cached = not any(seen.cached_len for seen in distinct)
    rules = [rule for _, _, rule, score in forms if score == best]
    rules += [kind.rule for kind, score in named if score == best]
    candidates = tuple(_candidates(forms, named, best, none_cached=none_cached))
    return Inference(
        observations=counts.total(),
        explained=best,
        candidates=candidates,
        unexplained=tuple(seen for seen in distinct if not _explains(rules[0], seen)),
        telling=telling([rule for rule in rules if _usual(rule.hit_quantum)] or rules),
    )


def read_observations(path: Path) -> Iterator[Observation]:
    """Yield the observations of a JSONL file; WlgenError lists the lines that are not observations."""
    yield from read_lines(
        path, _observation, expected=_EXPECTED, file_of="a JSONL file of observations", remedy=_REMEDY
    )


def set_observations(
    workload: Workload, results: Sequence[Path], splits: Sequence[Split]
) -> Iterator[Observation]:
    """Yield an observation for each row of a set whose cached tokens a client's results report.

    WlgenError if a result file cannot be used.
    """
    rows = Rows(map(Promised.of, workload.rows()))
    joined = join(rows, read_results(results), splits)
    if joined.problems:
        raise WlgenError(*joined.problems)
    for row, result in joined.pairs:
        if row.split in splits and result.success and result.cached_tokens is not None:
            prompt_len = result.prompt_tokens or row.prompt_len
            yield Observation(prompt_len, row.shared_len, result.cached_tokens, result.place)


def _observation(row: object, place: str) -> Observation:
    values = [row.get(key) if isinstance(row, dict) else None for key in _KEYS]
    numbers = [value for value in values if type(value) is int and value >= 0]
    if len(numbers) < len(values) or not numbers[0]:
        found = orjson.dumps(row).decode()[:80]
        raise error(place, expected=_EXPECTED, found=found, remedy=_REMEDY)
    return Observation(numbers[0], numbers[1], numbers[2], place)


def _quanta(observations: Iterable[Observation]) -> list[int]:
    """Return the quanta to try: divisors of the cached tokens, or the least that explains only misses."""
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


def _usual(quantum: int) -> bool:
    return quantum & (quantum - 1) == 0 and quantum <= _GREATEST_USUAL


def _candidates(
    found: Sequence[tuple[_Form, int, CacheRule, int]],
    named: Sequence[tuple[RuleKind, int]],
    best: int,
    *,
    none_cached: bool,
) -> Iterator[Candidate]:
    for form in dict.fromkeys(form for form, *_ in found):
        quanta = tuple(q for other, q, _, score in found if other == form and score == best)
        if quanta:
            usual = next(filter(_usual, quanta), None)
            if none_cached and usual is None:
                usual = 1 << quanta[0].bit_length()  # any quantum from this one on explains as much
            yield Candidate(
                words=form.words,
                quanta=quanta,
                usual=usual,
                or_more=none_cached,
                rules=tuple(form.kinds(usual or quanta[0])),
            )
    fitting = tuple(kind for kind, score in named if score == best)
    if fitting:
        quanta = tuple(sorted({kind.rule.hit_quantum for kind in fitting}))
        yield Candidate(words="a named rule", quanta=quanta, usual=quanta[0], or_more=False, rules=fitting)


def _named_rules() -> Iterator[RuleKind]:
    """Yield each named rule whose sizes the engine forces, with every option it takes."""
    for name in registry.names(cache_rules):
        if name in registry.names(engines):
            continue  # a spec may choose the sizes of such a rule, so `_forms` tries all of them
        for page_size, speculative in product((None, 32), (False, True)):
            options = {"page_size": page_size, "speculative": speculative or None}
            given = {key: value for key, value in options.items() if value is not None}
            try:
                yield rule_kind(name, **given)
            except ValidationError:
                continue
