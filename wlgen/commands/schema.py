"""`wlgen schema`: the JSON Schema of a spec."""

from __future__ import annotations

import typer


def command() -> None:
    """Print the JSON Schema of a spec, with which an editor completes and checks a spec.

    Editors with the YAML language server read it if the first line of the spec names a copy of it:
    # yaml-language-server: $schema=spec.schema.json
    """
    import json

    from wlgen.spec.reference import schema

    typer.echo(json.dumps(schema(), indent=2))
