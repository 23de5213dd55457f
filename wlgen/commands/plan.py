"""`wlgen plan`: a dry run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    spec: Annotated[Path, typer.Argument(help="The spec, a YAML file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Say what a spec will give: tokens, pages, the three promises, rows, bytes. Nothing is written."""
    import json

    from wlgen import build, outline, spec_file

    ready = build.blueprint(spec_file.load(spec))
    typer.echo(json.dumps(outline.outline(ready)) if as_json else "\n".join(outline.lines(ready)))
