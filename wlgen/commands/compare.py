"""`wlgen compare`: audited runs side by side, and which changes may be quoted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from wlgen.commands._answer import AsJson, Quiet, shape_of, show

if TYPE_CHECKING:
    from wlgen.report.compared import Case, Comparison

_FILE = 24  # characters of a file's name in the ledger


def command(  # noqa: PLR0917 (typer gives each option by name)
    audits: Annotated[
        list[Path],
        typer.Argument(metavar="CASE...", help="Files of `wlgen audit --json`, or folders of them."),
    ],
    window: Annotated[
        Literal["whole", "stable_v1", "stable_v2"],
        typer.Option(help="The window whose figures are compared."),
    ] = "whole",
    because: Annotated[
        str, typer.Option(metavar="TEXT", help="Why the cases differ in more than one thing.")
    ] = "",
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page of the comparison.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare runs: what differs between the cases, and each figure with its change against the first.

    A change is refused where the cases differ in more than one thing without --because, where one window is
    stable and the other whole, where a window is under 128 requests or 60 s, where a run broke its promises,
    and where the sets are not the same. Exit 1 then; the figures are shown all the same.
    """
    from wlgen.report.compared import compare, read_cases
    from wlgen.report.comparison_page import write_comparison
    from wlgen.report.page import check_place
    from wlgen.workload.writer import check_output

    if html is not None:
        check_place(html)
        check_output(html, *(path for path in audits if path.is_file()))
    cases = read_cases(audits, window)
    found = compare(cases, because)
    ok = not any(comparison.refusals for comparison in found)
    if html is not None:
        write_comparison(html, cases, found, because)
    if as_json:
        show("compare", {"because": because, "cases": cases, "comparisons": found}, ok=ok)
    else:
        lines = _refusals(found) if quiet else _lines(cases, found, because)
        for line in lines:
            typer.echo(line)
    raise typer.Exit(0 if ok else 1)


def shape() -> Any:
    """Return the model of what `wlgen compare --json` prints."""
    from wlgen.report.compared import Case, Comparison

    return shape_of("compare", because=str, cases=list[Case], comparisons=list[Comparison])


def _lines(cases: Sequence[Case], found: Sequence[Comparison], because: str) -> Iterator[str]:
    from wlgen.report.compared import acceptance_notes, figure

    heads = ("worst cached", "output tokens/s", "TTFT p50 s", "TPOT p50 s")
    yield f"{'case':{_FILE}} {'promises':10} " + " ".join(f"{head.removesuffix(' s'):>10}" for head in _SHORT)
    for case in cases:
        cells = " ".join(f"{figure(head, case.figures[head]):>10}" for head in heads)
        name = case.file if len(case.file) <= _FILE else f"...{case.file[3 - _FILE :]}"
        yield f"{name:{_FILE}} {case.verdict:10} {cells}"
    if len(cases) == 2:  # noqa: PLR2004
        yield from _pair(cases, found)
    for comparison in found:
        yield ""
        told = [f"{name} {one} -> {other}" for name, (one, other) in comparison.differs.items()]
        yield f"{comparison.file} differs in: {'; '.join(told) or 'nothing that is known'}"
        if len(cases) > 2 and comparison.changes:  # noqa: PLR2004
            yield "  change: " + ", ".join(_changes(comparison))
    yield from acceptance_notes(cases)
    if because:
        yield f"because: {because}"
    if refused := list(_refusals(found)):
        yield ""
        yield from refused


_SHORT = ("worst", "tokens/s", "TTFT p50", "TPOT p50")


def _pair(cases: Sequence[Case], found: Sequence[Comparison]) -> Iterator[str]:
    from wlgen.report.comparison_page import side_by_side

    yield ""
    yield f"{'':17} {'first':>14} {'second':>14} {'change':>14}"
    for name, one, other, changed in side_by_side(cases, found):
        yield f"{name:17} {one:>14} {other:>14} {changed:>14}"


def _changes(comparison: Comparison) -> Iterator[str]:
    from wlgen.report.compared import change

    for name in ("output tokens/s", "TTFT p50 s", "TPOT p50 s"):
        yield f"{name.removesuffix(' s')} {change(name, comparison.changes[name])}"


def _refusals(found: Sequence[Comparison]) -> Iterator[str]:
    for comparison in found:
        for line in comparison.refusals:
            yield f"NO CHANGE QUOTED of {comparison.file}: {line}"
