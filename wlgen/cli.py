"""The command line: collects the commands of wlgen/commands and prints errors in one place."""

from __future__ import annotations

import gc
import importlib
import pkgutil
import sys

import typer

from wlgen import commands
from wlgen.errors import WlgenError

app = typer.Typer(name="wlgen", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def wlgen() -> None:
    """Token-exact, cache-exact workload datasets for LLM-serving benchmarks."""


for _module in pkgutil.iter_modules(commands.__path__):
    if _module.name.startswith("_"):
        continue
    _command = importlib.import_module(f"wlgen.commands.{_module.name}").command
    app.command(_module.name.replace("_", "-"))(_command)


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
