"""`wlgen verify`: prove a set from its files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    folder: Annotated[Path, typer.Argument(help="A built set, output/<name>.")],
    full: Annotated[
        bool, typer.Option("--full", help="Encode every row whole, also what rows share.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print findings only.")] = False,
) -> None:
    """Prove a set from its files alone: hashes, ids, sharing, text, cached tokens, counts."""
    import dataclasses
    import json

    from wlgen.commands._progress import rows_bar
    from wlgen.verify.verify import verify
    from wlgen.workload.opened import open_workload

    workload = open_workload(folder)
    with rows_bar(quiet=quiet or as_json) as progress:
        verified = verify(workload, full=full, progress=progress)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(verified) | {"holds": not verified.findings}))
    for finding in verified.findings if not as_json else ():
        typer.echo(f"{finding.id}: {finding.promise}: expected {finding.expected}, got {finding.got}")
    if not quiet and not as_json:
        built, ranks = len(workload.manifest.ranks), workload.manifest.dp_ranks
        part = "" if built == ranks else f" (a part, {built} of {ranks} ranks)"
        read = f"{verified.rows} rows, {verified.tokens} tokens"
        typer.echo(f"{folder}{part}: {read}, {len(verified.findings)} findings")
    raise typer.Exit(1 if verified.findings else 0)
