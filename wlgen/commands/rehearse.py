"""`wlgen rehearse`: an OpenAI-compatible server on loopback with one simulated prefix cache a rank."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer


def command(  # noqa: PLR0917 (typer gives each option by name)
    sets: Annotated[list[Path] | None, typer.Option("--set", help="A built set whose rows it knows.")] = None,
    ranks: Annotated[int | None, typer.Option(min=1, max=4096, help="DP ranks; the set's, or 16.")] = None,
    rule: Annotated[str | None, typer.Option(help="A cache rule by name; the set's, or sglang.")] = None,
    capacity: Annotated[int | None, typer.Option(min=1, help="Tokens a rank's cache holds.")] = None,
    model: Annotated[str, typer.Option(help="The model's name.")] = "rehearsal",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    prefill_rate: Annotated[float, typer.Option(min=1, help="Uncached tokens/s a rank.")] = 20_000,
    decode_rate: Annotated[float, typer.Option(min=0.1, help="Output tokens/s a request.")] = 50,
    running: Annotated[int, typer.Option(min=1, help="Requests that run at once on a rank.")] = 16,
    fault: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE, e.g. lose-cache=3, cut=0.1, restart=16.")
    ] = None,
    require_key: Annotated[bool, typer.Option(help="Ask for the key in WLGEN_API_KEY.")] = False,
) -> None:
    """Rehearse: serve a simulation whose prefix caches follow a cache rule. No model runs.

    Speaks the OpenAI routes and the named engine's own (pinning, flushing, tokenising, metrics). Rows of
    named sets are recognised by their text. Faults: lose-cache=RANK, ignore-pins, thinking[=TOKENS],
    no-usage=RATE, no-cached=RATE, omit-zero, error=RATE, cut=RATE, stall=RATE, restart=REQUESTS.
    """
    from dataclasses import replace

    from wlgen.commands._progress import rows_bar
    from wlgen.errors import error
    from wlgen.rehearse import NOTICE, Settings, TimeModel
    from wlgen.rehearse.faults import parse_faults
    from wlgen.rehearse.known import KnownRows
    from wlgen.rehearse.serve import listen, serve
    from wlgen.rehearse.sets import default_encoding, know, named_rule, open_sets, set_encoding
    from wlgen.rehearse.simulation import Simulation

    key = os.environ.get("WLGEN_API_KEY") if require_key else None
    if require_key and not key:
        raise error("WLGEN_API_KEY", expected="a key in the environment", found="none")
    faults = parse_faults(fault or [])
    workloads = open_sets(sets or [])
    first = workloads[0].manifest if workloads else None
    settings = Settings(
        model=model,
        ranks=ranks or (first.dp_ranks if first else 16),
        rule=first.cache if first and rule is None else named_rule(rule or "sglang", place="--rule"),
        times=TimeModel(prefill_rate=prefill_rate, decode_rate=decode_rate, running=running),
        faults=faults,
        capacity=capacity,
        api_key=key,
    )
    listener = listen(host, port)
    encoding = set_encoding(workloads[0]) if workloads else default_encoding()
    with KnownRows() as known:
        with rows_bar(quiet=False) as progress:
            know(known, workloads, progress)

        def life(restarts: int) -> Simulation:
            lived = settings if restarts == 0 else replace(settings, faults=replace(faults, restart=0))
            return Simulation(settings=lived, encoding=encoding, known=known)

        bound_host, bound_port = listener.getsockname()[:2]
        typer.echo(NOTICE)
        typer.echo(f"model {model}, rule {settings.rule}, {settings.ranks} ranks, {len(known)} known rows")
        typer.echo(f"time model: {settings.times}; faults: {faults}")
        typer.echo(f"listening on http://{bound_host}:{bound_port}")
        serve(listener, life)
