"""The JSON of every command has one shape, and `wlgen schema --of COMMAND` prints its JSON Schema.

    {"wlgen": "0.9.0", "command": "verify", "ok": true, "rows": 672, "findings": []}

The first three keys stand in every answer: the version that answered, the command, and whether all is well
(the exit code is 0). The command's own keys follow. A command that could not do its work (exit codes 2
and 70) answers {"wlgen", "command", "ok": false, "problems": [{place, expected, found, remedy}]} instead.
A terminal gets the answer indented; a pipe or a file gets it as one line.

A command describes its own keys in a function `shape`, from the dataclasses that it prints. So the schema
follows the code: nobody writes it down a second time.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

import typer

from wlgen import __version__
from wlgen.errors import PROBLEM_KEYS, Problem

INDENT = 2
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Quiet: TypeAlias = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only what needs a person: findings, warnings, errors.")
]


def show(command: str, keys: Mapping[str, Any], *, ok: bool = True) -> None:
    """Print a command's answer. Dataclasses, named tuples and paths in it become JSON values."""
    typer.echo(_encoded({"wlgen": __version__, "command": command, "ok": ok, **keys}))


def show_problems(command: str | None, problems: Iterable[Problem]) -> None:
    """Print the answer of a command that could not do its work; None where no command was named."""
    keys = {"problems": [{name: getattr(problem, name) for name in PROBLEM_KEYS} for problem in problems]}
    typer.echo(_encoded({"wlgen": __version__, "command": command, "ok": False, **keys}))


def asked_for_json(arguments: Iterable[str]) -> bool:
    """Return whether a command line asks for JSON; an argument after `--` is no option."""
    for argument in arguments:
        if argument in {"--json", "--"}:
            return argument == "--json"
    return False


def _encoded(answer: Mapping[str, Any]) -> str:
    import orjson

    indented = sys.stdout.isatty()
    option = orjson.OPT_NON_STR_KEYS | (orjson.OPT_INDENT_2 if indented else 0)
    try:
        return orjson.dumps(answer, default=_plain, option=option).decode()
    except orjson.JSONEncodeError:  # a file name that is no UTF-8; json spells it as escapes
        return json.dumps(answer, default=_plain, indent=INDENT if indented else None)


def _plain(value: object) -> Any:
    """Return what JSON can hold in place of a value that it cannot."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} is no JSON value")


def shape_of(command: str, *parts: type, **keys: Any) -> Any:
    """Return the pydantic model of a command's answer.

    parts: dataclasses or typed dictionaries whose fields are keys of the answer. keys: more keys, each with
    its type: shape_of("verify", Verification, holds=bool). None leaves out a key of a part; a
    pair (type, default) is a key that an answer may lack.
    """
    from pydantic import ConfigDict, create_model

    found: dict[str, Any] = {"wlgen": str, "command": Literal[command], "ok": bool}
    for part in parts:
        found |= get_type_hints(part, include_extras=True)
    given = ((name, kind) for name, kind in (found | keys).items() if kind)
    fields: dict[str, Any] = {name: kind if isinstance(kind, tuple) else (kind, ...) for name, kind in given}
    name = f"{command.title().replace('-', '')}Answer"
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


def schema_of(command: str, shape: Any) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a command's answer, whether it did its work or not."""
    from pydantic import ConfigDict, TypeAdapter, create_model

    failed: Any = create_model(
        "Failed",
        __config__=ConfigDict(extra="forbid"),
        wlgen=(str, ...),
        command=(str | None, ...),
        ok=(Literal[False], ...),
        problems=(list[Problem], ...),
    )
    made = TypeAdapter(shape | failed).json_schema(mode="serialization")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return head | {"title": f"What `wlgen {command} --json` prints"} | made
