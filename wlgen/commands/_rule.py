"""The options that choose a cache rule, written once for every command that takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from wlgen.spec.rule_choice import RuleChoice

RuleName: TypeAlias = Annotated[
    str | None, typer.Option("--rule", help="A cache rule by its name; left out, the set's own.")
]
EngineName: TypeAlias = Annotated[
    str | None, typer.Option("--engine", help="An engine of `wlgen list`, for a rule by its numbers.")
]
PageSize: TypeAlias = Annotated[
    int | None, typer.Option("--page-size", help="Tokens of a page (vLLM: block).")
]
HitQuantum: TypeAlias = Annotated[
    int | None, typer.Option("--hit-quantum", help="Hits come in multiples of this many tokens.")
]
Speculative: TypeAlias = Annotated[bool, typer.Option("--speculative", help="EAGLE or MTP is on.")]
SlidingWindow: TypeAlias = Annotated[
    int | None, typer.Option("--sliding-window", help="Tokens of the window of a hybrid model.")
]
Retention: TypeAlias = Annotated[
    int | None, typer.Option("--retention", help="vLLM: tokens between the states that it keeps; 0: none.")
]
Chunk: TypeAlias = Annotated[
    int, typer.Option("--chunk", min=1, help="SGLang: tokens of a prefill chunk of one rank.")
]
Capacity: TypeAlias = Annotated[
    int | None,
    typer.Option("--capacity", min=1, help="Tokens that the cache of a rank holds; left out, no limit."),
]


def chosen(
    rule: str | None,
    engine: str | None,
    *,
    page_size: int | None,
    hit_quantum: int | None,
    speculative: bool,
    sliding_window: int | None,
    retention: int | None,
) -> RuleChoice:
    """Return what a person chose, to be resolved with the set's own rule as the default."""
    from wlgen.spec.rule_choice import RuleChoice

    return RuleChoice(
        rule=rule,
        engine=engine,
        page_size=page_size,
        hit_quantum=hit_quantum,
        speculative=speculative,
        sliding_window=sliding_window,
        retention=retention,
    )
