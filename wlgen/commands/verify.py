"""`wlgen verify`: prove a set from its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wlgen.commands._answer import AsJson, Quiet, shape_of, show
from wlgen.errors import counted

if TYPE_CHECKING:
    from wlgen.verify import Verification
    from wlgen.workload.manifest import Manifest

MOST_FINDINGS = 50  # lines; --json has all of them


def command(
    folder: Annotated[Path, typer.Argument(help="A built set, output/<name>.")],
    full: Annotated[
        bool, typer.Option("--full", help="Encode each text whole with the reference tokenizer instead.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Prove a built set: compose each row of its spec again and compare it with the file, byte for byte.

    The hashes find a damaged disk. Composing again also finds a mistake, and a forger who changed the hashes
    too: another seed, another task, swapped or edited texts. It then replays the composed ids through the
    cache rule, so that each row's cached tokens are those that the server will report.

    --full uses nothing of the build: it encodes each text whole with the reference tokenizer, checks lengths,
    ids, safe text and what every two rows share, and replays those ids. So it also finds a fault in wlgen's
    composing. It takes as long as one encode pass, and does not check that the texts are the spec's.
    """
    import dataclasses

    from wlgen.commands._progress import rows_bar
    from wlgen.verify import verify_composed, verify_encoded
    from wlgen.workload.opened import open_workload

    workload = open_workload(folder)
    with rows_bar(quiet=quiet or as_json) as progress:
        if full:
            verified = verify_encoded(workload, progress=progress)
        else:
            from wlgen.build.recompose import Recomposed

            verified = verify_composed(workload, Recomposed(workload), progress=progress)
    if as_json:
        ok = not verified.findings
        show("verify", dataclasses.asdict(verified) | {"holds": ok}, ok=ok)
        raise typer.Exit(1 if verified.findings else 0)
    for finding in verified.findings[:MOST_FINDINGS]:
        typer.echo(f"{finding.id}: {finding.promise}: expected {finding.expected}, got {finding.got}")
    if len(verified.findings) > MOST_FINDINGS:
        typer.echo(f"and {len(verified.findings) - MOST_FINDINGS} more findings; --json lists them all")
    if not quiet:
        typer.echo(_summary(folder, workload.manifest, verified))
    raise typer.Exit(1 if verified.findings else 0)


def shape() -> Any:
    """Return the model of what `wlgen verify --json` prints."""
    from wlgen.verify import Verification

    return shape_of("verify", Verification, holds=bool)


def _summary(folder: Path, manifest: Manifest, verified: Verification) -> str:
    missing = []
    if verified.missing_ranks:
        here = manifest.dp_ranks - len(verified.missing_ranks)
        missing.append(f"{here} of {counted(manifest.dp_ranks, 'rank')}")
    if verified.missing_rounds:
        here = len(manifest.rounds or ())
        missing.append(f"{here} of {here + len(verified.missing_rounds)} rounds")
    part = f" (a part, {' and '.join(missing)})" if missing else ""
    rows, found = counted(verified.rows, "row"), counted(len(verified.findings), "finding")
    lines = [f"{folder}{part}: {rows}, {verified.tokens:,} tokens, {found}"]
    if verified.composed is not None:
        lines.append(f"{verified.composed:,} of {rows} are what the spec composes to")
    return "\n".join(lines)
