"""`wlgen plan`: a dry run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wlgen.commands._answer import AsJson, Quiet, show


def command(
    spec: Annotated[Path, typer.Argument(help="The spec, a YAML file.", readable=False)],
    in_flight: Annotated[
        int,
        typer.Option(help="Show the cached ratio in the order sent, with N rows of a rank at a time.", min=0),
    ] = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Say what a spec will give: tokens, pages, the three promises, rows, bytes. Nothing is written."""
    from wlgen.build import outline
    from wlgen.build.ready import blueprint
    from wlgen.commands import _outline_text as outline_text
    from wlgen.spec import file as spec_file

    ready = blueprint(spec_file.load(spec))
    if as_json:
        show("plan", outline.outline(ready, in_flight))
    elif not quiet:
        typer.echo("\n".join(outline_text.lines(ready, in_flight)))


def shape() -> Any:
    """Return the model of what `wlgen plan --json` prints."""
    from wlgen.commands._outline_shape import outline_shape

    return outline_shape()
