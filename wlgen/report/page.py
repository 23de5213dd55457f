"""The report of an audit as one self-contained page: no network, no script."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wlgen.audit.findings import MEANING
from wlgen.audit.model import Audit, Summary, timed_split
from wlgen.audit.run_figures import Figures
from wlgen.errors import error
from wlgen.plan.tree import Tree, joined
from wlgen.report.charts import by_rank, distribution
from wlgen.report.provenance import Provenance
from wlgen.report.sharing import trajectory, tree_picture
from wlgen.report.style import STYLE
from wlgen.report.template import PAGE
from wlgen.report.timeline import timeline
from wlgen.report.words import (
    CLASS_NAMES,
    FLOOR,
    NO_BOUND,
    WINDOWS,
    at_zero,
    by_kind,
    by_promise,
    class_cells,
    counted,
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

if TYPE_CHECKING:
    from jinja2 import Template

EXAMPLES = 5  # findings shown of each broken promise
FOLDED = 200  # more of them behind a fold
LISTED = 12  # prefixes, more behind a fold
RANKS = 64  # of ranks, groups, classes and rounds in the table, the lowest where there are more


def check_place(path: Path) -> None:
    """Raise WlgenError where no page could be written, so that a long audit does not end there."""
    if path.is_dir() or not path.parent.is_dir():
        found = "a folder" if path.is_dir() else "no folder to hold it"
        raise error(str(path), expected="a writable file for the page", found=found)


def write_page(audit: Audit, path: Path, tree: Tree, provenance: Provenance) -> None:
    """Write the page with the set's prefix tree; WlgenError where the file cannot be written."""
    try:
        path.write_text(page(audit, tree, provenance), encoding="utf-8")
    except OSError as failure:
        found = failure.strerror or str(failure)
        raise error(str(path), expected="a writable file for the page", found=found) from failure


def page(audit: Audit, tree: Tree | None = None, provenance: Provenance | None = None) -> str:
    """Return the whole page as HTML."""
    from markupsafe import Markup  # noqa: PLC0415 (only a page needs it)

    fewer = left_out(audit, RANKS)
    return _template().render(
        audit=audit,
        style=Markup(STYLE),  # noqa: S704 (our own)
        kind={"KEPT": "kept", "NOT KEPT": "broken", "NOT PROVED": "unread"}[audit.verdict],
        verdict=verdict(audit),
        tiles=list(_tiles(audit)),
        said=[line for line in (at_zero(audit), recorded(audit), unseen(audit), *witnesses(audit)) if line],
        class_names=CLASS_NAMES,
        classes=class_cells(audit),
        broken=list(_broken(audit)),
        by_rank=Markup(by_rank(audit)),  # noqa: S704 (the pictures escape their own words)
        distribution=Markup(distribution(audit)),  # noqa: S704
        trajectory=Markup(trajectory(audit)),  # noqa: S704
        prefixes=_prefixes(tree or Tree(())),
        summaries=[_summary(name, summary) for name, summary in by_kind(audit, RANKS)],
        lowest=f" The lowest are shown; {' and '.join(fewer)} are not." if fewer else "",
        worst=list(_worst(audit)),
        timed=timed_split(audit.splits),
        timeline=Markup(timeline(audit)),  # noqa: S704
        sending=sending(audit),
        windows=[_window(window) for window in audit.windows],
        provenance=provenance.lines() if provenance else [],
        files=provenance.files() if provenance else [],
    )


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 (only a page needs it)

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=False)
    environment.filters |= {"sentence": _sentence, "counted": counted}
    return environment.from_string(PAGE)


def _tiles(audit: Audit) -> Iterator[dict[str, Any]]:
    broken = any(f.promise.startswith("cached") for f in audit.findings)
    missed = any(f.promise == "aggregate" for f in audit.findings)
    for name, planned, observed in promises(audit):
        note = f"planned {planned}" if observed else "as the set was built"
        if name.startswith("configured"):
            each = "all formal requests together" if "aggregate" in name else "each check and formal request"
            note = f"what the spec asks of {each}"
            if NO_BOUND in name:
                note = "each request finds what those before it have left, as planned"
        bad = (broken and name == "worst request") or (missed and name == "on aggregate")
        yield {"name": name, "figure": observed or planned, "note": note, "broken": bad}


def _broken(audit: Audit) -> Iterator[dict[str, Any]]:
    """Yield each broken promise with a few examples, and more of them behind a fold."""
    for promise, found in by_promise(audit.findings).items():
        cells = [[f.id, str(f.expected), str(f.got)] for f in found[: EXAMPLES + FOLDED]]
        more = f"{len(cells) - EXAMPLES:,} more" if len(found) > EXAMPLES else ""
        if len(found) > len(cells):
            more += f" of {len(found) - EXAMPLES:,} (--json lists them all)"
        yield {
            "name": promise,
            "count": len(found),
            "meaning": MEANING[promise],
            "examples": cells[:EXAMPLES],
            "folded": cells[EXAMPLES:],
            "more": more,
        }


def _prefixes(tree: Tree) -> dict[str, Any]:
    from markupsafe import Markup  # noqa: PLC0415 (as above)

    nodes = joined(tree.nodes)
    return {
        "picture": Markup(tree_picture(tree)),  # noqa: S704 (as above)
        "missing": tree.missing,
        "open": len(nodes) <= LISTED,
        "which": "Each prefix" if len(nodes) <= FOLDED else f"The first {FOLDED} of {len(nodes):,} prefixes",
        "lines": [[node.name, f"{node.tokens:,}", f"{node.rows:,}"] for node in nodes[:FOLDED]],
    }


def _worst(audit: Audit) -> Iterator[list[str]]:
    for outcome in audit.worst:
        row, ratio = outcome.row, outcome.cached_ratio
        if ratio and ratio.cached < row.cached_len and outcome.findings:
            counts = (f"{ratio.cached:,}", f"{row.cached_len:,}", f"{ratio.prompt:,}")
            yield [row.id, str(row.dp_rank), *counts, shown(ratio)]


def _summary(name: str, summary: Summary) -> list[str]:
    name = name.strip() if summary.by != "split" else f"all {name}"
    ratios = (summary.minimum, summary.p1, summary.p50, summary.mean)
    findings = str(summary.findings) if summary.findings else ""
    return [name, str(summary.rows), str(summary.observed), *map(shown, ratios), findings]


def _window(window: Figures) -> dict[str, Any]:
    name = WINDOWS[window.name]
    return {
        "name": name[:1].upper() + name[1:],
        "empty": not window.members,
        "missing": window.missing,
        "headline": ", ".join(headline(window)) if window.members else "",
        "floor": "" if window.meets_floor else FLOOR,
        "lines": [[name, *spread_cells(spread)] for name, spread in spreads(window)]
        if window.members
        else [],
    }


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
