"""From a spec to its plan: the least shared prefix that keeps each bound, or why no prefix keeps it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from wlgen.encodings import Encoding, Framing
from wlgen.errors import WlgenError
from wlgen.plan import refusals
from wlgen.plan.drawn import Population
from wlgen.plan.request_class import RequestClass, chain_of
from wlgen.plan.rows import Plan
from wlgen.plan.table import Column
from wlgen.plan.traced import TraceRows
from wlgen.spec.lengths import longest
from wlgen.spec.model import Requests, Spec
from wlgen.workload.manifest import Promises

Ratios = NDArray[np.float64]
Frame = Callable[[tuple[str, ...]], Framing]


def solve(spec: Spec, encoding: Encoding, least_own: Callable[[int, int], int]) -> Plan:
    """Return the plan of a spec; WlgenError says in pages and tokens why there is none, and what would work.

    least_own: the tokens of its own that a check or formal row needs, from its class's number and output_len.
    """
    if spec.trace is not None:
        trace = TraceRows(spec, encoding.frame)
        return Plan(spec=spec, frame=encoding.frame, source=trace, promises=trace.promises())
    classes = tuple(_class(spec, number, encoding.frame, least_own) for number in range(len(spec.requests)))
    _raise([problem for of in classes for problem in refusals.of_class(spec, of)])
    population = Population(spec, classes, encoding.frame)
    _raise([problem for of in classes for problem in refusals.of_rows(spec, of, population.table)])
    return Plan(spec=spec, frame=encoding.frame, source=population, promises=_promises(spec, population))


def _raise(failures: list[WlgenError]) -> None:
    if failures:
        raise WlgenError(*(problem for failure in failures for problem in failure.problems))


def _promises(spec: Spec, population: Population) -> Promises:
    """Return the three promises of the formal rows, as ratios of prompt_len."""
    which, prompt_len, cached_len = population.reuse()
    whole = int(prompt_len.sum())
    first = spec.requests[0].cached
    if len(spec.requests) == 1 and (first.min_ratio or first.aggregate) is not None:
        configured = float(_configured(spec.requests[0], prompt_len[:1])[0])
    else:
        asked = np.zeros(len(which))
        for number, requests in enumerate(spec.requests):
            mine = which == number
            asked[mine] = _configured(requests, prompt_len[mine]) * prompt_len[mine]
        # cumsum adds row after row, which rounds alike on every machine; sum may not.
        configured = float(np.cumsum(asked)[-1]) / whole
    return Promises(
        configured=configured,
        aggregate=int(cached_len.sum()) / whole,
        per_request_min=float((cached_len / prompt_len).min()),
    )


def _configured(requests: Requests, prompt_len: Column) -> Ratios:
    """Return the bound that a class names as a ratio of each prompt_len."""
    cached = requests.cached
    ratio = cached.min_ratio if cached.min_ratio is not None else cached.aggregate
    if ratio is not None:
        return np.full(len(prompt_len), float(ratio))
    return (cached.tokens or cached.max_tokens or 0) / prompt_len


def _class(spec: Spec, number: int, frame: Frame, least_own: Callable[[int, int], int]) -> RequestClass:
    requests = spec.requests[number]
    levels = requests.prefix.chain if requests.cached.warm or requests.cached.cold else []
    in_system = bool(levels) and requests.prefix.message == "system"
    framing = frame(("system", "user") if in_system else ("user",))
    path = ("requests", number) if requests.name else ("requests",)
    most = longest(requests.body_len) + framing.tokens
    return RequestClass(
        number=number,
        requests=requests,
        path=path,
        rule=spec.cache,
        framing=framing,
        chain=chain_of(levels, spec.cache, sum(map(len, framing.ids[:-1])), most),
        least_own=lambda output_len: least_own(number, output_len),
    )
