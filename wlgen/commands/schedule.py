"""`wlgen schedule`: the prefill rounds of SGLang's scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wlgen.commands._answer import AsJson, Quiet, shape_of, show
from wlgen.errors import counted

_SHOWN = 12

if TYPE_CHECKING:
    from wlgen.simulate.rounds import Rounds


def command(  # noqa: PLR0917 (typer gives each option by name)
    source: Annotated[
        Path | None, typer.Argument(metavar="[SET]", help="A built set; else give --prompt-len.")
    ] = None,
    prompt_len: Annotated[int | None, typer.Option(min=1, help="Tokens of each prompt.")] = None,
    requests: Annotated[int, typer.Option(min=1, help="Requests of one rank, with --prompt-len.")] = 1,
    cached: Annotated[int, typer.Option(min=0, help="Cached tokens of each prompt, with --prompt-len.")] = 0,
    chunk: Annotated[int, typer.Option(min=1, help="--chunked-prefill-size.")] = 8192,
    dp_size: Annotated[int, typer.Option(min=1, help="Ranks that DP attention divides the chunk by.")] = 1,
    max_requests: Annotated[
        int | None, typer.Option(min=1, help="--prefill-max-requests; left out, no limit.")
    ] = None,
    page_size: Annotated[int | None, typer.Option(min=1, help="--page-size; the set's, or 1.")] = None,
    max_prefill_tokens: Annotated[int, typer.Option(min=1, help="--max-prefill-tokens.")] = 16384,
    first: Annotated[int, typer.Option(min=0, help="Rounds to show in full.")] = 8,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show how SGLang's scheduler splits prompts into prefill rounds.

    The prompts are given by their length, or are a built set's formal rows, rank by rank, with the cached
    tokens that the set promises. All requests wait from the start, first come first served.
    """
    import dataclasses

    from wlgen.errors import error
    from wlgen.simulate.rounds import WARNING, RoundPrompt, Scheduler, check_numbers, prompts_of, schedule
    from wlgen.workload.opened import open_workload, prove_files

    if (source is None) == (prompt_len is None):
        found = "neither" if source is None else "both"
        raise error("wlgen schedule", expected="a built set or --prompt-len", found=found)
    workload = open_workload(source) if source else None
    if workload:
        prove_files(workload)
    same = RoundPrompt(prompt_len, cached) if prompt_len else None
    scheduler = Scheduler(
        chunk=chunk // dp_size,
        page_size=page_size or (workload.manifest.cache.page_size if workload else 1),
        max_requests=max_requests,
        max_prefill_tokens=max_prefill_tokens,
    )
    check_numbers(scheduler, same)
    prompts = prompts_of(workload) if workload else {0: [same] * requests if same else []}
    ranks = {rank: schedule(scheduler, waiting, first=first) for rank, waiting in prompts.items()}
    busiest = max(ranks, key=lambda rank: ranks[rank].rounds)
    if as_json:
        by_rank = {"ranks": {rank: found.rounds for rank, found in ranks.items()}}
        show("schedule", dataclasses.asdict(ranks[busiest]) | by_rank | {"note": WARNING})
    elif not quiet:
        title = f"rank {busiest}, the busiest of {len(ranks)}: " if workload else ""
        typer.echo("\n".join(_lines(ranks[busiest], title, scheduler.page_size)))
        typer.echo(WARNING)


def shape() -> Any:
    """Return the model of what `wlgen schedule --json` prints: the busiest rank, and the rounds of each."""
    from wlgen.simulate.rounds import Rounds

    return shape_of("schedule", Rounds, ranks=dict[int, int], note=str)


def _lines(found: Rounds, title: str, page_size: int) -> list[str]:
    lines = [f"{title}{counted(found.rounds, 'round')}, {counted(found.tokens, 'token')} to compute"]
    lines += ["first      " + " ".join(str(list(batch)) for batch in found.first_rounds)]
    lines += ["chunks     tokens   times"]
    shown = list(found.chunks.items())[:_SHOWN]
    lines += [f"           {size:6} {times:7}" for size, times in shown]
    lines += (
        [f"           and {len(found.chunks) - _SHOWN} other sizes"] if len(found.chunks) > _SHOWN else []
    )
    if found.lone_tails:
        some = f"{found.lone_tails} round{'s hold' if found.lone_tails > 1 else ' holds'}"
        lines += [f"{some} nothing but a tail of less than a page of {page_size}"]
    return lines
