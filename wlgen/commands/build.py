"""`wlgen build`: from a spec to a proved set on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wlgen.commands._answer import AsJson, Quiet, shape_of, show


def command(  # noqa: PLR0917 (typer reads options as arguments)
    spec: Annotated[Path, typer.Argument(help="The spec, a YAML file.", readable=False)],
    output: Annotated[Path, typer.Option(help="The folder in which the set's own folder is made.")] = Path(
        "output"
    ),
    rank: Annotated[list[int] | None, typer.Option(help="Build only this rank's files (repeatable).")] = None,
    round_: Annotated[
        list[int] | None, typer.Option("--round", help="Build only this round's checks and formal rows.")
    ] = None,
    take: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Copy what another machine built from this spec (repeatable)."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that share the ranks.", show_default="as many as make it faster"),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a set of another spec even if it was sent or exported.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Build the seed, check and formal files of a spec, proved token by token."""
    import json

    from wlgen.build import build
    from wlgen.commands._progress import rows_bar
    from wlgen.pages import percent_of
    from wlgen.spec import file as spec_file

    with rows_bar(quiet=quiet or as_json) as progress:
        built = build.build(
            spec_file.load(spec),
            output,
            ranks=rank,
            rounds=round_,
            take=take or (),
            jobs=jobs,
            replace=replace,
            progress=progress,
        )
    folder, manifest = built.workload.folder, built.workload.manifest
    if built.replaced and not quiet:
        typer.echo(f"{folder}: replaced {built.replaced}", err=True)
    if as_json:
        made = {"folder": folder, "written": built.written, "taken": built.taken, "replaced": built.replaced}
        show("build", made | {"manifest": json.loads((folder / "manifest.json").read_bytes())})
    elif not quiet:
        rows = ", ".join(f"{count['rows']} {split}" for split, count in manifest.splits.items())
        done = {"written": built.written, "taken": built.taken}
        said = [f"{count} file{'s' * (count != 1)} {what}" for what, count in done.items() if count]
        state = ", ".join(said) or "unchanged, every file proved by its hash"
        built_ranks, ranks = len(manifest.ranks), manifest.dp_ranks
        part = "" if built_ranks == ranks else f" (a part, {built_ranks} of {ranks} ranks)"
        typer.echo(f"{folder}{part}: {state}; {rows} rows for {ranks} ranks")
        promises = manifest.promises
        typer.echo(
            f"cached: configured {percent_of(promises.configured)}, "
            f"aggregate {percent_of(promises.aggregate, promises.configured)}, "
            f"least of any request {percent_of(promises.per_request_min, promises.configured)}"
        )


def shape() -> Any:
    """Return the model of what `wlgen build --json` prints. manifest: the keys of manifest.json.

    written, taken: files. replaced: which other set stood there, "" for none.
    """
    return shape_of("build", folder=str, written=int, taken=int, replaced=str, manifest=dict[str, Any])
