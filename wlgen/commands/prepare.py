"""`wlgen prepare`: flush a live server, send seeds and checks, and stop if a row falls short."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from wlgen.commands._answer import AsJson, Quiet, show

Prefill: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="A prefill server of a pair, whose router is --url; repeat it for several."),
]
Engine: TypeAlias = Annotated[
    str | None,
    typer.Option(help="The engine, a name of `wlgen list`; left out, its pages tell."),
]
Round: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--round", min=0, help="Send this round's checks alone; the seeds of an earlier run must count."
    ),
]
Flush: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--flush/--no-flush",
        help="Empty the cache and start over; or never empty it. "
        "Neither: empty it, unless the seeds of an earlier run are proved to count.",
    ),
]
Resume: TypeAlias = Annotated[
    bool,
    typer.Option("--resume", help="Go on where the journal ends: you know that nothing else was sent since."),
]
Journal: TypeAlias = Annotated[
    Path | None, typer.Option(help="Where to keep the journal; prepare.jsonl in DIR.")
]


def command(  # noqa: PLR0917 (typer gives each option by name)
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A built set.")],
    url: Annotated[str, typer.Option(help="The server, http://HOST:PORT.")],
    prefill: Prefill = None,
    decode: Annotated[list[str] | None, typer.Option(help="A decode server of the pair.")] = None,
    engine: Engine = None,
    model: Annotated[str | None, typer.Option(help="The model to ask for; the only one served.")] = None,
    only: Annotated[Literal["seed", "check"] | None, typer.Option(help="Do one step alone.")] = None,
    round_: Round = None,
    ranks: Annotated[str | None, typer.Option(help="Ranks to prepare, e.g. 0,3,8-11; all.")] = None,
    flush: Flush = None,
    resume: Resume = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over, whatever the journal says.")] = False,
    concurrency: Annotated[int, typer.Option(min=1, max=512, help="Ranks at a time.")] = 16,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for a whole answer.")] = 600,
    flush_timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for a busy server.")] = 60,
    journal: Journal = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Prepare a live server: preflight, flush, seeds, the first round's checks. No formal row is sent.

    Each row is pinned to its rank. The first check that falls short of its promise ends the run with the
    diagnosis and exit code 1. An API key is read from WLGEN_API_KEY. A second run goes on where the first one
    ended if the server's counters prove that nothing was sent in between, or with --resume; else it starts
    over. The last line, which --quiet prints too, also says what PREPARED does not prove.
    """
    import asyncio

    from wlgen.audit.audit import parse_rounds
    from wlgen.commands._outcome import outcome_keys, outcome_text, verdict
    from wlgen.commands._progress import rows_bar
    from wlgen.errors import error
    from wlgen.server.outcome import Wanted
    from wlgen.server.prepare import PrimedServer, parse_ranks, prepare_set
    from wlgen.workload.opened import open_workload, prove_files

    if resume and (fresh or flush):
        raise error("--resume", expected="no --flush and no --fresh: they start over", found="both")
    if round_ is not None and (only is not None or fresh):
        other = "--fresh" if fresh else f"--only {only}"
        raise error("--round", expected="the round alone: it sends checks and no seed", found=other)
    workload = open_workload(folder)
    prove_files(workload)
    wanted = Wanted(
        ranks=parse_ranks(ranks, workload.manifest.ranks),
        only=only,
        round=None if round_ is None else parse_rounds([round_], workload.manifest.rounds)[0],
        flush=flush,
        resume=resume,
        fresh=fresh,
        concurrency=concurrency,
        patience=flush_timeout,
    )
    target = PrimedServer(
        url=url,
        prefill=tuple(prefill or ()),
        decode=tuple(decode or ()),
        engine=engine,
        model=model,
        timeout=timeout,
        journal=journal,
    )
    try:
        with rows_bar(quiet=quiet or as_json, what="requests") as progress:
            outcome = asyncio.run(prepare_set(workload, target, wanted, progress))
    except KeyboardInterrupt:
        typer.echo(
            "interrupted; the journal says what was sent: run it again with --resume to go on", err=True
        )
        raise typer.Exit(130) from None
    failed = bool(outcome.findings or outcome.refused)
    if as_json:
        show("prepare", outcome_keys(outcome), ok=not failed)
    elif not quiet or outcome.findings:
        typer.echo(outcome_text(outcome, workload, wanted))
    elif outcome.refused or outcome.unproved:
        typer.echo(verdict(outcome, workload, wanted))
    raise typer.Exit(1 if failed else 0)


def shape() -> Any:
    """Return the model of what `wlgen prepare --json` prints."""
    from wlgen.commands._outcome import outcome_shape

    return outcome_shape()
