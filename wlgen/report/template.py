"""The template of the report's page. Jinja escapes every text; only pictures, drawn in svg.py, are markup."""

from __future__ import annotations

PAGE = """\
{%- macro table(names, lines) -%}
<div class="scroll"><table><thead><tr>
{%- for name in names %}<th scope="col">{{ name }}</th>{% endfor -%}
</tr></thead><tbody>
{%- for line in lines %}<tr>
{%- for text in line %}<td{% if text|length > 40 %} class="words"{% endif %}>{{ text }}</td>{% endfor -%}
</tr>{% endfor -%}
</tbody></table></div>
{%- endmacro -%}
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Audit of {{ audit.name }}</title><style>{{ style }}</style></head>
<body>
<h1>Audit of {{ audit.name }}</h1>
<dl class="identity">
{% for name, value in identity %}<div><dt>{{ name }}</dt><dd>{{ value }}</dd></div>
{% endfor -%}
</dl>
<div class="verdict {{ kind }}">{{ verdict|sentence }}</div>
{% if speeds -%}
<div class="tiles">
{% for tile in speeds -%}
<div class="tile">{{ tile.name }}<b>{{ tile.figure }}</b><span class="soft">{{ tile.note }}</span></div>
{% endfor -%}
</div>
{% endif -%}
<p>Cached tokens of each prompt, three promises that are not the same:</p>
<div class="tiles">
{% for tile in tiles -%}
<div class="tile{{ ' broken' if tile.broken }}">{{ tile.name }}<b>{{ tile.figure }}</b>
<span class="soft">{{ tile.note }}</span></div>
{% endfor -%}
</div>
{% if audit.assumed_zero -%}
<p>{{ audit.assumed_zero }} rows without the figure are taken as 0, as the auditor vouched.</p>
{% endif -%}
{% for line in said -%}
<p>{{ line|sentence|ticked }}</p>
{% endfor -%}
{% if classes %}{{ table(class_names, classes) }}
{% endif -%}
{% if audit.problems -%}
<h2>Could not be read</h2>
{% for problem in audit.problems %}<p>{{ problem|ticked }}</p>
{% endfor -%}
{% endif -%}
{% if audit.findings or audit.diagnosis -%}
<h2>{{ "Findings" if audit.findings else "What is not proved" }}</h2>
{% for cause in audit.diagnosis -%}
<div class="cause"><b>Cause: {{ cause.cause }}</b>, {{ cause.rows|counted("row") }}
<p>{{ cause.evidence|sentence|ticked }}</p><p>{{ cause.remedy|ticked }}</p></div>
{% endfor -%}
{% for promise in broken -%}
<p class="finding"><b>{{ "{:,}".format(promise.count) }} x {{ promise.name }}</b>: {{ promise.meaning }}</p>
{{ table(["row", "expected", "got"], promise.examples) }}
{% if promise.more -%}
<details><summary>{{ promise.more }}</summary>
{{ table(["row", "expected", "got"], promise.folded) }}</details>
{% endif -%}
{% endfor -%}
{% endif -%}
{% if by_rank -%}
<h2>Cached ratio of each request, by rank</h2>
{{ by_rank }}
<h2>Distribution</h2>
{{ distribution }}
{% endif -%}
{% if trajectory %}<h2>Hit ratio in the order sent</h2>
{{ trajectory }}
{% endif -%}
{% if prefixes.picture -%}
<h2>Prefixes</h2>
{{ prefixes.picture }}
<details{{ ' open' if prefixes.open }}><summary>{{ prefixes.which }}</summary>
{{ table(["prefix", "tokens", "rows"], prefixes.lines) }}</details>
{% elif prefixes.missing -%}
<p class="soft">The prefixes are not drawn: {{ prefixes.missing }}</p>
{% endif -%}
{% if by_rank -%}
<h2>By split, rank, group, class and round</h2>
{{ table(["", "rows", "observed", "min", "p1", "p50", "mean", "findings"], summaries) }}
<p class="soft">min, p1 and p50 are ratios of single rows; mean is over all tokens.{{ lowest }}</p>
{% else -%}
<p class="soft">No ratio is drawn or listed, since no row's cached tokens were observed.</p>
{% endif -%}
{% if worst -%}
<h3>Worst rows</h3>
{{ table(["row", "rank", "cached", "planned", "of prompt", "ratio"], worst) }}
{% endif -%}
<h2>Timeline of the {{ timed }} rows</h2>
{{ timeline }}
{% for name, picture in pictures %}<h2>{{ name }}</h2>
{{ picture }}
{% endfor -%}
<h2>Windows</h2>
{% for line in sending -%}
<p>{{ line|sentence|ticked }}</p>
{% endfor -%}
{% for window in windows -%}
{% if window.empty %}<p>{{ window.name }}: no window, {{ window.missing }}.</p>
{% else -%}
<section><h3>{{ window.name }}</h3>
<p>{{ window.headline|sentence }}</p>
{% if window.missing %}<p>{{ window.missing|sentence }}</p>
{% elif window.floor %}<p>Below the floor of {{ window.floor }}: too little to quote.</p>
{% endif %}{{ table(["", "mean", "p50", "p90", "p99", "unit"], window.lines) }}
</section>
{% endif -%}
{% endfor -%}
<p class="soft">Each window counts its own requests and nothing else: those that start in it, each whole, over
its duration. V1 is AISBench up to 3.1.20260630, V2 its main branch since 2026-08-17. Times are the client's
own; mean concurrency is over time.</p>
{% if files -%}
<h2>Files that this audit read</h2>
{{ table(["file", "sha256", "bytes"], files) }}
{% endif -%}
</body></html>
"""
