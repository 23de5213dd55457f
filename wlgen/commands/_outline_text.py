"""The outline as a person reads it: lines of text, a picture of a prompt, the prefix tree."""

from __future__ import annotations

from typing import Any

from wlgen.build.outline import outline
from wlgen.build.ready import Blueprint
from wlgen.pages import percent_of
from wlgen.plan.refusals import in_pages

PICTURE = 72  # characters
MOST_NODES = 16  # lines of the prefix tree
BAR = 40  # characters of a whole


def lines(ready: Blueprint, in_flight: int = 0) -> list[str]:
    """Return the outline's lines."""
    said, rule = outline(ready, in_flight), ready.spec.cache
    promises, framing = said["promises"], said["framing"]
    shared, cached = said["shared_len"], said["cached_len"]
    warm = not isinstance(shared, int) or shared > framing["head"]
    end, ends = "least" if warm else "most", f"{framing['head']} + {framing['tail']}"
    bound = promises["configured"]
    return [
        f"{said['name']}: {ready.spec.dp_ranks} ranks, rule {rule.name}, page {rule.page_size}, "
        f"hit quantum {rule.hit_quantum}"
        + (", speculative" if rule.speculative else "")
        + (f", {said['rounds']} rounds" if said["rounds"] > 1 else ""),
        *_picture(said),
        f"prompt  {_said(said['prompt_len'])} = body {_said(said['body_len'])} + framing {ends}",
        f"shared  {_paged(shared, ready)}, framing head included" if warm else "shared  nothing",
        f"cached  {_paged(cached, ready)}",
        f"unique  {_said(said['unique_len'])}; computed for each request {_said(said['computed_len'])}",
        *([] if isinstance(said["output_len"], int) else [f"output  {_said(said['output_len'])}"]),
        *_rows(said["splits"]),
        *_arrivals(said["arrivals"]),
        *_crowd(said["rows_that_share_a_lead"]),
        "promises",
        f"  configured      {percent_of(bound)}",
        f"  aggregate       {percent_of(promises['aggregate'], bound)}{_below(said, ready)}",
        f"  each request    {percent_of(promises['per_request_min'], bound)} at {end}",
        *_tree(said["tree"]),
        *_trajectory(said["trajectory"], in_flight),
        f"to write about {said['bytes'] / 1e6:.1f} MB",
    ]


def _said(length: int | dict[str, Any]) -> str:
    if isinstance(length, int):
        return str(length)
    return f"{length['min']} to {length['max']} (p50 {length['p50']}, p90 {length['p90']})"


def _paged(length: int | dict[str, Any], ready: Blueprint) -> str:
    return in_pages(length, ready.spec.cache) if isinstance(length, int) else f"{_said(length)} tokens"


def _rows(splits: dict[str, Any]) -> list[str]:
    return [
        f"{split:<7} {at['rows']:>6} rows ({_per_rank(at['per_rank'])} a rank)  "
        + ("" if at["alike"] else "first row: ")
        + f"prompt {at['prompt_len']}, cached {at['cached_len']}, output {at['output_len']}"
        for split, at in splits.items()
        if at["rows"]
    ]


def _per_rank(counts: list[int]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"


def _arrivals(said: dict[str, Any] | None) -> list[str]:
    """Say in how many seconds a round's rows arrive; here a trace with a wrong time unit shows."""
    if said is None:
        return []
    rate = f", {said['rows_per_s']:.4g} rows a second" if said["rows_per_s"] else ""
    left = f"; {said['left_out']} more left out by min_len or max_len" if said["left_out"] else ""
    return [f"times   {said['rows']} rows within {said['span_s']:.3f} s{rate}{left}"]


def _crowd(rows: int) -> list[str]:
    if not rows:
        return []
    return [
        f"crowded {rows} rows share one token more with another row: the vocabulary has too few first tokens"
    ]


def _tree(nodes: list[dict[str, Any]]) -> list[str]:
    """Draw the prefix tree, if it has more than one node."""
    if len(nodes) < 2:  # noqa: PLR2004 (one node is in the picture already)
        return []
    shown = [
        f"  {'  ' * node['depth']}{node['name'] or 'all'}  {node['tokens']} tokens, {node['rows']} rows"
        for node in nodes[:MOST_NODES]
    ]
    more = [f"  ... {len(nodes) - MOST_NODES} more"] if len(nodes) > MOST_NODES else []
    return ["prefixes", *shown, *more]


def _below(said: dict[str, Any], ready: Blueprint) -> str:
    """Say that the plan does not reach the aggregate of the spec, and why."""
    classes, promises = ready.spec.requests, said["promises"]
    if len(classes) > 1 or classes[0].cached.aggregate is None:
        return ""
    if promises["aggregate"] >= promises["configured"]:
        return ""
    return ", below what is asked: one hit quantum more exceeds the tolerance or fits no prefix"


def _trajectory(points: list[dict[str, Any]], in_flight: int) -> list[str]:
    """Draw the hit ratio in the order sent."""
    if not points:
        return []
    bars = [
        f"  rows {p['rows'][0]:>5} to {p['rows'][1]:>5} of a rank  {percent_of(p['cached_ratio']):>10}  "
        + "#" * round(BAR * p["cached_ratio"])
        for p in points
    ]
    return [f"cached ratio in the order sent, {in_flight} in flight a rank, after seeds and checks", *bars]


def _picture(said: dict[str, Any]) -> list[str]:
    """Draw a prompt: | head 2 | shared 118782 ========= | unique 12290 ---- | tail 2 |."""
    shared, unique, framing = said["shared_len"], said["unique_len"], said["framing"]
    if not isinstance(shared, int) or not isinstance(unique, int):
        return []
    parts = [
        ("head", framing["head"], ""),
        ("shared", shared - framing["head"], "="),
        ("unique", unique, "-"),
        ("tail", framing["tail"], ""),
    ]
    room = PICTURE - sum(len(f"{label} {tokens}") + 3 for label, tokens, _ in parts if tokens)
    whole = max(1, shared + unique)
    cells = [
        f" {label} {tokens} " + fill * max(1, room * tokens // whole)
        for label, tokens, fill in parts
        if tokens > 0
    ]
    return ["|" + "|".join(cells) + "|"]
