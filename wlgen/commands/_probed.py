"""The words of a probe's outcome."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from wlgen.cache.rule import CacheRule, RuleNumbers
from wlgen.commands._answer import shape_of
from wlgen.server.probe import Probed


def cache_block(found: Probed) -> dict[str, object] | None:
    """Return the `cache:` block for a spec, None if no rule explains every observation."""
    if not found.rules:
        return None
    rule = found.rules[0]
    if rule.name != rule.engine:
        return {"rule": rule.name}
    return {
        "engine": rule.engine,
        "page_size": rule.page_size,
        "hit_quantum": rule.hit_quantum,
        "speculative": rule.speculative,
        **({"sliding_window": rule.sliding_window} if rule.sliding_window else {}),
    }


def probed_keys(found: Probed) -> dict[str, Any]:
    """Return what was found as the keys of the command's answer."""
    content = dataclasses.asdict(found) | {"cache": cache_block(found)}
    content["rules"] = [rule.numbers for rule in found.rules]
    content["observations"] = [  # as infer-rule reads them
        {"prompt_tokens": o.prompt_len, "shared_tokens": o.shared_len, "cached_tokens": o.cached_len}
        for o in found.observations
    ]
    return content


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPrompt:
    """A prompt of which the whole or a prefix had been sent before, as `wlgen infer-rule` reads it."""

    prompt_tokens: int
    shared_tokens: int
    cached_tokens: int


def probed_shape() -> Any:
    """Return the model of what `wlgen probe --json` prints. cache: the block for a spec, null for no rule."""
    return shape_of(
        "probe",
        Probed,
        cache=dict[str, str | int | bool] | None,
        rules=list[RuleNumbers],
        observations=list[ObservedPrompt],
    )


def probed_text(found: Probed) -> str:
    """Return the block, the evidence, and what the probe could not find out."""
    block = cache_block(found)
    lines = [f"found      engine: {found.engine}, model {found.model}"]
    lines += [f"found      {fact}" for fact in found.facts]
    lines += [f"unknown    {line}" for line in found.unknown]
    if found.observations:
        lines += ["", "evidence   prompt    shared    cached tokens"]
        lines += [
            f"        {o.prompt_len:>9} {o.shared_len:>9} {o.cached_len:>16}" for o in found.observations
        ]
    if block is not None:
        written = ", ".join(f"{key}: {json.dumps(value).strip(chr(34))}" for key, value in block.items())
        lines += ["", f"cache: {{{written}}}"]
        if found.rules[1:]:
            lines.append("# rules that explain the same figures; this is the plainest one:")
            lines += [f"#   {_rule_words(rival)}" for rival in found.rules[1:]]
        if found.kept_late:
            lines.append("# a hybrid model: keep `seed: {shape: short}`")
    return "\n".join(lines)


def _rule_words(rule: CacheRule) -> str:
    sizes = f"page_size {rule.page_size}, hit_quantum {rule.hit_quantum}"
    window = f", sliding_window {rule.sliding_window}" if rule.sliding_window else ""
    return f"{rule.name}: {sizes}{window}{', speculative' if rule.speculative else ''}"
