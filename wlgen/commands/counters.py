"""`wlgen counters`: one scrape of the counters of a run's servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wlgen.commands._answer import AsJson, Quiet, shape_of, show


def command(  # noqa: PLR0917 (typer gives each option by name)
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The file to write.")],
    url: Annotated[
        list[str] | None,
        typer.Option(help="A server, http://HOST:PORT (repeatable); SGLang tells its role itself."),
    ] = None,
    prefill: Annotated[list[str] | None, typer.Option(help="A prefill server of a pair.")] = None,
    decode: Annotated[list[str] | None, typer.Option(help="A decode server of a pair.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds without an answer.")] = 10,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until nothing runs and two readings agree.")
    ] = 60,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write down what each server counts: requests, prompt tokens, cached tokens by rank and tier.

    Take one scrape before a run and one after it. The difference is what the server computed and reused in
    between, even if the client keeps no figure. `wlgen audit SET RESULTS --counters BEFORE AFTER` reads both.
    Exit 1 if a server does not count prompt and cached tokens, or never comes to rest.
    """
    import asyncio
    import json

    from wlgen.errors import error
    from wlgen.server.scrape import Address, missing_of, scrape, write_scrape

    addresses = [
        *(Address(each) for each in url or ()),
        *(Address(each, "prefill") for each in prefill or ()),
        *(Address(each, "decode") for each in decode or ()),
    ]
    if not addresses:
        raise error("--url", expected="the address of a server", found="none")
    found = asyncio.run(scrape(addresses, seconds=timeout, patience=patience))
    write_scrape(found, output)
    problems = missing_of(found)
    if not found.quiet:
        problems.append(f"the servers did not rest for {patience:g} s: requests ran, or counters moved")
    if as_json:
        show("counters", json.loads(output.read_bytes()), ok=not problems)
    elif not quiet:
        for server in found.servers:
            shown = ", ".join(
                f"{server.total[name]:,} {words}"
                for name, words in (
                    ("requests", "requests"),
                    ("prompt_tokens", "prompt tokens"),
                    ("cached_tokens", "of them cached"),
                )
                if name in server.total
            )
            ranks = f"; {len(server.ranks)} ranks apart" if server.ranks else ""
            typer.echo(f"{server.url} ({server.role}, {server.engine or 'unknown'}): {shown}{ranks}")
        typer.echo(f"written to {output}")
    for problem in problems:
        typer.echo(problem, err=True)
    raise typer.Exit(1 if problems else 0)


def shape() -> Any:
    """Return the model of what `wlgen counters --json` prints: the keys of the file that it writes."""
    from wlgen.witnesses import Scrape

    return shape_of("counters", Scrape)
