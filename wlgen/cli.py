"""The command line: collects the commands of wlgen/commands and prints errors in one place."""

from __future__ import annotations

import gc
import importlib
import os
import resource
import signal
import sys
import threading
from collections.abc import Sequence
from errno import EDQUOT, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC, EPIPE
from typing import Annotated, NoReturn

import typer

from wlgen import __version__, commands
from wlgen.commands._answer import asked_for_json, show_problems
from wlgen.errors import Problem, WlgenError

LEAST_ADDRESS_SPACE = 512 << 20  # bytes; a build of zero-16k ends in an abort at 195 MB, and is whole at 586
_NOT_OURS = {EDQUOT, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC, EPIPE}

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
    found = commands.names()
    grouped = [(group, name) for group, names in commands.GROUPS.items() for name in names if name in found]
    return grouped + [("More", name) for name in sorted(found - {name for _, name in grouped})]


def _flowing(text: str) -> str:
    """Return a docstring without the line ends inside its paragraphs: typer would break sentences there."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


for _group, _name in _by_use():
    _command = importlib.import_module(f"wlgen.commands.{_name.replace('-', '_')}").command
    _help = _flowing(_command.__doc__ or "")
    app.command(_name, rich_help_panel=_group, help=_help)(_command)


def main() -> None:
    """Run the command line: exit 0 all promises hold, 1 findings, 2 bad input, 70 our bug."""
    # Few of a command's objects are in cycles, and to look for them after each 700 took 4 % of a short build.
    gc.set_threshold(100_000, 10, 10)
    _clean_up_when_terminated()
    if said := _too_little_memory():
        _end(said)
    try:
        if asked_for_json(sys.argv[1:]):
            sys.exit(app(standalone_mode=False))
        app()
    except SystemExit as left:
        # typer and rich say nothing of a closed pipe and exit with 1, which would be a finding
        if type(sys.stdout).__name__ == "PacifyFlushWrapper" or isinstance(left.__context__, BrokenPipeError):
            _end("standard output: expected a reader, found a closed pipe")
        raise
    except WlgenError as failure:
        _tell(failure.problems)
        sys.exit(2)
    except Exception as failure:  # noqa: BLE001 (the last line of defence, with its traceback)
        if said := _of_this_machine(failure):
            _end(said)
        if problem := _of_the_command_line(failure):
            _tell([problem])
            sys.exit(2)
        import traceback  # noqa: PLC0415 (only when a bug needs it)

        traceback.print_exc()
        sys.stderr.write("wlgen: this is a bug in wlgen; please report it with the traceback above\n")
        if asked_for_json(sys.argv[1:]):
            show_problems(_named_command(), [_bug(failure)])
        sys.exit(70)
    finally:
        gc.freeze()  # the interpreter then ends without searching all objects for cycles


def _tell(problems: Sequence[Problem]) -> None:
    """Print a line for each problem on standard error; with --json print JSON on standard output, too."""
    for problem in problems:
        sys.stderr.write(f"wlgen: {problem}\n")
    if asked_for_json(sys.argv[1:]):
        show_problems(_named_command(), problems)


def _named_command() -> str | None:
    """Return the command that the command line names; None where it names none."""
    known = commands.names()
    return next((argument for argument in sys.argv[1:] if argument in known), None)


def _bug(failure: Exception) -> Problem:
    """Return a bug of ours as a problem: --json tells it, too."""
    found = f"{type(failure).__name__}: {failure}"
    remedy = "Report it with the traceback on standard error."
    return Problem(place="wlgen", expected="no bug in wlgen", found=found, remedy=remedy)


def _of_the_command_line(failure: Exception) -> Problem | None:
    """Return what is wrong with the command line where typer found it, and left the telling to us for --json.

    typer has its own copy of click in newer versions, so its errors are known by what they can do.
    """
    if not hasattr(failure, "format_message"):
        return None
    place = " ".join(filter(None, ("wlgen", _named_command())))
    found = str(failure.format_message()).rstrip(".")
    return Problem(
        place=place, expected="arguments that the command knows", found=found, remedy=f"See {place} --help."
    )


def _clean_up_when_terminated() -> None:
    """Let SIGTERM, which a batch system sends, end the command as Ctrl-C does: nothing half-built is left."""

    def end(_number: int, _frame: object) -> None:
        sys.exit(128 + signal.SIGTERM)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)


def _too_little_memory() -> str | None:
    """Return the line for a limit under which numpy and tokenizers abort the process instead of failing."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY or limit >= LEAST_ADDRESS_SPACE:
        return None
    least = f"at least {LEAST_ADDRESS_SPACE >> 20} MB of address space"
    return f"memory: expected {least}, found a limit of {limit >> 20} MB. Raise it: ulimit -v."


def _of_this_machine(failure: Exception) -> str | None:
    """Return the line for a failure that is no bug of wlgen: no memory, or no room for its output."""
    thread = isinstance(failure, RuntimeError) and "can't start new thread" in str(failure)
    if thread or isinstance(failure, MemoryError):
        remedy = "Raise the limit (ulimit -v, or the container's), or give --jobs 1"
        return f"memory: expected room for what this command holds, found no more. {remedy}"
    if isinstance(failure, OSError) and failure.errno in _NOT_OURS:
        return f"{failure.filename or 'standard output'}: expected a place to write, found {failure.strerror}"
    return None


def _end(said: str) -> NoReturn:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what standard output still holds has nowhere to go
    sys.stderr.write(f"wlgen: {said}\n")
    sys.exit(2)
