"""wlgen's caches beside the engines' own classes: every request's hit, to the token."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import workloads
from kit.rules import made_rule

from wlgen.cache.rule import CacheRule

pytestmark = pytest.mark.engines

HERE = Path(__file__).parent
REQUESTS = 200


def run(script: str, cases: list[dict[str, Any]]) -> Any:
    """Run a script of this folder with the engines' Python; skip where there is none."""
    folder = os.environ.get("WLGEN_ENGINES")
    if not folder:
        pytest.skip("WLGEN_ENGINES names no folder made by tests/engines/setup.sh")
    python = Path(folder) / "bin" / "python"
    done = subprocess.run(
        [python, HERE / script], input=json.dumps(cases), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def rule(engine: str, page_size: int, hit_quantum: int = 0, **others: Any) -> CacheRule:
    return made_rule(
        name=engine, engine=engine, page_size=page_size, hit_quantum=hit_quantum or page_size, **others
    )


def vllm_rules() -> list[CacheRule]:
    """Dense at each block size; hybrid with the window below, at and above the quantum; DeepSeek-V4."""
    dense = [rule("vllm", p, speculative=s) for p in (1, 16, 64, 128, 256) for s in (False, True)]
    hybrid = [
        rule("vllm", p, q, sliding_window=w, speculative=s, retention=r * q)
        for p, q, w in ((16, 16, 40), (16, 64, 40), (32, 128, 128), (64, 64, 1000), (1, 4, 7))
        for s in (False, True)
        for r in (0, 1, 4)
    ]
    dsv4 = [
        rule("vllm", 256, sliding_window=128, window_page=64, speculative=s, retention=r)
        for s in (False, True)
        for r in (0, 256, 1024)
    ]
    return dense + hybrid + dsv4


def sglang_rules() -> list[CacheRule]:
    """Dense and with a window at each page size, with and without bigrams; DeepSeek-V4 on an NPU."""
    windows = {1: 7, 16: 40, 64: 128, 128: 100, 256: 128}
    return [
        rule("sglang", p, sliding_window=w, speculative=s)
        for p, window in windows.items()
        for w in (0, window)
        for s in (False, True)
    ] + [rule("sglang", 128, 2048, sliding_window=128, speculative=s) for s in (False, True)]


def compare(script: str, rules: list[CacheRule], **extra: Any) -> None:
    """Assert that the engine and wlgen find the same cached for every request of every rule."""
    cases = []
    for number, each in enumerate(rules):
        longest = max(300, 4 * each.hit_quantum)
        sent = workloads.requests(number, REQUESTS, page_size=each.page_size, longest=longest)
        chunk = max(each.page_size, longest // 5)
        cases.append({**asdict(each), **extra, "chunk": chunk, "capacity": None, "requests": sent})
    differ = []
    for each, case, theirs in zip(rules, cases, run(script, cases), strict=True):
        ours = workloads.hits(each, case["requests"], chunk=case["chunk"])
        assert any(theirs), f"nothing was hit, so nothing was compared: {each}"
        pairs = zip(ours, theirs, strict=True)
        differ += [(each, n, a, b) for n, (a, b) in enumerate(pairs) if a != b]
    assert differ == []


def test_vllm_reports_what_wlgen_says_for_every_request():
    """KVCacheManager: one group, full with a sliding window, DeepSeek-V4's groups; MTP; each retention."""
    compare("replay_vllm.py", vllm_rules())


@pytest.mark.parametrize("tree", ["python", "rust"])
def test_sglang_reports_what_wlgen_says_for_every_request(tree):
    """UnifiedRadixCache on either of its trees: page sizes, bigrams, sliding windows, the NPU's sidecar."""
    compare("replay_sglang.py", sglang_rules(), tree=tree)
