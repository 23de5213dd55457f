"""The outline of a plan: what `wlgen plan` says before anything is built. All quantities are tokens."""

from __future__ import annotations

from typing import Any

from wlgen.build import Blueprint
from wlgen.pages import percent
from wlgen.solve import in_pages
from wlgen.store import row_line
from wlgen.workload import SPLITS

PICTURE = 72  # characters


def outline(ready: Blueprint) -> dict[str, Any]:
    """Return the outline as JSON values; bytes are those of one composed row a split, times its rows."""
    plan, rule = ready.plan, ready.spec.cache
    composer = ready.composer()
    splits = {}
    for split in SPLITS:
        per_rank = [plan.count(split, rank) for rank in range(ready.spec.dp_ranks)]
        first = next((row for rank in range(ready.spec.dp_ranks) for row in plan.rows(split, rank)), None)
        size = sum(map(len, row_line(composer.compose(first)))) if first else 0
        splits[split] = {
            "rows": sum(per_rank),
            "per_rank": per_rank,
            "prompt_len": first.prompt_len if first else 0,
            "cached_len": first.cached_len if first else 0,
            "output_len": first.output_len if first else 0,
            "bytes": size * sum(per_rank),
        }
    return {
        "name": ready.spec.name,
        "rule": {"name": rule.name, "page_size": rule.page_size, "hit_quantum": rule.hit_quantum},
        "body_len": ready.spec.requests.body_len,
        "framing": {"head": plan.head_len, "tail": len(plan.framing.ids[-1])},
        "prompt_len": plan.prompt_len,
        "shared_len": plan.shared_len,
        "unique_len": plan.prompt_len - plan.shared_len - len(plan.framing.ids[-1]),
        "cached_len": plan.cached_len,
        "computed_len": plan.prompt_len - plan.cached_len,
        "promises": {
            "configured": plan.promises.configured,
            "aggregate": plan.promises.aggregate,
            "per_request_min": plan.promises.per_request_min,
        },
        "groups": plan.groups if plan.warm else 0,
        "rows_that_share_a_lead": ready.crowded,
        "splits": splits,
        "bytes": sum(split["bytes"] for split in splits.values()),
    }


def lines(ready: Blueprint) -> list[str]:
    """Return the outline as a person reads it."""
    plan, rule, said = ready.plan, ready.spec.cache, outline(ready)
    promises, end = said["promises"], "least" if plan.warm else "most"
    head, tail = said["framing"]["head"], said["framing"]["tail"]
    rows = [
        f"{split:<7} {at['rows']:>6} rows ({_per_rank(at['per_rank'])} a rank)  prompt {at['prompt_len']}, "
        f"cached {at['cached_len']}, output {at['output_len']}"
        for split, at in said["splits"].items()
        if at["rows"]
    ]
    return [
        f"{said['name']}: {ready.spec.dp_ranks} ranks, rule {rule.name}, page {rule.page_size}, "
        f"hit quantum {rule.hit_quantum}" + (", speculative" if rule.speculative else ""),
        _picture(head, plan.shared_len - head, said["unique_len"], tail),
        f"prompt  {plan.prompt_len} = body {said['body_len']} + framing {head} + {tail}",
        f"shared  {in_pages(plan.shared_len, rule)}, framing head included"
        if plan.warm
        else "shared  nothing",
        f"cached  {in_pages(plan.cached_len, rule)}",
        f"unique  {said['unique_len']}; computed for each request {said['computed_len']}",
        *rows,
        *(
            [f"crowded {ready.crowded} rows share one token more with another, for want of first tokens"]
            if ready.crowded
            else []
        ),
        "promises",
        f"  configured      {promises['configured'] * 100:.4f} %",
        f"  aggregate       {percent(plan.cached_len, plan.prompt_len)}",
        f"  each request    {percent(plan.cached_len, plan.prompt_len)} at {end}",
        f"to write about {said['bytes'] / 1e6:.1f} MB",
    ]


def _per_rank(counts: list[int]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"


def _picture(head: int, shared: int, unique: int, tail: int) -> str:
    """Draw a prompt: | head 2 | shared 118782 ========= | unique 12290 ---- | tail 2 |."""
    parts = [(f"head {head}", head, "="), (f"shared {shared}", shared, "=")]
    parts += [(f"unique {unique}", unique, "-"), (f"tail {tail}", tail, "-")]
    room = PICTURE - sum(len(label) + 3 for label, tokens, _ in parts if tokens)
    whole = max(1, shared + unique)
    cells = [
        f" {label} " + fill * (max(1, room * tokens // whole) if tokens in (shared, unique) else 0)
        for label, tokens, fill in parts
        if tokens
    ]
    return "|" + "|".join(cells) + "|"
