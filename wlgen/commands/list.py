"""`wlgen list`: the kinds that this installation knows."""

from __future__ import annotations

from typing import Annotated

import typer


def command(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """List the known encodings, cache rules, tasks, exporters and readers."""
    import json

    from wlgen import cache_rules, encodings, exporters, readers, registry, tasks

    folders = (encodings, cache_rules, tasks, exporters, readers)
    kinds = {folder.__name__.rsplit(".", 1)[-1]: registry.names(folder) for folder in folders}
    if as_json:
        typer.echo(json.dumps(kinds))
        return
    for kind, known in kinds.items():
        typer.echo(f"{kind.replace('_', ' ')}: {', '.join(known)}")
