"""A cache rule that a command's options choose: by its name, or by an engine and its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wlgen import cache_rules, registry
from wlgen.cache.rule import CacheRule
from wlgen.errors import error
from wlgen.spec.kinds import EngineNumbers
from wlgen.strict.problems import Places, Problems
from wlgen.strict.validate import validate


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChoice:
    """The options of a command that choose a rule; None or False if not given. Sizes are in tokens."""

    rule: str | None = None
    engine: str | None = None
    page_size: int | None = None
    hit_quantum: int | None = None
    speculative: bool = False
    sliding_window: int | None = None
    retention: int | None = None

    def resolve(self, default: CacheRule | None = None) -> CacheRule:
        """Return the chosen rule, or the default where none is chosen; WlgenError says what does not fit."""
        numbers = self._numbers()
        if self.rule is not None and self.engine is not None:
            expected = "--rule or --engine, not both"
            raise error("--rule", expected=expected, found=f"{self.rule} and {self.engine}")
        if self.rule is not None:
            return _named(self.rule, numbers)
        if self.engine is not None:
            return _of_engine({"engine": self.engine, **numbers})
        if numbers:
            flags = ", ".join("--" + name.replace("_", "-") for name in numbers)
            expected = "--rule or --engine beside the numbers"
            raise error(
                flags, expected=expected, found="neither", remedy="Add, for example, --engine sglang."
            )
        if default is None:
            known = ", ".join(registry.names(cache_rules))
            expected = f"--rule (one of {known}), or --engine and --page-size"
            raise error("--rule", expected=expected, found="neither, and the input names none")
        return default

    def _numbers(self) -> dict[str, Any]:
        given = {
            "page_size": self.page_size,
            "hit_quantum": self.hit_quantum,
            "sliding_window": self.sliding_window,
            "retention": self.retention,
            "speculative": self.speculative or None,
        }
        return {name: value for name, value in given.items() if value is not None}


def _named(name: str, numbers: dict[str, Any]) -> CacheRule:
    module = registry.load(cache_rules, name, place="--rule")
    place = f"--rule {name}"
    problems = Problems(Places(source=place))
    options = validate(module.Options, numbers, (), problems)
    if options is None:
        raise problems.error()
    rule: CacheRule = module.rule(options, place=place)
    return rule


def _of_engine(numbers: dict[str, Any]) -> CacheRule:
    problems = Problems(Places(source=f"--engine {numbers['engine']}"))
    valid = validate(EngineNumbers, numbers, (), problems)
    if valid is None:
        raise problems.error()
    return valid.rule()
