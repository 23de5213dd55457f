"""`wlgen rehearse`: an OpenAI-compatible server on loopback with one simulated prefix cache a rank."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

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

EnableMetrics: TypeAlias = Annotated[
    bool,
    typer.Option("--enable-metrics", help="Serve /metrics, for which SGLang needs this flag."),
]
Pair: TypeAlias = Annotated[
    bool,
    typer.Option("--pd", help="A prefill/decode pair: router on PORT, prefill PORT+1, decode PORT+2."),
]
Router: TypeAlias = Annotated[
    Literal["mini_lb", "sglang-router"], typer.Option(help="With --pd: the router in front of the pair.")
]
DecodeRanks: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, max=4096, help="With --pd: decode ranks; left out, as prefill."),
]
DecodeRadix: TypeAlias = Annotated[
    bool, typer.Option("--decode-radix-cache", help="With --pd: the decode side has a prefix cache.")
]
Fault: TypeAlias = Annotated[
    list[str] | None, typer.Option(help="E.g. lose-cache=3, cut=0.1, restart=16, lost_cache:ranks=3.")
]


def command(  # noqa: PLR0917 (typer gives each option by name)
    sets: Annotated[list[Path] | None, typer.Option("--set", help="A built set whose rows it knows.")] = None,
    ranks: Annotated[int | None, typer.Option(min=1, max=4096, help="DP ranks; the set's, or 16.")] = None,
    rule: RuleName = None,
    engine: EngineName = None,
    page_size: PageSize = None,
    hit_quantum: HitQuantum = None,
    speculative: Speculative = False,
    sliding_window: SlidingWindow = None,
    retention: Retention = None,
    chunk: Chunk = 8192,
    capacity: Capacity = None,
    context_length: Annotated[int, typer.Option(min=1, help="Most tokens of prompt and output.")] = 1 << 20,
    enable_metrics: EnableMetrics = False,
    pair: Pair = False,
    router: Router = "mini_lb",
    decode_ranks: DecodeRanks = None,
    decode_radix: DecodeRadix = False,
    model: Annotated[str, typer.Option(help="The model's name.")] = "rehearsal",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    prefill_rate: Annotated[float, typer.Option(min=1, help="Uncached tokens/s a rank.")] = 20_000,
    decode_rate: Annotated[float, typer.Option(min=0.1, help="Output tokens/s a request.")] = 50,
    running: Annotated[int, typer.Option(min=1, help="Requests that run at once on a rank.")] = 16,
    fault: Fault = None,
    require_key: Annotated[bool, typer.Option(help="Ask for the key in WLGEN_API_KEY.")] = False,
) -> None:
    """Rehearse: serve a simulation whose prefix caches follow a cache rule. No model runs.

    Speaks the OpenAI routes and the named engine's own (pinning, flushing, tokenising, metrics). Rows of
    named sets are recognised by their text. Faults: lose-cache=RANK, ignore-pins, thinking[=TOKENS],
    no-usage=RATE, no-cached=RATE, omit-zero, error=RATE, cut=RATE, stall=RATE, restart=REQUESTS; or one that
    `wlgen audit` explains and `wlgen simulate --fault` predicts, such as lost_cache:ranks=3 or sent_twice.
    """
    from wlgen.commands._progress import rows_bar
    from wlgen.rehearse.faults import of_runs, parse_faults
    from wlgen.rehearse.run import WantedPair, WantedRehearsal, run
    from wlgen.rehearse.settings import TimeModel

    of_server, of_run = of_runs(fault or [])
    choice = chosen(
        rule,
        engine,
        page_size=page_size,
        hit_quantum=hit_quantum,
        speculative=speculative,
        sliding_window=sliding_window,
        retention=retention,
    )
    pd = WantedPair(router=router, decode_ranks=decode_ranks, decode_radix=decode_radix) if pair else None
    wanted = WantedRehearsal(
        sets=sets or [],
        ranks=ranks,
        choice=choice,
        capacity=capacity,
        chunk=chunk,
        max_model_len=context_length,
        enable_metrics=enable_metrics,
        model=model,
        host=host,
        port=port,
        times=TimeModel(prefill_rate=prefill_rate, decode_rate=decode_rate, running=running),
        faults=parse_faults(of_server),
        fault=of_run,
        require_key=require_key,
        pair=pd,
    )
    run(wanted, typer.echo, lambda: rows_bar(quiet=False))
