"""The command line: collects the commands of wlgen/commands and prints errors in one place."""

from __future__ import annotations

import gc
import importlib
import pkgutil
import sys
from typing import Annotated

import typer

from wlgen import __version__, commands
from wlgen.errors import WlgenError

app = typer.Typer(name="wlgen", no_args_is_help=True, pretty_exceptions_enable=False)


def _show_version(asked: bool) -> None:  # noqa: FBT001 (typer calls it so)
    if asked:
        typer.echo(f"wlgen {__version__}")
        raise typer.Exit


@app.callback()
def wlgen(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Token-exact, cache-exact workload datasets for LLM-serving benchmarks."""


def _by_use() -> list[tuple[str, str]]:
    """Return (group, command) of every module of wlgen/commands, in the order in which a person uses them."""
    found = {module.name.replace("_", "-") for module in pkgutil.iter_modules(commands.__path__)}
    found = {name for name in found if not name.startswith("-")}
    grouped = [(group, name) for group, names in commands.GROUPS.items() for name in names if name in found]
    return grouped + [("More", name) for name in sorted(found - {name for _, name in grouped})]


for _group, _name in _by_use():
    _command = importlib.import_module(f"wlgen.commands.{_name.replace('-', '_')}").command
    app.command(_name, rich_help_panel=_group)(_command)


def main() -> None:
    """Run the command line: exit 0 all promises hold, 1 findings, 2 bad input, 70 our bug."""
    try:
        app()
    except WlgenError as failure:
        for problem in failure.problems:
            sys.stderr.write(f"wlgen: {problem}\n")
        sys.exit(2)
    except Exception:  # noqa: BLE001 (the last line of defence, with its traceback)
        import traceback  # noqa: PLC0415 (only when a bug needs it)

        traceback.print_exc()
        sys.stderr.write("wlgen: this is a bug in wlgen; please report it with the traceback above\n")
        sys.exit(70)
    finally:
        gc.freeze()  # so that the interpreter does not search all that is held for cycles before it ends
