"""`wlgen simulate`: what the engine will report as cached for every request, before it is sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from wlgen.simulate.replay import Report


def command(  # noqa: PLR0917 (typer gives each option by name)
    source: Annotated[
        Path, typer.Argument(metavar="INPUT", help="A built set, or a JSONL file of requests.")
    ],
    rule: Annotated[str | None, typer.Option(help="A named cache rule; the set's own where absent.")] = None,
    engine: Annotated[str | None, typer.Option(help="sglang or vllm, for a rule by its numbers.")] = None,
    page_size: Annotated[int | None, typer.Option(help="Tokens of a page or block.")] = None,
    hit_quantum: Annotated[int | None, typer.Option(help="Hits come in multiples of it.")] = None,
    speculative: Annotated[bool, typer.Option("--speculative", help="EAGLE or MTP is on.")] = False,
    sliding_window: Annotated[
        int | None, typer.Option(help="Tokens of the window of a hybrid model.")
    ] = None,
    retention: Annotated[int | None, typer.Option(help="vLLM: tokens between kept points, 0 none.")] = None,
    chunk: Annotated[int, typer.Option(min=1, help="SGLang: tokens of a prefill chunk.")] = 8192,
    capacity: Annotated[
        int | None, typer.Option(min=1, help="Tokens that a rank's cache holds; no limit where absent.")
    ] = None,
    order: Annotated[
        Literal["file", "interleaved", "shuffled"],
        typer.Option(help="As in the files, one of each rank in turn, or shuffled."),
    ] = "file",
    order_seed: Annotated[int, typer.Option(help="Seed of the shuffled order.")] = 0,
    skip_seeds: Annotated[bool, typer.Option("--skip-seeds", help="Leave the seeds out.")] = False,
    full_seeds: Annotated[
        bool, typer.Option("--full-seeds", help="Make each seed as long as a formal prompt.")
    ] = False,
    passes: Annotated[int, typer.Option(min=1, help="Send everything so many times.")] = 1,
    unpinned: Annotated[
        int | None,
        typer.Option(metavar="RANK", min=0, help="Send to ranks in turn, from this one; seeds stay pinned."),
    ] = None,
    dp_ranks: Annotated[int | None, typer.Option(min=1, help="Ranks, for a JSONL file.")] = None,
    encoding: Annotated[
        str, typer.Option(help="Encoding of a JSONL file's text: a name, a folder or a hub id.")
    ] = "deepseek-v4",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write {id, dp_rank, prompt_len, cached_len} lines.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Replay requests through a model of the engine's prefix cache, one a DP rank.

    Says what the engine will report as cached for every request, checked against the engines' own code:
    least, 1 % point, median, mean and aggregate, by split and rank, the working set of each rank, and under a
    capacity who is evicted. Each request ends before its rank's next begins. Exit 0 where every bound is met.
    """
    from wlgen.commands._replay_text import report_json, report_lines
    from wlgen.simulate.input import Sending
    from wlgen.simulate.replay import replay
    from wlgen.spec.rule_choice import RuleChoice

    sending = Sending(
        order=order,
        order_seed=order_seed,
        skip_seeds=skip_seeds,
        full_seeds=full_seeds,
        first_rank=unpinned,
    )
    choice = RuleChoice(
        rule=rule,
        engine=engine,
        page_size=page_size,
        hit_quantum=hit_quantum,
        speculative=speculative,
        sliding_window=sliding_window,
        retention=retention,
    )
    report: Report = replay(
        source,
        choice,
        sending,
        capacity=capacity,
        chunk=chunk,
        passes=passes,
        dp_ranks=dp_ranks,
        encoding=encoding,
        out=out,
    )
    typer.echo(report_json(report) if as_json else "\n".join(report_lines(report)))
    raise typer.Exit(0 if report.holds else 1)
