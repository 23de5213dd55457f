"""The report of an audit for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wlgen.audit.findings import MEANING
from wlgen.audit.model import Audit, OneRow
from wlgen.audit.run_figures import Figures
from wlgen.errors import counted
from wlgen.report.words import (
    CLASS_NAMES,
    FLOOR,
    WINDOWS,
    at_zero,
    by_kind,
    by_promise,
    class_cells,
    headline,
    left_out,
    promises,
    recorded,
    sending,
    shown,
    spread_cells,
    spreads,
    unseen,
    verdict,
    witnesses,
)
from wlgen.workload.rows import Finding

EXAMPLES = 3  # of each broken promise
RANKS = 16  # the lowest ranks, groups, classes and rounds, where there are more


def _causes(audit: Audit) -> list[RenderableType]:
    """Return the causes, the rows without one, what was assumed, and the row that somebody asks about."""
    parts: list[RenderableType] = []
    for diagnosis in audit.diagnosis:
        parts += ["", Text(f"cause: {diagnosis.cause} ({counted(diagnosis.rows, 'row')})", style="bold")]
        parts += [Text(f"  {diagnosis.evidence}."), Text(f"  {diagnosis.remedy}")]
    if unexplained := audit.explained.unexplained:
        rows = f"{len(unexplained)} row{'s' * (len(unexplained) != 1)}"
        parts += [
            "",
            Text(f"unexplained: {rows}, the first {unexplained[0]}; no known cause fits what was seen"),
        ]
    if audit.diagnosis and audit.explained.assumed:
        parts += ["", Text(f"assumed: {'; '.join(audit.explained.assumed)}.")]
    if audit.explained.row:
        parts += ["", *map(Text, _one_row(audit.explained.row))]
    return parts


def _one_row(row: OneRow) -> Iterator[str]:
    """Yield what each cause that no row contradicts predicts of one row."""
    found = "no figure" if row.cached is None else f"{row.cached} cached tokens"
    yield f"{row.id}: planned {row.planned} cached tokens, found {found}"
    if not row.predictions:
        yield "  nothing deviates that a cause would explain, so nothing was replayed"
    for each in row.predictions:
        figures = " or ".join("no figure" if f is None else str(f) for f in each.figures)
        says = f"predicts {figures}" if figures else "predicts no other figure"
        explains = ", as was seen" if each.explains else ""
        yield f"  {each.words} [{each.cause}]: {says}{explains}"


def terminal(audit: Audit) -> Group:
    """Return what a person reads: verdict, promises, splits and ranks, findings, causes, windows."""
    parts: list[RenderableType] = [_verdict(audit), "", _promises(audit), ""]
    if lines := class_cells(audit):
        classes = _table(*CLASS_NAMES[:2], *(f"{name} %" for name in CLASS_NAMES[2:]))
        for line in lines:
            classes.add_row(*line[:2], *(cell.removesuffix(" %") for cell in line[2:]))
        parts += [classes, ""]
    parts.append(_summaries(audit))
    if audit.findings:
        parts += ["", *_findings(audit.findings), *_worst(audit)]
    parts += _causes(audit)
    if said := sending(audit):
        parts += ["", *map(Text, said)]
    why = {window.missing for window in audit.windows if not window.members}
    if len(why) == 1 and not any(window.members for window in audit.windows):
        parts += ["", Text(f"no throughput and no latencies: {why.pop()}")]
    else:
        for window in audit.windows:
            parts += ["", *_window(window)]
    return Group(*parts)


def _verdict(audit: Audit) -> Text:
    styles = {"KEPT": "bold green", "NOT KEPT": "bold red", "NOT PROVED": "bold yellow"}
    style = "bold yellow" if audit.problems else styles[audit.verdict]
    line = Text(f"{audit.name}: {verdict(audit)}", style=style)
    if audit.assumed_zero:
        line.append(
            f"\n{counted(audit.assumed_zero, 'row')} without the figure are taken as 0, as you vouched",
            "default",
        )
    for said in filter(None, (at_zero(audit), recorded(audit), unseen(audit), *witnesses(audit))):
        line.append(f"\n{said}", "default")
    return line


def verdict_lines(audit: Audit) -> Text:
    """Return the verdict, and who says so or what nobody observed."""
    return _verdict(audit)


def _promises(audit: Audit) -> Table:
    table = _table("cached tokens of each prompt", "planned", "observed")
    for line in promises(audit):
        table.add_row(*line)
    return table


def _summaries(audit: Audit) -> Table:
    table = _table("cached", "rows", "observed", "min %", "p1 %", "p50 %", "mean %", "findings")
    for name, summary in by_kind(audit, RANKS):
        ratios = (summary.minimum, summary.p1, summary.p50, summary.mean)
        counts = (str(summary.rows), str(summary.observed))
        cells = (shown(ratio).removesuffix(" %") if ratio else "-" for ratio in ratios)
        table.add_row(name, *counts, *cells, str(summary.findings) if summary.findings else "")
    for others in left_out(audit, RANKS):
        table.add_row(f"  {others}")
    return table


def _findings(findings: Sequence[Finding]) -> Iterator[Text]:
    for promise, found in by_promise(findings).items():
        yield Text(f"{len(found)} x {promise}: {MEANING[promise]}", style="red")
        for finding in found[:EXAMPLES]:
            yield Text(f"  {finding.id}: expected {finding.expected}, got {finding.got}")
        if len(found) > EXAMPLES:
            yield Text(f"  and {len(found) - EXAMPLES} more (--json lists them all)")


def _worst(audit: Audit) -> Iterator[RenderableType]:
    short = [
        (o.row, o.cached_ratio)
        for o in audit.worst
        if o.cached_ratio and o.cached_ratio.cached < o.row.cached_len and o.findings
    ]
    if short:
        yield ""
        table = _table("worst rows", "rank", "cached", "planned", "of prompt", "ratio")
        for row, ratio in short:
            cells = (row.dp_rank, ratio.cached, row.cached_len, ratio.prompt)
            table.add_row(row.id, *map(str, cells), shown(ratio))
        yield table


def _window(window: Figures) -> Iterator[RenderableType]:
    name = Text(WINDOWS[window.name], style="bold")
    if not window.members:
        yield name.append(f": no window, {window.missing}", "default")
        return
    yield name.append(f": {', '.join(headline(window))}", "default")
    if window.missing:
        yield Text(f"  {window.missing}")
    elif not window.meets_floor:
        yield Text(f"  below the floor of {FLOOR}: too little to quote")
    table = _table("", "mean", "p50", "p90", "p99", "")
    for latency, spread in spreads(window):
        table.add_row(f"  {latency}", *spread_cells(spread))
    yield table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=True)
    for other in others:
        table.add_column(other, justify="right", no_wrap=True)
    return table
