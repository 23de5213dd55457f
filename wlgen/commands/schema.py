"""`wlgen schema`: the JSON Schema of a spec, or of what a command prints with --json."""

from __future__ import annotations

from typing import Annotated

import typer

from wlgen.commands._answer import INDENT, schema_of


def command(
    of: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="Of what this command prints with --json, e.g. audit."),
    ] = None,
) -> None:
    """Print the JSON Schema of a spec, with which an editor completes and checks a spec.

    Editors with the YAML language server read it if the first line of the spec names a copy of it:
    # yaml-language-server: $schema=spec.schema.json

    --of COMMAND prints the schema of what that command prints with --json. Every such answer begins with
    {"wlgen": version, "command": name, "ok": whether the exit code is 0}; bad input is
    {"ok": false, "problems": [{"place", "expected", "found", "remedy"}]}.
    """
    import json

    from wlgen.commands import answering
    from wlgen.errors import error
    from wlgen.registry import nearest
    from wlgen.spec.reference import schema

    if of is None:
        typer.echo(json.dumps(schema(), indent=INDENT))
        return
    shapes = answering()
    if of not in shapes:
        known = ", ".join(sorted(shapes))
        raise error("--of", expected=f"one of {known}", found=of, remedy=nearest(of, list(shapes)))
    typer.echo(json.dumps(schema_of(of, shapes[of]()), indent=INDENT))
