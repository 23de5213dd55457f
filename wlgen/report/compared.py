"""Audits of several cases side by side: what differs between them, and which changes may be quoted.

Each case is held against the first one. A change is quoted only where it can mean what it seems to say: of
two runs that kept their promises on one set, over windows of one kind that are long enough, and that differ
in one named thing. Where something forbids it, each reason is a line, and the figures still stand there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import orjson
from pydantic import TypeAdapter, ValidationError

from wlgen.audit.model import Verdict
from wlgen.audit.run_figures import Figures
from wlgen.errors import Problem, WlgenError, counted
from wlgen.report.provenance import Provenance
from wlgen.report.words import FLOOR, WINDOWS

_WRITER = "what `wlgen audit --json` prints"
_REMEDY = "Write one: wlgen audit SET RESULTS --json > case.json"
_SHA = 12  # digits of a fingerprint that a person reads
_OPTIONS = ("concurrency", "rate", "cards", "split")  # what a person said of the run
_SPREADS = ("ttft", "tpot", "e2el")
_RATIOS = ("worst cached", "cached in all")  # changes of a ratio are points, of all else percent


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPromises:
    """The cached ratios of a case, None where nobody observed them."""

    aggregate: float | None
    per_request_min: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedAcceptance:
    """The acceptance length of a case's whole run, and what such lengths are like on its tasks."""

    length: float
    tasks: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedCase:
    """What a comparison reads of an audit's JSON; the keys are those that `wlgen audit --json` prints."""

    command: Literal["audit"]
    set: str
    verdict: Verdict
    promises: ObservedPromises
    windows: tuple[Figures, ...]
    acceptance: ObservedAcceptance | None
    provenance: Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One audited run.

    window: the one whose figures are compared. missing: why it is not the one asked for, or why it has none.
    named: what a person can name of it, such as {"concurrency": "32"}. figures: None is not observed; the
    acceptance length is of the whole run, whatever the window. tasks: what that length is like on the set's
    tasks.
    """

    file: str
    set: str
    set_sha256: str
    verdict: Verdict
    window: str
    missing: str
    meets_floor: bool
    requests: int
    seconds: float | None
    named: Mapping[str, str]
    figures: Mapping[str, float | None]
    tasks: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A case beside the first one. differs: by name, (of the first, of this one). refusals: a line each.

    changes: of a ratio in points, of any other figure in percent of the first case's; None where either is
    not observed. Empty where anything refuses the change.
    """

    file: str
    differs: Mapping[str, tuple[str, str]]
    refusals: tuple[str, ...]
    changes: Mapping[str, float | None]


def read_cases(paths: Sequence[Path], window: str) -> list[Case]:
    """Return the cases of audit files, in the order given; a folder stands for its *.json, by name.

    In a folder other JSON, such as a scrape of counters, is passed over. WlgenError lists each file that is
    no audit, and refuses fewer than two cases.
    """
    cases: list[Case] = []
    problems: list[Problem] = []
    for path in paths:
        for each in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            found = _read(each)
            if isinstance(found, AuditedCase):
                cases.append(_case(str(each), found, window))
            elif not (path.is_dir() and found.found.startswith("another")):
                problems.append(found)
    if not problems and len(cases) < 2:  # noqa: PLR2004
        expected, found_words = "two audits or more", "none" if not cases else f"{cases[0].file} alone"
        place = ", ".join(map(str, paths))
        problems.append(Problem(place=place, expected=expected, found=found_words, remedy=_REMEDY))
    if problems:
        raise WlgenError(*problems)
    return cases


def _read(path: Path) -> AuditedCase | Problem:
    try:
        content = orjson.loads(path.read_bytes())
    except OSError as failure:
        found = failure.strerror or str(failure)
        return Problem(place=str(path), expected=_WRITER, found=found, remedy=_REMEDY)
    except orjson.JSONDecodeError as failure:
        return Problem(place=str(path), expected=_WRITER, found=f"no JSON: {failure}", remedy=_REMEDY)
    if not isinstance(content, dict) or content.get("command") != "audit":
        return Problem(place=str(path), expected=_WRITER, found="another JSON file", remedy=_REMEDY)
    try:
        return TypeAdapter(AuditedCase).validate_json(orjson.dumps(content), strict=True)
    except ValidationError as failure:
        first = failure.errors()[0]
        key = ".".join(map(str, first["loc"]))
        found = f"{key}: {first['msg']}"
        remedy = "Audit the run again with this version of wlgen."
        return Problem(place=str(path), expected=_WRITER, found=found, remedy=remedy)


def _case(file: str, audited: AuditedCase, window: str) -> Case:
    by_name = {each.name: each for each in audited.windows}
    asked = by_name.get(window)
    there = asked if asked and asked.members else by_name["whole"]
    source = audited.provenance
    options = {name: source.options.get(name, "not said") for name in _OPTIONS}
    return Case(
        file=file,
        set=audited.set,
        set_sha256=source.set_sha256,
        verdict=audited.verdict,
        window=there.name,
        missing=asked.missing if asked else "the audit has no such window",
        meets_floor=there.meets_floor,
        requests=there.members,
        seconds=there.duration,
        named={
            "set": f"{audited.set} {source.set_sha256[:_SHA]}",
            "engine": source.engine,
            "cache rule": source.rule,
            "ranks": str(source.dp_ranks),
            "client": ", ".join(source.clients) or "none",
            **{name: _option(value) for name, value in options.items()},
        },
        figures={
            "worst cached": audited.promises.per_request_min,
            "cached in all": audited.promises.aggregate,
            "requests/s": there.requests_per_s,
            "output tokens/s": there.output_tokens_per_s,
            "tokens/s/card": there.output_tokens_per_s_per_card,
            **_latencies(there),
            "acceptance length": audited.acceptance.length if audited.acceptance else None,
            "running": there.mean_concurrency,
        },
        tasks=audited.acceptance.tasks if audited.acceptance else {},
    )


def _option(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _latencies(window: Figures) -> dict[str, float | None]:
    spreads = {name: getattr(window, name) for name in _SPREADS}
    return {
        f"{name.upper()} {point} s": None if spread is None else getattr(spread, point)
        for name, spread in spreads.items()
        for point in ("p50", "p99")
    }


def compare(cases: Sequence[Case], because: str = "") -> list[Comparison]:
    """Return each case after the first beside the first. because: why cases may differ in several things."""
    return [_beside(cases[0], case, because) for case in cases[1:]]


def _beside(first: Case, case: Case, because: str) -> Comparison:
    differs = {
        name: (value, case.named[name]) for name, value in first.named.items() if value != case.named[name]
    }
    refusals = tuple(_refusals(first, case, differs, because))
    changes = {} if refusals else {name: _change(name, first, case) for name in first.figures}
    return Comparison(file=case.file, differs=differs, refusals=refusals, changes=changes)


def _refusals(first: Case, case: Case, differs: Mapping[str, tuple[str, str]], because: str) -> Iterator[str]:
    """Yield a line for each reason for which no change may be quoted."""
    if first.set_sha256 != case.set_sha256:
        prints = f"{first.set_sha256[:_SHA]} and {case.set_sha256[:_SHA]}"
        yield f"the sets differ: their fingerprints are {prints}"
    if len(differs) > 1 and not because:
        told = "; ".join(f"{name} {one} and {other}" for name, (one, other) in differs.items())
        yield f"the cases differ in {len(differs)} things, so none of them is the cause: {told}"
    if first.window != case.window:
        short = case if case.missing else first
        windows = f"the {WINDOWS[first.window]} beside the {WINDOWS[case.window]}"
        yield f"windows of two kinds stand side by side: {windows} ({short.file}: {short.missing})"
    for each in (first, case):
        if not each.requests:
            yield f"{each.file} has no figures: {each.missing}"
        elif not each.meets_floor:
            seconds = "of no known length" if each.seconds is None else f"in {each.seconds:.1f} s"
            yield f"{each.file} is under the floor of {FLOOR}: {counted(each.requests, 'request')} {seconds}"
    for each in (first, case):
        if each.verdict != "KEPT":
            yield f"{each.file}: its promises are {each.verdict}"


def acceptance_notes(cases: Sequence[Case]) -> list[str]:
    """Return what a reader must know of the acceptance lengths of some cases; nothing where none has one."""
    tasks = {name: like for case in cases for name, like in case.tasks.items()}
    if not tasks:
        return []
    said = (f"acceptance on the task {name}: {like}" for name, like in tasks.items())
    return ["acceptance length: of the whole run, whatever the window", *said]


def _change(name: str, first: Case, case: Case) -> float | None:
    before, after = first.figures[name], case.figures[name]
    if before is None or after is None:
        return None
    if name in _RATIOS:
        return 100 * (after - before)
    return 100 * (after - before) / before if before else None


def figure(name: str, value: float | None) -> str:
    """Return a figure as a person reads it: 90.62 %, 1,234, 0.0421; "-" where nobody observed it."""
    if value is None:
        return "-"
    if name in _RATIOS:
        return f"{int(value * 1e4) / 100:.2f} %"  # cut, so that no ratio reaches a bound that it misses
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004


def change(name: str, value: float | None) -> str:
    """Return a change as a person reads it: +12.3 %, and -0.25 points of a ratio."""
    if value is None:
        return "-"
    return f"{value:+.2f} points" if name in _RATIOS else f"{value:+.1f} %"
