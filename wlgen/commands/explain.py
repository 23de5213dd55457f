"""`wlgen explain`: what each key of a spec means."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wlgen.commands._answer import AsJson, shape_of, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wlgen.spec.reference import Key

COLUMNS = 80


def command(
    key: Annotated[
        str | None,
        typer.Argument(help="A key as messages write it: requests.cached.tolerance. Left out, every key."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain the keys of a spec: meaning, type, unit, default and an example."""
    from wlgen.spec import reference

    found = reference.every_key() if key is None else reference.explained(key)
    if as_json:
        show("explain", {"keys": found})
        return
    typer.echo("\n".join(line for each in found for line in _lines(each)))


def shape() -> Any:
    """Return the model of what `wlgen explain --json` prints."""
    from wlgen.spec.reference import Key

    return shape_of("explain", keys=list[Key])


def _lines(key: Key) -> Iterator[str]:
    """Yield what a person reads of one key, in 80 columns."""
    given = (
        "must be given" if key.required else f"default {key.default}" if key.default else "may be left out"
    )
    about = "; ".join(filter(None, (key.type, key.unit, given, f"with {key.kind}" if key.kind else "")))
    yield key.path
    for text in (about, key.meaning, f"Example: {key.path.rsplit('.', 1)[-1]}: {key.example}"):
        yield from textwrap.wrap(
            text, COLUMNS, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
        )
