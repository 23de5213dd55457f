"""Measure `wlgen export`: run as `python tests/benchmarks/bench_export.py SET [RUNS]`.

Prints, for each client and form, the best wall time of the whole command, the best time of `cp -r` of what it
wrote, their ratio, the export's peak memory and its size. SET is a built set, such as output/warm-128k; the
least of RUNS (3) is taken of both, in turn, so that a busy machine slows both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from wlgen import exporters, registry

RUNS = 3
WLGEN = [sys.executable, "-c", "from wlgen.cli import main; main()"]


def timed(command: list[str]) -> tuple[float, int]:
    """Run a command; return its wall time in seconds and its peak memory in bytes."""
    start = time.perf_counter()
    child = subprocess.Popen(command)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{command} failed")
    return time.perf_counter() - start, used.ru_maxrss * 1024


def measure(folder: Path, client: str, form: str, runs: int, work: Path) -> list[str]:
    """Return the row of one client and form."""
    out, copy = work / "out", work / "copy"
    exports, copies = [], []
    for _ in range(runs):
        for place in (out, copy):
            shutil.rmtree(place, ignore_errors=True)
        command = [*WLGEN, "export", str(folder), "--to", client, "--form", form, "--output", str(out), "-q"]
        exports.append(timed(command))
        copies.append(timed(["cp", "-r", str(out), str(copy)])[0])
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    took, copied = min(seconds for seconds, _ in exports), min(copies)
    peak = max(memory for _, memory in exports)
    figures = [
        f"{took:.2f}",
        f"{copied:.2f}",
        f"{took / copied:.1f}",
        f"{peak / 1e6:.0f}",
        f"{size / 1e6:.0f}",
    ]
    return [client, form, *figures]


def main() -> None:
    """Print the table of all clients and forms."""
    folder = Path(sys.argv[1])
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else RUNS
    table = Table("client", "form", "export s", "copy s", "ratio", "peak MB", "size MB")
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        for client in registry.names(exporters):
            for form in registry.load(exporters, client, place="").FORMS:
                table.add_row(*measure(folder, client, form.name, runs, Path(work)))
    Console().print(table)


if __name__ == "__main__":
    main()
