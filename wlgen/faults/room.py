"""A cache that is too small for what a rank is to hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from wlgen.errors import WlgenError
from wlgen.faults import Fault, Parameters, Run, View
from wlgen.faults._replay import figures
from wlgen.pages import ceil_to

STEPS = 12  # halvings of the range in which the capacity lies


def _capacities(view: View) -> Iterator[Parameters]:
    """Propose the capacities with which as many rows of the first short rank fall short as were seen.

    The fewer tokens a cache holds, the more rows miss, so the range is found by halving.
    """
    if not view.short:
        return
    rank = view.run.asked[view.place[view.in_order(view.short)[0].number]].rank
    page = view.run.rule.page_size
    asked = [a for a in view.run.asked if a.rank == rank]
    low = max(ceil_to(a.prompt_len + a.output_len - 1, page) for a in asked) - page
    high = sum(ceil_to(a.prompt_len + a.output_len, page) for a in asked)
    rows = {a.row: view.rows[a.row] for a in asked if a.row is not None}
    target = sum(row.number in rows for row in view.short)

    def missed(capacity: int) -> int:
        try:
            found = dict(figures(replace(view.run, capacity=capacity), {rank}))
        except WlgenError:
            return len(rows) + 1
        # The rank may have served requests whose row says nothing of its cache: their figure was garbled.
        known = ((rows[n], told) for n, told in found.items() if n in rows)
        return sum(not any(row.as_planned(f) for f in told) for row, told in known)

    least, most = _edge(missed, low, high, target, page), _edge(missed, low, high, target - 1, page)
    if missed(least) == target:
        yield {"tokens": (least, most)}


def _edge(missed: Callable[[int], int], low: int, high: int, target: int, page: int) -> int:
    """Return about the least capacity with which at most `target` rows fall short."""
    for _ in range(STEPS):
        if high - low <= page:
            break
        middle = (low + high) // 2 // page * page
        if missed(middle) > target:
            low = middle
        else:
            high = middle
    return high


def _small(run: Run, parameters: Parameters) -> Run:
    tokens = parameters["tokens"]
    return replace(run, capacity=tokens if isinstance(tokens, int) else tokens[0])


def _words(parameters: Parameters) -> str:
    tokens = parameters["tokens"]
    range_ = f"{tokens:,}" if isinstance(tokens, int) else f"about {tokens[0]:,} to {tokens[1]:,}"
    return f"a rank's cache holds {range_} tokens, so it evicts"


FAULTS = (
    Fault(
        name="capacity",
        takes=("tokens",),
        propose=_capacities,
        act=_small,
        words=_words,
        remedy=lambda _: "Give the cache more memory, fewer running requests, or fewer prefixes a rank",
        apart="the server's KV cache size in its log",
    ),
)
