"""The pictures of an audit's page that show the sharing: the prefix tree, and the hit ratio as it went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from wlgen.audit.model import Audit, RowOutcome, timed_split
from wlgen.errors import counted
from wlgen.plan.tree import PrefixNode, Stretch, Tree, joined, stretches
from wlgen.report.svg import Axis, box, legend, level, line, plot, words

NODES = 300  # drawn, those with the most rows
LABELLED = 0.12  # of the width, room for a node's words
DEEP = 0.08  # of the height, as above
POINTS = 60  # of the trajectory
VARIES = 0.05  # of a ratio; less is a level line on an axis from 0 to 100 %


def tree_picture(tree: Tree) -> str:
    """Return the picture of the prefix tree: a box for each prefix, wide as its rows, high as its tokens."""
    whole = joined(tree.nodes)
    if len(whole) <= 1:
        return ""
    most = sorted(range(len(whole)), key=lambda n: (-whole[n].rows, n))[:NODES]
    nodes = [whole[n] for n in sorted(most)]  # a parent has at least the rows of its child, so it is there
    rows = sum(node.rows for node in whole if node.depth == 0)
    shapes, deepest = _boxes(nodes, rows)
    axis, across = Axis(0, deepest), Axis(0, rows)
    y = [(1 - axis.part(tick), f"{tick:,.0f}") for tick in axis.ticks(5)]
    x = [(across.part(tick), f"{tick:,.0f}") for tick in across.ticks(8)]
    title = (
        f"{counted(len(whole), 'prefix').removesuffix('s')}{'es' if len(whole) > 1 else ''} of {rows} rows"
    )
    caption = f"{title}: a box is a prefix, as wide as its rows and as high as its tokens (point at it)."
    if len(nodes) < len(whole):
        caption += f" The {len(nodes)} with the most rows are drawn."
    body = plot(shapes, height=min(320, 90 + 60 * max(node.depth for node in nodes)), title=title, x=x, y=y)
    axes = '<p class="soft">Across: formal rows. Down: tokens of the prompt.</p>'
    return f"<figure><figcaption>{caption}</figcaption>{body}{axes}</figure>"


def _boxes(nodes: Sequence[PrefixNode], rows: int) -> tuple[list[str], int]:
    """Return the shapes of the nodes, and the tokens of the longest path."""
    places: list[tuple[int, int]] = []  # left row and first token of each node
    path: list[int] = []
    taken: dict[int, int] = defaultdict(int)  # rows of a node that its children have, so far; -1 for the root
    for number, node in enumerate(nodes):
        del path[node.depth :]
        parent = path[-1] if path else -1
        left, top = (places[parent][0], places[parent][1] + nodes[parent].tokens) if path else (0, 0)
        places.append((left + taken[parent], top))
        taken[parent] += node.rows
        path.append(number)
    deepest = max(top + node.tokens for (_, top), node in zip(places, nodes, strict=True))
    shapes = []
    for (left, top), node in zip(places, nodes, strict=True):
        across = left / rows, (left + node.rows) / rows
        down = 1 - (top + node.tokens) / deepest, 1 - top / deepest
        said = f"{node.name}: {node.tokens:,} tokens, {counted(node.rows, 'row')}"
        shapes.append(box(across, down, "node", tip=said))
        if across[1] - across[0] > LABELLED and down[1] - down[0] > DEEP:
            shapes.append(words(sum(across) / 2, sum(down) / 2, said if node.rows * 4 > rows else node.name))
    return shapes, deepest


def trajectory(audit: Audit) -> str:
    """Return the picture of the cached ratio in the order sent, observed and planned; "" if it is level."""
    sent = _in_order(audit)
    planned = stretches([[(o.row.cached_len, o.row.prompt_len) for o in sent]], POINTS)
    observed = stretches([[o.cached_ratio for o in sent if o.cached_ratio is not None]], POINTS)
    if not any(map(_varies, (planned, observed))):
        return ""
    axis = Axis(0, 100)
    shapes = [level(axis.part(tick), "grid") for tick in axis.ticks(5)]
    for found, kind in ((observed, "seen"), (planned, "plan")):
        shapes.append(line([stretch.cached_ratio for stretch in found], kind))
    across = Axis(0, len(sent))
    x = [(across.part(tick), f"{tick:,.0f}") for tick in across.ticks(8)]
    y = [(axis.part(tick), f"{tick:.4g} %") for tick in axis.ticks(5)]
    rows = counted(len(sent), f"{timed_split(audit.splits)} row")
    caption = f"Cached tokens of all prompt tokens along the {rows} in the order sent"
    if planned[0].stop > 1:
        caption += f", about {planned[0].stop} rows a step"
    body = plot(shapes, height=180, title=caption, x=x, y=y)
    key = legend(("kept", "observed"), ("dash", "planned"))
    return f"<figure><figcaption>{key}<br>{caption}.</figcaption>{body}</figure>"


def _varies(found: Sequence[Stretch]) -> bool:
    ratios = [stretch.cached_ratio for stretch in found]
    return bool(ratios) and max(ratios) - min(ratios) > VARIES


def _in_order(audit: Audit) -> list[RowOutcome]:
    """Return the observed rows in the order of their starts if all are known, else in an export's order."""
    turn: dict[tuple[int, int], int] = defaultdict(int)
    placed: list[tuple[float, int, int, int, RowOutcome]] = []
    for outcome in audit.outcomes:
        row, result = outcome.row, outcome.result
        if row.split != timed_split(audit.splits):
            continue
        turn[row.round, row.dp_rank] += 1
        if result is not None and outcome.cached_ratio is not None:
            start = -1.0 if result.start is None else result.start
            placed.append((start, row.round, turn[row.round, row.dp_rank], row.dp_rank, outcome))
    timed = all(start >= 0 for start, *_ in placed)
    placed.sort(key=lambda place: place[:4] if timed else place[1:4])
    return [outcome for *_, outcome in placed]
