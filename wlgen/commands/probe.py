"""`wlgen probe`: what a live server does with prefixes, as a `cache:` block for a spec."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from wlgen.commands._answer import AsJson, Quiet, show


def command(  # noqa: PLR0917 (typer gives each option by name)
    url: Annotated[str, typer.Option(help="The server, http://HOST:PORT.")],
    prefill: Annotated[
        list[str] | None,
        typer.Option(help="A prefill server of a pair, whose router is --url; repeat it for several."),
    ] = None,
    decode: Annotated[list[str] | None, typer.Option(help="A decode server of the pair.")] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="The engine, a name of `wlgen list`; left out, its pages tell."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model to ask for; the only one served.")] = None,
    longest: Annotated[
        int,
        typer.Option(min=64, help="Tokens of the longest throw-away prompt; a larger quantum is not found."),
    ] = 40_000,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for a whole answer.")] = 600,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Probe a live server with a few throw-away prompts: framing, reporting, ranks, hit quantum, siblings.

    Prints a `cache:` block for the spec with the evidence, and says what it could not find out. Sends token
    ids that are in no set, for one output token each. Flushes nothing. Exit 1 if it found no rule.
    """
    import asyncio

    from wlgen.commands._probed import probed_keys, probed_text
    from wlgen.server.probe import probe_server

    found = asyncio.run(
        probe_server(
            url,
            engine=engine,
            model=model,
            patience=timeout,
            longest=longest,
            prefill=prefill or (),
            decode=decode or (),
        )
    )
    if as_json:
        show("probe", probed_keys(found), ok=bool(found.rules))
    elif not (quiet and found.rules):
        typer.echo(probed_text(found))
    raise typer.Exit(0 if found.rules else 1)


def shape() -> Any:
    """Return the model of what `wlgen probe --json` prints."""
    from wlgen.commands._probed import probed_shape

    return probed_shape()
