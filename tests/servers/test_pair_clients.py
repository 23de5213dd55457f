"""Real clients drive a rehearsed pair by their run cards, and every row is as planned on the prefill side.

Run: WLGEN_CLIENTS=FOLDER pytest -m slow tests/servers/test_pair_clients.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit.cards import block, blocks, shell
from kit.pairs import rehearsed_pair, routed

from wlgen.build.build import build
from wlgen.export.export import export
from wlgen.rehearse.settings import TimeModel
from wlgen.spec import file as spec_file
from wlgen.workload.opened import Workload

CLIENTS = os.environ.get("WLGEN_CLIENTS", "")
pytestmark = pytest.mark.slow
SMALL = """
name: small-pair
random_seed: 20261018
encoding: {name: deepseek-v4}
cache: {rule: sglang, page_size: 64}
dp_ranks: 16
requests: {body_len: 512, output_len: 4, cached: {min_ratio: 0.75}}
splits: {seed: {per_rank: 1}, check: {per_rank: 1}, formal: {total: 64}}
"""
TIMES = TimeModel(prefill_rate=1e9, decode_rate=1e9, running=64)
WARM = Path(__file__).parents[2] / "specs" / "warm-128k.yaml"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    return build(spec_file.parse(SMALL, "small.yaml"), tmp_path_factory.mktemp("small")).workload


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    return build(spec_file.load(WARM), tmp_path_factory.mktemp("warm")).workload


def walked(workload: Workload, client: str, decode_ranks: int, folder: Path) -> None:
    """Follow the card of a pair: 16 decode ranks behind mini_lb, fewer behind wlgen's own router."""
    environment = Path(CLIENTS) / client
    if not CLIENTS or not environment.is_dir():
        pytest.skip(f"WLGEN_CLIENTS names no folder with an environment {client}")
    way = "mini_lb" if decode_ranks == 16 else "route"
    export(workload, client, folder, model="rehearsal", pair=way)
    card = (folder / "RUN.md").read_text()
    sides = {"decode_ranks": decode_ranks, "times": TIMES, "hangs": 300.0}  # on a busy machine 2 s are short
    with rehearsed_pair(workload, **sides) as pair, routed(pair) as route:
        steps = [
            block(card, r"3\. Set these once"),
            f"export URL={pair.url if way == 'mini_lb' else route} MODEL=rehearsal",
            f'PREFILL="--prefill {pair.prefill}" DECODE="--decode {pair.decode}"',
            block(card, r"4\. Flush, seed and check"),
            block(card, r"5\. Formal run"),
            *blocks(card, r"6\. Count again, and audit"),
        ]
        ran = shell("\n".join(steps), environment, minutes=15)
        computed = pair.computed
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-3000:]
    assert "PREPARED" in ran.stdout
    for rank in range(16):
        planned = sum(row.prompt_len - row.cached_len for row in workload.rows(ranks=(rank,)))
        assert computed[rank] >= planned, "a row was not computed on its rank"


@pytest.mark.parametrize("decode_ranks", [16, 4])
@pytest.mark.parametrize("client", ["aisbench", "sglang", "vllm", "aiperf", "guidellm", "evalscope"])
def test_a_small_set_is_as_planned(small, tmp_path, client, decode_ranks):
    walked(small, client, decode_ranks, tmp_path / "out")


@pytest.mark.parametrize(("client", "decode_ranks"), [("aisbench", 16), ("sglang", 4)])
def test_warm_128k_is_as_planned(warm, tmp_path, client, decode_ranks):
    """640 formal rows of 131,076 tokens, of which the prefill side finds 118,784 cached."""
    walked(warm, client, decode_ranks, tmp_path / "out")
