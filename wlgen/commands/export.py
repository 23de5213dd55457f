"""`wlgen export`: a set into the files of a benchmark client, with a run card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wlgen.commands._answer import AsJson, Quiet, shape_of, show
from wlgen.errors import counted


def command(  # noqa: PLR0917 (typer gives each option by name)
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The set: the folder that build wrote.")],
    to: Annotated[str, typer.Option(help="The client; `wlgen list` names those that are known.")],
    output: Annotated[Path, typer.Option(help="The folder to write; an earlier export there is replaced.")],
    split: Annotated[list[str] | None, typer.Option(help="Only this split (repeatable).")] = None,
    rank: Annotated[list[int] | None, typer.Option(help="Only this rank (repeatable).")] = None,
    of_round: Annotated[
        list[int] | None, typer.Option("--round", help="Only this round, of a set of several (repeatable).")
    ] = None,
    form: Annotated[
        str | None, typer.Option(help="How prompts are carried: text or ids, for most clients.")
    ] = None,
    model: Annotated[str, typer.Option(help="The server's model name, for bodies that hold one.")] = "",
    pair: Annotated[
        str | None,
        typer.Option(
            metavar="WAY",
            help="The servers are a prefill/decode pair behind this router; `route` is wlgen's own.",
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a set for a benchmark client, with RUN.md: exact commands, every known trap switched off."""
    import dataclasses

    from wlgen.commands._progress import rows_bar
    from wlgen.export.export import export
    from wlgen.workload.opened import open_workload

    with rows_bar(quiet=quiet or as_json) as progress:
        exported = export(
            open_workload(folder),
            to,
            output,
            form=form,
            splits=split or (),
            ranks=rank or (),
            rounds=of_round or (),
            model=model,
            pair=pair,
            progress=progress,
        )
    if as_json:
        show("export", dataclasses.asdict(exported))
    elif not quiet:
        size = sum(f.bytes for f in exported.files)
        typer.echo(
            f"{exported.folder}: {counted(exported.rows, 'row')} for {exported.client} ({exported.form}), "
            f"{counted(len(exported.files), 'file')}, {size:,} bytes"
        )
        typer.echo(f"The commands are in {exported.folder / 'RUN.md'}")


def shape() -> Any:
    """Return the model of what `wlgen export --json` prints."""
    from wlgen.export.export import Exported

    return shape_of("export", Exported)
