"""Measure `wlgen audit`: run as `python tests/benchmarks/bench_audit.py [FOLDER]`.

Two sets with results as AISBench writes them, times in its database: 20,000 rows of 2 KB, and 640 rows of
480 KB, whose details file is 300 MB. Prints wall time and peak memory of the command, set proof included.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from kit.audits import manifest, row, write_set

from wlgen.build.store import manifest_bytes
from wlgen.encodings import Message
from wlgen.workload.opened import open_workload
from wlgen.workload.rows import Row

OUTPUT_TOKENS = 1024


def rows(count: int, size: int, ranks: int = 16) -> Iterator[Row]:
    """Yield `count` rows over the ranks, whose texts have about `size` characters."""
    shared = "many words and no more " * (size // 23)
    for rank in range(ranks):
        for number in range(count // ranks):
            text = f"{shared}{rank} {number}"
            yield row("formal", rank, number, messages=(Message("user", text),), output_len=OUTPUT_TOKENS)


def write_results(folder: Path, content: Iterator[Row]) -> Path:
    """Write a details file and its time points, rows in turn over the ranks; return the details' path."""
    (folder / "db_data").mkdir(parents=True)
    store = sqlite3.connect(folder / "db_data/bench.db")
    store.execute("CREATE TABLE numpy_store (id INTEGER PRIMARY KEY AUTOINCREMENT, arr_blob BLOB NOT NULL)")
    details = folder / "set_details.jsonl"
    with details.open("w", encoding="utf-8") as lines:
        for number, each in enumerate(content, 1):
            start = number * 0.08
            points = np.concatenate([[start], start + 2 + np.arange(OUTPUT_TOKENS) * 0.03])
            blob = io.BytesIO()
            np.save(blob, points)
            store.execute("INSERT INTO numpy_store (arr_blob) VALUES (?)", (blob.getvalue(),))
            usage = {
                "prompt_tokens": each.prompt_len,
                "completion_tokens": each.output_len,
                "prompt_tokens_details": {"cached_tokens": each.cached_len},
            }
            record = {
                "data_abbr": "set",
                "id": number - 1,
                "success": True,
                "error_info": "",
                "time_points": {"__db_ref__": number},
                "input_tokens": each.prompt_len,
                "output_tokens": each.output_len,
                "extra_perf_data": {"wl_id": each.id, "usage": usage},
                "input": [{"role": "user", "content": each.messages[0].content}],
                "prediction": "",
                "db_name": "bench.db",
            }
            lines.write(json.dumps(record) + "\n")
    store.commit()
    store.close()
    return details


def measure(folder: Path, details: Path) -> str:
    """Run the command and return its exit code, wall time and peak memory; its page stands beside the set."""
    place = folder.with_name("page.html")
    command = [
        Path(sys.executable).with_name("wlgen"),
        "audit",
        folder,
        details,
        "--html",
        place,
        "--json",
    ]
    began = time.perf_counter()
    with folder.with_name("answer.json").open("wb") as answer:
        process = subprocess.Popen(command, stdout=answer)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    page = place.stat().st_size / 1e6
    return (
        f"exit {os.waitstatus_to_exitcode(status)}, {seconds:.1f} s, peak {usage.ru_maxrss / 1024:.0f} MiB, "
        f"details {details.stat().st_size / 1e6:.0f} MB, page {page:.2f} MB"
    )


def main() -> None:
    """Build each case, measure it, and remove it."""
    base = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None))
    try:
        for count, size in ((20_000, 2_000), (640, 480_000)):
            folder = base / str(count)
            folder.mkdir()
            write_set_streaming(folder, count, size)
            details = write_results(folder / "run", open_workload(folder).rows(("formal",)))
            sys.stdout.write(f"{count} rows of {size} characters: {measure(folder, details)}\n")
    finally:
        shutil.rmtree(base)


def write_set_streaming(folder: Path, count: int, size: int) -> None:
    """Write the set a rank at a time, so that this script stays small as well."""
    files = []
    for rank in range(16):
        held = [each for each in rows(count, size) if each.dp_rank == rank]
        write_set(folder, held)
        files.extend(open_workload(folder).manifest.files)
    content = replace(manifest(ranks=16), files=tuple(files))
    (folder / "manifest.json").write_bytes(manifest_bytes(content))


if __name__ == "__main__":
    main()
