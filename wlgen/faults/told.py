"""Figures that are not what the cache found: another server's, a sum, or none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wlgen.faults import Fault, Parameters, Run, Says, View, of_each

_PREFILL = "Take the figure from the prefill side: its counters (`wlgen counters`) or its request files"


def _decode(view: View) -> Iterator[Parameters]:
    most = [r for r in view.above if r.cached is not None and r.cached >= (r.prompt or r.prompt_len) - 1]
    if most:
        yield {}


def _is_decode(run: Run, _: Parameters) -> Run:
    return replace(run, reported=lambda asked, _: frozenset({asked.prompt_len, asked.prompt_len - 1}))


def _doubled(view: View) -> Iterator[Parameters]:
    if any(row.cached == 2 * row.planned and row.planned for row in view.above):
        yield {}


def _is_doubled(run: Run, _: Parameters) -> Run:
    return replace(run, reported=lambda _, cached: frozenset({2 * cached}))


def _absent(view: View) -> Iterator[Parameters]:
    missing = view.deviating_in("absent")
    if not missing:
        return
    if all(row.planned == 0 for row in missing) and any(row.cached for row in view.rows):
        yield {"which": "zeros"}
    known = any(row.cached is not None for row in view.rows)
    yield {"which": "some" if known else "all"}


def _says_absent(view: View, parameters: Parameters) -> Says:
    zeros, missing = parameters["which"] == "zeros", view.deviating_in("absent")
    return of_each((row for row in missing if not (zeros and row.planned)), "absent")


def _absent_words(parameters: Parameters) -> str:
    return {
        "all": "no row reports cached tokens: the server does not send them or the client does not keep them",
        "some": "some rows do not report cached tokens",
        "zeros": "the rows that should find 0 do not report cached tokens: the server leaves a 0 out",
    }[parameters["which"]]


FAULTS = (
    Fault(
        name="decode_figure",
        propose=_decode,
        act=_is_decode,
        words=lambda _: (
            "each row reports as many cached tokens as its prompt has, which no prefix can hit: it is "
            "the decode server's figure"
        ),
        remedy=lambda _: _PREFILL,
    ),
    Fault(
        name="doubled_figure",
        propose=_doubled,
        act=_is_doubled,
        words=lambda _: (
            "each row reports exactly twice what it found: both servers of a prefill/decode pair were counted"
        ),
        remedy=lambda _: _PREFILL,
    ),
    Fault(
        name="not_observed",
        propose=_absent,
        says=_says_absent,
        words=_absent_words,
        remedy=lambda view: (
            f"{'; '.join(view.blind)}: give --counters BEFORE AFTER or --requests FILE, since the server "
            "knows what the client drops"
            if view.blind
            else "SGLang: --enable-cache-report. vLLM: --enable-prompt-tokens-details, and "
            "stream_options.include_usage when streaming. Use a client that keeps the figure, or give the "
            "servers' own (--counters, --requests). Where a server leaves it out when it is 0, "
            "`wlgen audit --absent-is-zero` takes your word"
        ),
    ),
)
