"""`wlgen list`: the kinds that this installation knows, and what each is for."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import typer

from wlgen.commands._answer import AsJson, shape_of, show

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = 80
_INDENT = 4


def command(as_json: AsJson = False) -> None:
    """List the encodings, cache rules, tasks, clients and witnesses that are known, and what each is for."""
    from wlgen import registry

    kinds = registry.all_names()
    said = {kind: {name: list(_said(kind, name)) for name in names} for kind, names in kinds.items()}
    if as_json:
        show("list", {**kinds, "about": said})
        return
    for kind, names in said.items():
        typer.echo(kind.replace("_", " "))
        for name, sentences in names.items():
            typer.echo(f"  {name}")
            for sentence in sentences:
                pad = " " * _INDENT
                typer.echo(textwrap.fill(sentence, COLUMNS, initial_indent=pad, subsequent_indent=pad))


def shape() -> Any:
    """Return the model of what `wlgen list --json` prints: the names of each kind, and what each is for."""
    from wlgen import registry

    kinds: dict[str, Any] = dict.fromkeys(registry.all_names(), list[str])
    return shape_of("list", **kinds, about=dict[str, dict[str, list[str]]])


def _said(kind: str, name: str) -> Iterator[str]:
    """Yield what to know of a kind: what it is for, then the figures of its folder."""
    from wlgen import registry

    yield registry.about(kind, name)
    if kind == "cache_rules":
        from wlgen import cache_rules

        module = registry.load(cache_rules, name, place=name)
        rule = module.rule(module.Options(), place=name)
        yield f"page {rule.page_size}, hit quantum {rule.hit_quantum}, unless a spec says otherwise"
        yield f"checked: {module.CHECKED}"
    elif kind == "exporters":
        from wlgen import exporters

        module = registry.load(exporters, name, place=name)
        yield f"{'run by its card with' if module.CHECKED else 'facts of'} {module.CLIENT}"
        yield f"one file a {module.ONE_FILE_A}"
        if len(module.FORMS) > 1:
            yield "--form " + "; ".join(f"{form.name}: {form.about}" for form in module.FORMS)
