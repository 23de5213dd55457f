"""`wlgen simulate`: what the engine will report as cached for every request, before it is sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeAlias

import typer

from wlgen.commands._answer import AsJson, Quiet, show
from wlgen.commands._rule import (
    Capacity,
    Chunk,
    EngineName,
    HitQuantum,
    PageSize,
    Retention,
    RuleName,
    SlidingWindow,
    Speculative,
    chosen,
)

if TYPE_CHECKING:
    from wlgen.simulate.replay import Report

Source: TypeAlias = Annotated[
    Path, typer.Argument(metavar="INPUT", help="A built set, or a JSONL file of requests.")
]
InFlight: TypeAlias = Annotated[
    int, typer.Option(min=1, help="How many requests of a rank run together, after its seeds.")
]
Order: TypeAlias = Annotated[
    Literal["file", "interleaved", "shuffled"],
    typer.Option(help="As in the files, one row of each rank in turn, or shuffled."),
]
FullSeeds: TypeAlias = Annotated[
    bool, typer.Option("--full-seeds", help="Make each seed as long as a formal prompt.")
]
Unpinned: TypeAlias = Annotated[
    int | None,
    typer.Option(metavar="RANK", min=0, help="Send to ranks in turn, from this one; seeds stay pinned."),
]
DpRanks: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, help="Ranks, for a JSONL file; lines without a rank go to them in turn."),
]
Text: TypeAlias = Annotated[
    Literal["chat", "raw"] | None,
    typer.Option(help="Read a text as one user message or as a raw prompt; an export of wlgen tells."),
]
Encoding: TypeAlias = Annotated[
    str, typer.Option(help="Encoding of a JSONL file's text: a name, a folder or a hub id.")
]
Fault: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[:KEY=VALUE,...]", help="Let a fault act on a set, such as lost_cache:ranks=3."
    ),
]
Out: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write {id, dp_rank, prompt_len, cached_len} lines.")
]


def command(  # noqa: PLR0917 (typer gives each option by name)
    source: Source,
    rule: RuleName = None,
    engine: EngineName = None,
    page_size: PageSize = None,
    hit_quantum: HitQuantum = None,
    speculative: Speculative = False,
    sliding_window: SlidingWindow = None,
    retention: Retention = None,
    chunk: Chunk = 8192,
    capacity: Capacity = None,
    in_flight: InFlight = 1,
    order: Order = "file",
    order_seed: Annotated[int, typer.Option(help="Seed of the shuffled order.")] = 0,
    skip_seeds: Annotated[bool, typer.Option("--skip-seeds", help="Leave the seeds out.")] = False,
    full_seeds: FullSeeds = False,
    passes: Annotated[int, typer.Option(min=1, help="How many times to send everything.")] = 1,
    unpinned: Unpinned = None,
    dp_ranks: DpRanks = None,
    text: Text = None,
    encoding: Encoding = "deepseek-v4",
    fault: Fault = None,
    out: Out = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Replay requests through a model of the engine's prefix cache, one a DP rank.

    Says how many tokens the engine will report as cached for every request, by a model that was checked
    against the engines' own code: least, 1 % point, median, mean and aggregate, by split and rank; the
    working set of each rank; and with --capacity what is evicted. Each request ends before the next request
    of its rank begins, unless --in-flight says how many run together. Exit 0 if every bound is met.
    """
    from wlgen.simulate.input import Sending
    from wlgen.simulate.replay import replay

    sending = Sending(
        order=order,
        order_seed=order_seed,
        skip_seeds=skip_seeds,
        full_seeds=full_seeds,
        first_rank=unpinned,
    )
    choice = chosen(
        rule,
        engine,
        page_size=page_size,
        hit_quantum=hit_quantum,
        speculative=speculative,
        sliding_window=sliding_window,
        retention=retention,
    )
    if fault is not None:
        from wlgen.simulate.faulted import replay_fault

        _end_with(replay_fault(source, choice, fault, out=out), as_json=as_json, quiet=quiet)
    report = replay(
        source,
        choice,
        sending,
        capacity=capacity,
        chunk=chunk,
        passes=passes,
        dp_ranks=dp_ranks,
        encoding=encoding,
        text_as=text,
        in_flight=in_flight,
        out=out,
    )
    _end_with(report, as_json=as_json, quiet=quiet)


def _end_with(report: Report, *, as_json: bool, quiet: bool) -> NoReturn:
    """Print a report, and exit with 0 where every bound is met, else with 1."""
    from wlgen.commands._replay_text import report_keys, report_lines

    if as_json:
        show("simulate", report_keys(report), ok=report.holds)
    else:
        lines = list(report_lines(report))
        shown = lines if not quiet else [] if report.holds else lines[-1:]
        typer.echo("\n".join(shown), nl=bool(shown))
    raise typer.Exit(0 if report.holds else 1)


def shape() -> Any:
    """Return the model of what `wlgen simulate --json` prints."""
    from wlgen.commands._replay_text import report_shape

    return report_shape()
