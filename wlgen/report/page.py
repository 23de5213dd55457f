"""The report of an audit as one self-contained page: no network, no script."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wlgen.audit.findings import MEANING
from wlgen.audit.model import Audit, Summary, timed_split
from wlgen.audit.run_figures import Figures
from wlgen.errors import counted, error
from wlgen.plan.tree import Tree, joined
from wlgen.report.charts import by_rank, distribution
from wlgen.report.clock import Clock
from wlgen.report.provenance import Provenance
from wlgen.report.sharing import trajectory, tree_picture
from wlgen.report.speeds import latencies, planned_times, ratio_over_time, running_by_rank, throughput
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
    headline,
    left_out,
    number,
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
    from markupsafe import Markup

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

    fewer, clock = left_out(audit, RANKS), Clock.of(audit)
    return _template().render(
        audit=audit,
        style=Markup(STYLE),  # noqa: S704 (our own)
        kind={"KEPT": "kept", "NOT KEPT": "broken", "NOT PROVED": "unread"}[audit.verdict],
        verdict=verdict(audit),
        identity=[*(provenance.lines() if provenance else []), ("requests", _requests(audit))],
        speeds=list(_speeds(audit)),
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
        timeline=Markup(timeline(audit, clock)),  # noqa: S704
        pictures=[(name, Markup(picture)) for name, picture in _pictures(audit, clock)],  # noqa: S704
        sending=sending(audit),
        windows=[_window(window) for window in audit.windows],
        files=provenance.files() if provenance else [],
    )


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 (only a page needs it)

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=False)
    environment.filters |= {"sentence": _sentence, "counted": counted, "ticked": _ticked}
    return environment.from_string(PAGE)


def _requests(audit: Audit) -> str:
    """Return how many requests were audited and how long they are: "640 rows of 131,076 + 1,024 tokens"."""
    rows = [outcome.row for outcome in audit.outcomes]
    prompts, outputs = {row.prompt_len for row in rows}, {row.output_len for row in rows}
    lens = " and ".join(
        f"{min(found):,}{f' to {max(found):,}' if len(found) > 1 else ''} {name} tokens"
        for found, name in ((prompts, "prompt"), (outputs, "output"))
        if found
    )
    return f"{counted(len(rows), ' and '.join(audit.splits) + ' row')} of {lens}"


def _speeds(audit: Audit) -> Iterator[dict[str, Any]]:
    """Yield the headline of performance, from the whole run, or else from the first window that there is."""
    window = next((window for window in audit.windows if window.members), None)
    if window is None:
        return
    where = WINDOWS[window.name] if window.duration else "durations alone"
    note = where if window.meets_floor else f"{where}, below the floor of {FLOOR}"
    card = window.output_tokens_per_s_per_card
    figures = (
        ("output tokens/s", window.output_tokens_per_s, f"; {number(card)} a card" if card else ""),
        ("input tokens/s", window.prompt_tokens_per_s, ", cached ones too"),
        ("requests/s", window.requests_per_s, ""),
    )
    for name, figure, more in figures:
        if figure is not None:
            yield {"name": name, "figure": number(figure), "note": f"{note}{more}"}
    for name, spread in (("TTFT", window.ttft), ("TPOT", window.tpot)):
        if spread is not None:
            _, p50, _, p99, unit = spread_cells(spread)
            yield {"name": f"{name}, p50 and p99", "figure": f"{p50} and {p99} {unit}", "note": note}


def _pictures(audit: Audit, clock: Clock | None) -> Iterator[tuple[str, str]]:
    """Yield the name of each picture of how the run went, and the picture; none that would be empty."""
    if clock is None:
        return
    found = (
        ("Cached ratio over time, by rank", ratio_over_time(clock)),
        ("Throughput over time", throughput(audit, clock)),
        ("Requests running, by rank", running_by_rank(clock)),
        ("Latencies", latencies(clock)),
        ("Planned and observed times", planned_times(audit, clock)),
    )
    yield from ((name, picture) for name, picture in found if picture)


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
        worst = audit.promises.per_request_min
        low = worst is not None and worst.value < audit.planned.per_request_min
        bad = (broken and low and name == "worst request") or (missed and name == "on aggregate")
        yield {"name": name, "figure": observed or planned, "note": note, "broken": bad}
    above = [o for o in audit.outcomes if o.cached_ratio and o.cached_ratio.cached > o.row.cached_len]
    if broken and above:
        most = max(above, key=lambda o: o.cached_ratio.value if o.cached_ratio else 0.0)
        note = f"{counted(len(above), 'request')} above the plan, as if the prompts had been there before"
        yield {"name": "highest request", "figure": shown(most.cached_ratio), "note": note, "broken": True}


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


def _ticked(text: object) -> Markup:
    """Return a text as markup, what stands in backticks as code: "run `wlgen prepare`"."""
    from markupsafe import Markup, escape  # noqa: PLC0415 (as above)

    parts = str(escape(text)).split("`")
    whole = len(parts) % 2  # an odd backtick is a character like any other
    marked = [f"<code>{part}</code>" if n % 2 and whole else part for n, part in enumerate(parts)]
    return Markup("".join(marked) if whole else "`".join(parts))  # noqa: S704 (each part is escaped)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
