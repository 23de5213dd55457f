"""Build beside a reference encode pass of the same prompts, a rebuild beside sha256sum: ratios of one run.

python tests/benchmarks/bench_build.py [--runs 3] [specs/zero-16k.yaml ...]

The encode pass is `Tokenizer.encode_batch` with its default threads over the prompts in batches, tokenizer
loading apart; the build is the whole process `wlgen build`, start-up, proof, hashes and writing included.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from wlgen.build.ready import load_encoding
from wlgen.spec import file as spec_file
from wlgen.workload.opened import open_workload

BATCH = 32  # prompts
WLGEN = [sys.executable, "-c", "from wlgen.cli import main; main()"]


def least(runs: int, act: Callable[[], object]) -> float:
    """Return the least wall time of some runs, in seconds."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        act()
        times.append(time.perf_counter() - start)
    return min(times)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run_quietly(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def build(spec: Path, output: Path, *, fresh: bool) -> None:
    if fresh:
        shutil.rmtree(output, ignore_errors=True)
    subprocess.run([*WLGEN, "build", str(spec), "--output", str(output), "--quiet"], check=True)


def encode(folder: Path, spec: Path) -> tuple[float, int]:
    """Return the seconds of one encode pass over every prompt of a set, and its tokens."""
    encoding = load_encoding(spec_file.load(spec))
    seconds, tokens, batch = 0.0, 0, []

    def run() -> int:
        start = time.perf_counter()
        found = encoding.tokenizer.encode_batch(batch, add_special_tokens=False)
        nonlocal seconds
        seconds += time.perf_counter() - start
        return sum(len(each.ids) for each in found)

    for row in open_workload(folder).rows():
        batch.append(encoding.render(row.messages))
        if len(batch) == BATCH:
            tokens += run()
            batch.clear()
    return seconds, tokens + (run() if batch else 0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("specs", nargs="*", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    say("set | encode pass s | tokens | build s | ratio | peak MB | rebuild s | sha256sum + start s | ratio")
    for spec in asked.specs or [Path("specs/zero-16k.yaml"), Path("specs/warm-128k.yaml")]:
        with tempfile.TemporaryDirectory() as place:
            output = Path(place)
            built = least(asked.runs, partial(build, spec, output, fresh=True))
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            again = least(asked.runs, partial(build, spec, output, fresh=False))
            folder = next(path.parent for path in output.glob("*/manifest.json"))
            files = [str(path) for path in folder.rglob("*.jsonl")]
            hashed = least(asked.runs, partial(run_quietly, "sha256sum", *files))
            started = least(asked.runs, partial(run_quietly, *WLGEN, "--help"))
            seconds, tokens = encode(folder, spec)
        base = hashed + started
        say(
            f"{spec.stem} | {seconds:.1f} | {tokens} | {built:.2f} | {seconds / built:.1f} | {peak:.0f} | "
            f"{again:.2f} | {base:.2f} | {again / base:.2f}"
        )


if __name__ == "__main__":
    main()
