"""`wlgen audit`: what the server did, beside what the set promised, for each request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias

import typer

from wlgen.commands._answer import AsJson, Quiet, show

if TYPE_CHECKING:
    from wlgen.audit.model import Audit
    from wlgen.report.provenance import Provenance
    from wlgen.workload.manifest import Manifest

Results: TypeAlias = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[RESULT...]", help="Result files of the client, or folders of them."),
]
Client: TypeAlias = Annotated[
    str | None, typer.Option(help="The client that wrote the files; left out, each file tells.")
]
Split: TypeAlias = Annotated[
    list[str] | None, typer.Option(help="A split to audit (repeatable); left out, formal.")
]
Round: TypeAlias = Annotated[
    list[int] | None,
    typer.Option("--round", min=0, help="A round to audit (repeatable); left out, the first built."),
]
Concurrency: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, help="The client's limit, for the stable windows; left out, the observed peak."),
]
Late: TypeAlias = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="Seconds a request may be off its planned time, at least 1 % of the mean gap; inf: any.",
    ),
]
AbsentIsZero: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--absent-is-zero",
        help="Take missing cached tokens as 0: you know that the server omits 0.",
    ),
]
Counters: TypeAlias = Annotated[
    tuple[Path, Path] | None,
    typer.Option(
        metavar="BEFORE AFTER", help="Two scrapes of `wlgen counters`; prepare writes the first one."
    ),
]
Requests: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="SGLang's request metrics, file or folder (repeatable)."),
]
Log: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="SGLang's log with its prefill batches (repeatable)."),
]
Pair: TypeAlias = Annotated[
    bool,
    typer.Option("--pair", help="The servers were a prefill/decode pair; counters tell it, too."),
]
Explain: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="ROW", help="Show for one row what each cause that fits predicts."),
]
Html: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a page of the whole audit.")
]


def command(  # noqa: PLR0917 (typer gives each option by name)
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The built set that was sent.")],
    results: Results = None,
    client: Client = None,
    split: Split = None,
    round_: Round = None,
    concurrency: Concurrency = None,
    rate: Annotated[float | None, typer.Option(min=1e-9, help="Planned requests a second.")] = None,
    cards: Annotated[int | None, typer.Option(min=1, help="Accelerators, for tokens/s a card.")] = None,
    late: Late = 0.5,
    absent_is_zero: AbsentIsZero = False,
    counters: Counters = None,
    requests: Requests = None,
    log: Log = None,
    pair: Pair = False,
    explain: Explain = None,
    html: Html = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Audit a run: join its results to the rows of the set and check each promise for each request.

    It checks that every row was sent once and nothing else, without a failure or a recorded retry, with exact
    text and token counts, at its planned time, and that cached tokens meet the bound and equal the plan. If a
    client keeps no cached tokens, the servers' counters, request files or logs can prove them. Exit 0: all
    proved; 1: findings, or rows that nobody observed; 2: unusable input.
    """
    from wlgen.audit.audit import audit, parse_rounds, parse_splits
    from wlgen.audit.results import read_results
    from wlgen.audit.run_figures import Setting
    from wlgen.audit.witness_files import read_given
    from wlgen.build.outline import planned_chains, planned_tree
    from wlgen.errors import error
    from wlgen.report.page import check_place, write_page
    from wlgen.report.provenance import Provenance
    from wlgen.workload.opened import open_workload, prove_files
    from wlgen.workload.writer import check_output

    witnesses = [*(counters or ()), *(requests or ()), *(log or ())]
    if not (results or witnesses):
        remedy = "Give the client's result files, --counters BEFORE AFTER, --requests or --log."
        raise error("results", expected="what a client or a server recorded", found="nothing", remedy=remedy)
    if html is not None:
        check_place(html)
        check_output(html, folder, *(results or ()), *witnesses)
    workload = open_workload(folder)
    files = read_results(results or (), client)
    given = read_given(counters=counters or (), requests=requests or (), logs=log or (), pair=pair)
    prove_files(workload)
    found = audit(
        workload.rows(),
        files,
        workload.manifest,
        splits=parse_splits(split or ()),
        rounds=parse_rounds(round_ or (), workload.manifest.rounds),
        setting=Setting(concurrency=concurrency, rate=rate, cards=cards, late=late),
        absent_is_zero=absent_is_zero,
        given=given,
        blind=files.blind,
        chains=lambda: planned_chains(workload),
        row_id=explain,
        tasks=lambda: _tasks(workload.manifest),
    )
    chosen = {"client": client, "split": split, "round": round_}
    how = {"concurrency": concurrency, "rate": rate, "cards": cards, "late": late}
    provenance = Provenance.of(
        workload.manifest,
        clients=files.clients,
        results=files.paths,
        witnesses=witnesses,
        servers=given.servers,
        options=chosen | how | {"absent_is_zero": absent_is_zero, "pair": pair},
    )
    if html is not None:
        write_page(found, html, planned_tree(workload), provenance)
    _end_with(found, provenance, as_json=as_json, quiet=quiet)


def _tasks(manifest: Manifest) -> dict[str, str]:
    """Return the tasks of a set, and what the acceptance length is like on the texts of each."""
    from wlgen import registry, tasks

    names = dict.fromkeys(str(of["task"]["name"]) for of in manifest.classes)
    return {name: registry.load(tasks, name, place="task").ACCEPTANCE for name in names}


def _end_with(found: Audit, provenance: Provenance, *, as_json: bool, quiet: bool) -> NoReturn:
    """Print an audit. Exit with 0 where the run is KEPT, 2 where something was unreadable, else with 1."""
    from wlgen.errors import WlgenError

    ok = found.verdict == "KEPT"
    if as_json:
        from wlgen.report.answer import answer

        show("audit", answer(found, provenance), ok=ok)
        for problem in found.problems:
            typer.echo(f"wlgen: {problem}", err=True)
        raise typer.Exit(2 if found.problems else 0 if ok else 1)
    from rich.console import Console

    from wlgen.report.terminal import terminal, verdict_lines

    if not (quiet and ok):
        Console(highlight=False, soft_wrap=True).print(verdict_lines(found) if quiet else terminal(found))
    if found.problems:
        raise WlgenError(*found.problems)
    raise typer.Exit(0 if ok else 1)


def shape() -> Any:
    """Return the model of what `wlgen audit --json` prints."""
    from wlgen.commands._audit_shape import audit_shape

    return audit_shape()
