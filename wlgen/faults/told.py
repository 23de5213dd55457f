"""Figures that are not what the cache found: another server's, a sum, or none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wlgen.engines import engine
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


def _observe(view: View) -> str:
    """Return what makes the figure seen: never a flag that was on, since some rows have the figure then."""
    own = "give --counters BEFORE AFTER or --requests FILE, since the server knows what the client drops"
    zero = "Where it leaves out a 0, `wlgen audit --absent-is-zero` takes your word"
    if view.blind:
        return f"{'; '.join(view.blind)}: {own}"
    if any(row.cached is not None for row in view.rows):
        return f"The server reports the figure, since some rows have it; for the others {own}. {zero}"
    asked = engine(view.run.rule.engine).report_flag
    return f"{asked} A stream needs stream_options.include_usage, too. Or {own}. {zero}"


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
        remedy=_observe,
    ),
)
