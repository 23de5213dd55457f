"""What simulating costs beside hashing the same pages once: run it with python, it prints a table.

No test, and nothing here is asserted: a figure depends on the machine, a ratio much less. Each case generates
its prompts in batches, so that the memory is the caches'.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from xxhash import xxh3_64_intdigest

sys.path.insert(0, str(Path(__file__).parents[1]))
from kit.rules import made_rule

from wlgen.cache.ranks import RankCaches, Request
from wlgen.cache.rule import CacheRule
from wlgen.engines import new_cache
from wlgen.streams import below, words

BATCH = 500
VOCABULARY = 129_000


def batches(requests: int, length: int, prefixes: int, shared: int) -> Iterator[list[Request]]:
    """Yield requests of `length` tokens, of which the first `shared` are one of so many prefixes."""
    heads = [below(words(("prefix", n), shared), VOCABULARY).astype(np.uint32) for n in range(prefixes)]
    for start in range(0, requests, BATCH):
        batch = []
        for n in range(start, min(start + BATCH, requests)):
            own = below(words(("own", n), length - shared), VOCABULARY).astype(np.uint32)
            batch.append(Request(str(n), n % 16, np.concatenate((heads[n % prefixes], own))))
        yield batch


def measure(rule: CacheRule, requests: int, length: int, prefixes: int, shared: int) -> str:
    """Return a row of the table: CPU seconds to hash, CPU seconds to replay, their ratio, peak memory."""
    simulation = RankCaches(lambda: new_cache(rule))
    hashing = simulating = 0.0
    cached = 0
    for batch in batches(requests, length, prefixes, shared):
        start = time.process_time()
        for request in batch:
            chain = 0
            for page in range(0, len(request.ids), rule.page_size):
                chain = xxh3_64_intdigest(request.ids[page : page + rule.page_size], chain)
        middle = time.process_time()
        cached += sum(hit.cached_len for hit in simulation.replay(batch))
        hashing += middle - start
        simulating += time.process_time() - middle
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ratio = simulating / hashing
    name = f"{rule.engine} page {rule.page_size}" + (f" window {rule.sliding_window}" if rule.hybrid else "")
    return (
        f"{name:26} {requests:7} x {length:6} {hashing:8.2f} {simulating:8.2f} {ratio:6.2f} {peak:7.0f}"
        f"   {cached / requests / length:.4f}"
    )


def cases(scale: int) -> Iterator[tuple[CacheRule, int, int, int, int]]:
    """Yield (rule, requests, length, prefixes, shared)."""
    for engine, page_size, window in (
        ("vllm", 16, 0),
        ("vllm", 128, 0),
        ("sglang", 1, 0),
        ("sglang", 128, 0),
        ("vllm", 128, 128),
        ("sglang", 128, 128),
    ):
        rule = made_rule(
            name=engine, engine=engine, page_size=page_size, hit_quantum=page_size, sliding_window=window
        )  # type: ignore[call-arg]
        yield rule, 100_000 // scale, 2048, 1000, 1024
    npu = made_rule(name="npu", engine="sglang", page_size=128, hit_quantum=2048, sliding_window=128)
    yield npu, 656 // scale, 131_076, 16, 118_784


def main() -> None:
    """Measure each case in a process of its own, so that its peak memory is its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=1, help="divide the number of requests")
    scale = parser.parse_args().scale
    heads = ("hash s", "replay s", "ratio", "peak MB")
    sys.stdout.write(
        f"{'rule':26} {'requests':>16} {heads[0]:>8} {heads[1]:>8} {heads[2]:>6} {heads[3]:>7}\n"
    )
    for case in cases(scale):
        with get_context("spawn").Pool(1) as pool:
            sys.stdout.write(pool.apply(measure, case) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
