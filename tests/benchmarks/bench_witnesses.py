"""Measure an audit by a server's request file: run as `python tests/benchmarks/bench_witnesses.py [FOLDER]`.

100,000 results without cached tokens, and SGLang's request metrics of the same requests, 1 GB, which hold
each prompt. Prints the seconds that orjson needs to read both files, the seconds of `wlgen audit`, how many
times longer that is, and the command's peak memory. Asked: at most 3 times, and under 300 MB.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).parents[1]))
from kit.audits import row, write_set

from wlgen.encodings import Message

ROWS, RANKS = 100_000, 2
TEXT = "many words and no more " * 430  # 10 KB, as a request file of 1 GB holds of each of 100,000


def write(folder: Path) -> tuple[Path, Path]:
    """Write the set, the client's results and the request file; return the paths of the last two."""
    content = [
        row("formal", rank, number, messages=(Message("user", f"{rank} {number}"),))
        for rank in range(RANKS)
        for number in range(ROWS // RANKS)
    ]
    write_set(folder / "set", content)
    results, requests = folder / "results.jsonl", folder / "sglang-request-metrics-20261130_10.log"
    with results.open("wb") as client, requests.open("wb") as server:
        for each in content:
            usage = {"prompt_tokens": each.prompt_len, "completion_tokens": each.output_len}
            client.write(orjson.dumps({"id": each.id, "usage": usage}) + b"\n")
            asked = {"rid": each.id, "text": TEXT, "routed_dp_rank": each.dp_rank}
            record = {
                "request_parameters": json.dumps(asked),
                "id": each.id,
                "prompt_tokens": each.prompt_len,
                "cached_tokens": each.cached_len,
                "cached_tokens_details": {"device": each.cached_len, "host": 0},
                "completion_tokens": each.output_len,
                "finish_reason": {"type": "length", "length": each.output_len},
            }
            server.write(orjson.dumps(record) + b"\n")
    return results, requests


def read(*paths: Path) -> float:
    """Return the seconds in which orjson reads each line of some files."""
    began = time.perf_counter()
    for path in paths:
        with path.open("rb") as lines:
            for line in lines:
                orjson.loads(line)
    return time.perf_counter() - began


def audit(folder: Path, results: Path, requests: Path) -> tuple[int, float, float]:
    """Run the command; return its exit code, seconds and peak memory in MiB."""
    wlgen = Path(sys.executable).with_name("wlgen")
    command = [wlgen, "audit", folder / "set", results, "--requests", requests, "--json"]
    began = time.perf_counter()
    with (folder / "answer.json").open("wb") as answer:
        process = subprocess.Popen(command, stdout=answer)
        _, status, usage = os.wait4(process.pid, 0)
    return os.waitstatus_to_exitcode(status), time.perf_counter() - began, usage.ru_maxrss / 1024


def main() -> None:
    """Write the files, read them three times, audit them three times, and print the best of each."""
    folder = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None))
    try:
        results, requests = write(folder)
        plain = min(read(results, requests) for _ in range(3))
        runs = [audit(folder, results, requests) for _ in range(3)]
        seconds, memory = min(run[1] for run in runs), max(run[2] for run in runs)
        sys.stdout.write(
            f"exit {runs[0][0]}, request file {requests.stat().st_size / 1e9:.2f} GB: orjson {plain:.2f} s, "
            f"audit {seconds:.2f} s = {seconds / plain:.2f} times, peak {memory:.0f} MiB\n"
        )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
