"""The page of a comparison, one self-contained file. Jinja escapes every text by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wlgen.errors import error
from wlgen.report.compared import Case, Comparison, acceptance_notes, change, figure
from wlgen.report.style import STYLE
from wlgen.report.words import WINDOWS

_PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ cases|length }} cases compared</title><style>{{ style }}</style></head>
<body>
<h1>{{ cases|length }} cases compared</h1>
<div class="verdict {{ 'broken' if refused else 'kept' }}">
{%- if refused %}No change is quoted of {{ refused }} of {{ comparisons|length }} comparisons
{%- else %}Every change may be quoted{% endif %}</div>
{% if because %}<p>Why the cases differ in more than one thing: {{ because }}</p>
{% endif -%}
<h2>The cases</h2>
<div class="scroll"><table><thead><tr><th scope="col">case</th><th scope="col">promises</th>
<th scope="col">window</th>
{%- for name in named %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead><tbody>
{% for case in cases %}<tr><td>{{ case.file }}</td><td>{{ case.verdict }}</td>
<td>{{ windows[case.window] }}</td>
{%- for name in named %}<td>{{ case.named[name] }}</td>{% endfor %}</tr>
{% endfor -%}
</tbody></table></div>
<h2>Figures</h2>
<div class="scroll"><table><thead><tr><th scope="col"></th>
{%- for case in cases %}<th scope="col">{{ case.file }}</th>{% if not loop.first %}<th scope="col">change</th>
{%- endif %}{% endfor %}</tr></thead><tbody>
{% for line in lines %}<tr>{% for cell in line %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor -%}
</tbody></table></div>
<p class="soft">Each change is against the first case. A change of a cached ratio is in points, of any other
figure in percent.</p>
{% for note in notes %}<p class="soft">{{ note }}.</p>
{% endfor -%}
{% for comparison in comparisons if comparison.refusals -%}
<h2>No change is quoted of {{ comparison.file }}</h2>
<ul>{% for line in comparison.refusals %}<li>{{ line }}</li>{% endfor %}</ul>
{% endfor -%}
</body></html>
"""


def write_comparison(path: Path, cases: Sequence[Case], found: Sequence[Comparison], because: str) -> None:
    """Write the page; WlgenError where the file cannot be written."""
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 (only a page needs it)
    from markupsafe import Markup  # noqa: PLC0415

    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_PAGE)
    html = template.render(
        cases=cases,
        comparisons=found,
        because=because,
        named=list(cases[0].named),
        windows=WINDOWS,
        style=Markup(STYLE),  # noqa: S704 (our own)
        refused=sum(bool(comparison.refusals) for comparison in found),
        lines=side_by_side(cases, found),
        notes=acceptance_notes(cases),
    )
    try:
        path.write_text(html, encoding="utf-8")
    except OSError as failure:
        found_ = failure.strerror or str(failure)
        raise error(str(path), expected="a writable file for the page", found=found_) from failure


def side_by_side(cases: Sequence[Case], found: Sequence[Comparison]) -> list[list[str]]:
    """Return a line for each figure: its name, the first case's, and (figure, change) of each other case."""
    lines = []
    for name in cases[0].figures:
        if all(case.figures[name] is None for case in cases):
            continue
        line = [name, figure(name, cases[0].figures[name])]
        for case, comparison in zip(cases[1:], found, strict=True):
            line += [figure(name, case.figures[name]), change(name, comparison.changes.get(name))]
        lines.append(line)
    return lines
