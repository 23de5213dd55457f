"""Fitting: the rules that infer-rule names for a probe's figures, those of the server's engine alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.engines import cache_rule
from wlgen.simulate.infer import Observation, infer


def fitting_rules(seen: Sequence[Observation], engine: str, page_size: int | None) -> list[CacheRule]:
    """Return the engine's rules that explain each observation: named ones first, then larger quanta first.

    page_size: what the server says, None to take the quantum for it. Empty where nothing explains them all.
    """
    found = infer(seen)
    if found.explained < found.observations:
        return []
    rules = [kind.rule for candidate in found.candidates for kind in candidate.rules]
    quanta = {quantum for candidate in found.candidates for quantum in candidate.quanta}
    named = [r for r in rules if r.engine == engine and r.name != engine and page_size in (None, r.page_size)]
    forms = [rule for rule in rules if rule.name == engine]
    return [*named, *_by_numbers(forms, sorted(quanta, reverse=True), page_size, seen)]


def _by_numbers(
    forms: Sequence[CacheRule], quanta: Sequence[int], page_size: int | None, seen: Sequence[Observation]
) -> Iterator[CacheRule]:
    """Yield each form at each quantum that explains all and is made of the server's pages."""
    for quantum in quanta:
        for form in forms:
            sizes = {"page_size": page_size or quantum, "hit_quantum": quantum}
            rule = cache_rule(RuleNumbers(**form.numbers | sizes))
            whole = page_size is None or quantum % page_size == 0
            if whole and all(rule.cached_len(o.shared_len, o.prompt_len) == o.cached_len for o in seen):
                yield rule
