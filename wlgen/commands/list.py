"""`wlgen list`: the kinds that this installation knows."""

from __future__ import annotations

from typing import Annotated

import typer


def command(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """List the known encodings, cache rules, tasks, exporters, readers and witnesses."""
    import json

    from wlgen import registry

    kinds = registry.all_names()
    if as_json:
        typer.echo(json.dumps(kinds))
        return
    for kind, known in kinds.items():
        typer.echo(f"{kind.replace('_', ' ')}: {', '.join(known)}")
