"""A server that reuses prefixes by another rule than the set was built for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from wlgen.cache.rule import RuleNumbers
from wlgen.engines import cache_rule
from wlgen.errors import WlgenError
from wlgen.faults import Fault, Parameters, Run, View

QUANTA = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
WINDOWS = (128, 512, 1024, 2048, 4096, 8192)
REMEDY = (
    "Start the server as the spec's cache rule says, or set `cache` in the spec to what it does "
    "(`wlgen probe` finds out) and build again"
)


def _changed(run: Run, parameters: Parameters) -> Run:
    numbers: dict[str, Any] = run.rule.numbers | dict(parameters)
    return replace(run, rule=cache_rule(RuleNumbers(**numbers)))


def _valid(view: View, proposals: Iterator[dict[str, Any]]) -> Iterator[Parameters]:
    if not view.off:
        return
    for parameters in proposals:
        try:
            _changed(view.run, parameters)
        except WlgenError:
            continue
        yield parameters


def _quanta(view: View) -> Iterator[Parameters]:
    rule = view.run.rule
    fits = [q for q in QUANTA if q % rule.page_size == 0 and q != rule.hit_quantum]
    figures = {row.cached for row in view.off if row.cached}
    fits = [q for q in fits if all(f % q == 0 for f in figures if f)]
    return _valid(view, ({"hit_quantum": q} for q in fits))


def _pages(view: View) -> Iterator[Parameters]:
    rule = view.run.rule
    if rule.hit_quantum != rule.page_size:
        return iter(())
    figures = {row.cached for row in view.off if row.cached}
    fits = [q for q in QUANTA if q < rule.page_size and all(f % q == 0 for f in figures if f)]
    return _valid(view, ({"page_size": q, "hit_quantum": q} for q in fits))


def _speculative(view: View) -> Iterator[Parameters]:
    return _valid(view, iter([{"speculative": not view.run.rule.speculative}]))


def _windows(view: View) -> Iterator[Parameters]:
    rule = view.run.rule
    fits = [w for w in WINDOWS if w != rule.sliding_window and w >= rule.page_size]
    return _valid(view, ({"sliding_window": w} for w in fits))


def _at_ends(view: View) -> Iterator[Parameters]:
    """Propose no state at multiples; and for a rule without a window one of a token, as a Mamba model has."""
    rule = view.run.rule
    found: list[dict[str, Any]] = [{"retention": 0}] if rule.retention else []
    if not rule.hybrid:
        found.append({"sliding_window": 1})
    return _valid(view, iter(found))


FAULTS = (
    Fault(
        name="hit_quantum",
        takes=("hit_quantum", "page_size"),
        propose=lambda view: [*_quanta(view), *_pages(view)],
        act=_changed,
        words=lambda p: (
            f"the server's pages are {p['page_size']} tokens"
            if "page_size" in p
            else f"the server's hits come in multiples of {p['hit_quantum']} tokens"
        ),
        remedy=lambda _: REMEDY,
        apart="a prompt whose prefix ends between multiples of both: `wlgen probe` sends it",
    ),
    Fault(
        name="speculative",
        takes=("speculative",),
        propose=_speculative,
        act=_changed,
        words=lambda p: f"speculative decoding (EAGLE/MTP) is {'on' if p['speculative'] else 'off'}",
        remedy=lambda _: REMEDY,
        apart="the server's flags",
    ),
    Fault(
        name="sliding_window",
        takes=("sliding_window",),
        propose=_windows,
        act=_changed,
        words=lambda p: f"the model has a sliding window of {p['sliding_window']} tokens",
        remedy=lambda _: REMEDY,
        apart="the model's config.json (sliding_window)",
    ),
    Fault(
        name="state_at_ends",
        takes=("retention", "sliding_window"),
        propose=_at_ends,
        act=_changed,
        words=lambda _: "the server keeps a hybrid model's state only where prompts end",
        remedy=lambda _: REMEDY,
        apart="the server's flags (vLLM: --prefix-cache-retention-interval)",
    ),
)
