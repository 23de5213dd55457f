"""Measure how long causes take: run as `python tests/benchmarks/bench_explain.py [ROWS] [PROMPT_LEN]`.

100,000 rows of 2,052 tokens on 16 ranks, 1,664 of them shared, with one fault each time. Prints wall time and
the peak memory of one process for each fault; what the rows themselves take is measured first.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from kit.rules import made_rule

from wlgen.audit.as_seen import RowSeen, Scene
from wlgen.audit.explain import explain
from wlgen.audit.findings import Promised
from wlgen.readers import Result
from wlgen.workload.splits import BY_NAME

RULE = made_rule(name="sglang", engine="sglang", page_size=128, hit_quantum=128)
RANKS = 16
NAMES = (
    "clean",
    "one rank keeps nothing",
    "all keep nothing",
    "sent twice",
    "quantum of 512",
    "flushed half-way",
    "nothing explains it",
)


def figure(fault: str, n: int, row: Promised) -> int:
    """Return what a row finds cached under a fault; n: its number."""
    return {
        "clean": row.cached_len,
        "one rank keeps nothing": 0 if row.dp_rank == 3 else row.cached_len,
        "all keep nothing": 0,
        "sent twice": (row.prompt_len - 1) // 128 * 128,
        "quantum of 512": row.cached_len // 512 * 512,
        "flushed half-way": 0 if n // RANKS == 600 else row.cached_len,
        "nothing explains it": row.cached_len - 128 * (n % 7 == 0),
    }[fault]


def row(split: str, n: int, prompt: int) -> Promised:
    """Return a row; a seed is the prefix of the formal rows and a token of its own."""
    shared = prompt * 13 // 16
    return Promised(
        id=f"{split}-r{n % RANKS:02d}-{n // RANKS:06d}",
        split=BY_NAME[split],
        dp_rank=n % RANKS,
        group="all",
        prompt_len=shared + 1 if split == "seed" else prompt,
        shared_len=shared,
        cached_len=0 if split == "seed" else shared // 128 * 128,
        output_len=1,
        text_sha256=str(n),
    )


def measured(name: str, rows: int, prompt: int) -> None:
    audited = []
    for n in range(rows):
        each = row("formal", n, prompt)
        cached = figure(name, n, each)
        at = n / 100
        result = Result(place="", id=each.id, prompt_tokens=prompt, output_tokens=1, start=at, end=at + 0.005)
        audited.append(RowSeen(row=each, results=[result], cached=cached))
    before = [row("seed", n, prompt) for n in range(RANKS)]
    held, start = _peak(), time.perf_counter()
    scene: Any = Scene(rule=RULE, audited=audited, before=before, ranks=tuple(range(RANKS)))
    found = explain(scene.view())
    took = time.perf_counter() - start
    causes = ", ".join(f"{each.cause} {each.rows}/{each.of}" for each in found.causes) or "none"
    sys.stdout.write(
        f"{name:32} {took:6.1f} s  {_peak():5.0f} MB ({held:.0f} MB are the rows)  "
        f"{causes}; unexplained {len(found.unexplained)}\n"
    )


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    if len(sys.argv) > 3:
        measured(sys.argv[3], int(sys.argv[1]), int(sys.argv[2]))
    else:
        sizes = [*sys.argv[1:], "100000", "2052"][: max(2, len(sys.argv) - 1)]
        for fault in NAMES:
            subprocess.run([sys.executable, __file__, *sizes[:2], fault], check=True)
