"""The report of an audit as one self-contained page: no network, no script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from wlgen.audit.findings import MEANING
from wlgen.audit.model import Audit, Summary, timed_split
from wlgen.audit.run_figures import Figures
from wlgen.errors import error
from wlgen.plan.tree import Tree, joined
from wlgen.report.charts import by_rank, distribution
from wlgen.report.sharing import trajectory, tree_picture
from wlgen.report.style import STYLE
from wlgen.report.timeline import timeline
from wlgen.report.words import (
    CLASS_NAMES,
    FLOOR,
    NO_BOUND,
    WINDOWS,
    by_promise,
    class_cells,
    headline,
    lowest_ranks,
    promises,
    recorded,
    shown,
    spread_cells,
    spreads,
    verdict,
)
from wlgen.workload.rows import Finding

EXAMPLES = 5  # findings shown of each broken promise
FOLDED = 200  # more of them behind a fold
CELL = 40  # characters that stand in one line of a table
LISTED = 12  # prefixes, more behind a fold
RANKS = 64  # in the table, the lowest where there are more


def check_place(path: Path) -> None:
    """Raise WlgenError where no page could be written, so that a long audit does not end there."""
    if path.is_dir() or not path.parent.is_dir():
        found = "a folder" if path.is_dir() else "no folder to hold it"
        raise error(str(path), expected="a writable file for the page", found=found)


def write_page(audit: Audit, path: Path, tree: Tree) -> None:
    """Write the page, with the set's prefix tree; WlgenError where the file cannot be written."""
    try:
        path.write_text(page(audit, tree), encoding="utf-8")
    except OSError as failure:
        found = failure.strerror or str(failure)
        raise error(str(path), expected="a writable file for the page", found=found) from failure


def page(audit: Audit, tree: Tree | None = None) -> str:
    """Return the whole page as HTML."""
    title = escape(f"Audit of {audit.name}")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style>"
    )
    body = "\n".join(_body(audit, title, tree or Tree(())))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _body(audit: Audit, title: str, tree: Tree) -> Iterator[str]:
    kind = "unread" if audit.problems else "broken" if audit.findings else "kept"
    yield f"<h1>{title}</h1>"
    yield f'<div class="verdict {kind}">{escape(_sentence(verdict(audit)))}</div>'
    yield from _tiles(audit)
    if audit.assumed_zero:
        yield f"<p>{audit.assumed_zero} rows without the figure are taken as 0, as the auditor vouched.</p>"
    if said := recorded(audit):
        yield f"<p>{escape(_sentence(said))}</p>"
    if lines := class_cells(audit):
        yield _table(CLASS_NAMES, lines)
    if audit.problems:
        yield "<h2>Could not be read</h2>"
        yield from (f"<p><code>{escape(str(problem))}</code></p>" for problem in audit.problems)
    if audit.findings:
        yield "<h2>Findings</h2>"
        yield from _causes(audit)
        yield from _findings(audit.findings)
    yield "<h2>Cached ratio of each request, by rank</h2>"
    yield by_rank(audit)
    yield "<h2>Distribution</h2>"
    yield distribution(audit)
    yield from _sharing(audit, tree)
    yield "<h2>By split and rank</h2>"
    yield from _summaries(audit)
    yield from _worst(audit)
    yield f"<h2>Timeline of the {timed_split(audit.splits)} rows</h2>"
    yield timeline(audit)
    yield "<h2>Windows</h2>"
    yield from _windows(audit.windows)


def _sharing(audit: Audit, tree: Tree) -> Iterator[str]:
    if picture := trajectory(audit):
        yield "<h2>Hit ratio in the order sent</h2>"
        yield picture
    if picture := tree_picture(tree):
        yield "<h2>Prefixes</h2>"
        yield picture
        nodes = joined(tree.nodes)
        cells = ([node.name, f"{node.tokens:,}", f"{node.rows:,}"] for node in nodes[:FOLDED])
        table = _table(["prefix", "tokens", "rows"], cells)
        which = "Each prefix" if len(nodes) <= FOLDED else f"The first {FOLDED} of {len(nodes):,} prefixes"
        is_open = " open" if len(nodes) <= LISTED else ""
        yield f"<details{is_open}><summary>{which}</summary>{table}</details>"
    elif tree.missing:
        yield f'<p class="soft">The prefixes are not drawn: {escape(tree.missing)}</p>'


def _tiles(audit: Audit) -> Iterator[str]:
    broken = any(f.promise.startswith("cached") for f in audit.findings)
    missed = any(f.promise == "aggregate" for f in audit.findings)
    yield "<p>Cached tokens of each prompt, three promises that are not the same:</p>"
    yield '<div class="tiles">'
    for name, planned, observed in promises(audit):
        bad = (broken and name == "worst request") or (missed and name == "on aggregate")
        kind = "tile broken" if bad else "tile"
        note = f"planned {planned}" if observed else "as the set was built"
        if name.startswith("configured"):
            each = "all formal requests together" if "aggregate" in name else "each check and formal request"
            note = f"what the spec asks of {each}"
            if NO_BOUND in name:
                note = "each request finds what those before it have left, as planned"
        yield f'<div class="{kind}">{escape(name)}<b>{escape(observed or planned)}</b>'
        yield f'<span class="soft">{note}</span></div>'
    yield "</div>"


def _causes(audit: Audit) -> Iterator[str]:
    for diagnosis in audit.diagnosis:
        rows = "1 row" if diagnosis.rows == 1 else f"{diagnosis.rows:,} rows"
        yield f'<div class="cause"><b>Cause: {escape(diagnosis.cause)}</b>, {rows}'
        yield f"<p>{escape(_sentence(diagnosis.evidence))}</p><p>{escape(diagnosis.remedy)}</p></div>"


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    for promise, found in by_promise(findings).items():
        meaning = escape(MEANING[promise])
        yield f'<p class="finding"><b>{len(found):,} x {escape(promise)}</b>: {meaning}</p>'
        names = ["row", "expected", "got"]
        cells = [[f.id, str(f.expected), str(f.got)] for f in found[: EXAMPLES + FOLDED]]
        yield _table(names, cells[:EXAMPLES])
        if len(found) > EXAMPLES:
            more = f"{len(cells) - EXAMPLES:,} more"
            if len(found) > len(cells):
                more += f" of {len(found) - EXAMPLES:,} (--json lists them all)"
            yield f"<details><summary>{more}</summary>{_table(names, cells[EXAMPLES:])}</details>"


def _worst(audit: Audit) -> Iterator[str]:
    short = [
        (o.row, o.cached_ratio)
        for o in audit.worst
        if o.cached_ratio and o.cached_ratio.cached < o.row.cached_len and o.findings
    ]
    if short:
        yield "<h3>Worst rows</h3>"
        cells = (
            [
                row.id,
                str(row.dp_rank),
                f"{ratio.cached:,}",
                f"{row.cached_len:,}",
                f"{ratio.prompt:,}",
                shown(ratio),
            ]
            for row, ratio in short
        )
        yield _table(["row", "rank", "cached", "planned", "of prompt", "ratio"], cells)


def _summaries(audit: Audit) -> Iterator[str]:
    ranks = lowest_ranks(audit.by_rank, RANKS)
    names = ["", "rows", "observed", "min", "p1", "p50", "mean", "findings"]
    yield _table(names, (_summary(s) for s in (*audit.by_split, *ranks)))
    note = "min, p1 and p50 are ratios of single rows; mean is over all tokens."
    if len(ranks) < len(audit.by_rank):
        note += f" The {len(ranks)} lowest of {len(audit.by_rank)} ranks."
    yield f'<p class="soft">{note}</p>'


def _summary(summary: Summary) -> list[str]:
    name = f"all {summary.split}" if summary.dp_rank is None else f"{summary.split}, rank {summary.dp_rank}"
    ratios = (summary.minimum, summary.p1, summary.p50, summary.mean)
    findings = str(summary.findings) if summary.findings else ""
    return [name, str(summary.rows), str(summary.observed), *map(shown, ratios), findings]


def _windows(windows: Sequence[Figures]) -> Iterator[str]:
    yield from (f"<section>{''.join(_window(window))}</section>" for window in windows)
    yield (
        '<p class="soft">Each window counts its own requests and nothing else: those that start in it, '
        "each whole, over its duration. V1 is AISBench up to 3.1.20260630, V2 its main branch since "
        "2026-08-17. Times are the client's own; mean concurrency is over time.</p>"
    )


def _window(window: Figures) -> Iterator[str]:
    name = WINDOWS[window.name]
    yield f"<h3>{name[:1].upper()}{name[1:]}</h3>"
    if not window.members:
        yield f"<p>No window: {escape(window.missing)}.</p>"
        return
    yield f"<p>{escape(_sentence(', '.join(headline(window))))}</p>"
    if window.missing:
        yield f"<p>{escape(_sentence(window.missing))}</p>"
    elif not window.meets_floor:
        yield f"<p>Below the floor of {FLOOR}: too little to quote.</p>"
    cells = ([name, *spread_cells(spread)] for name, spread in spreads(window))
    yield _table(["", "mean", "p50", "p90", "p99", "unit"], cells)


def _table(names: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    rows = "".join(f"<tr>{''.join(map(_cell, line))}</tr>" for line in lines)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cell(text: str) -> str:
    long = ' class="words"' if len(text) > CELL else ""
    return f"<td{long}>{escape(text)}</td>"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
