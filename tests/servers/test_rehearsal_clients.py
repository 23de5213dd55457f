"""Real clients drive a rehearsal at 640 rows as their run cards say, and every promise holds.

Run: WLGEN_CLIENTS=FOLDER pytest -m slow tests/servers, where FOLDER/NAME is the environment of a client.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit.cards import block, blocks, shell
from kit.rehearsals import rehearsal
from typer.testing import CliRunner

from wlgen.cli import app
from wlgen.export.export import export
from wlgen.rehearse.settings import TimeModel
from wlgen.workload.opened import Workload, open_workload

CLIENTS = os.environ.get("WLGEN_CLIENTS", "")
pytestmark = pytest.mark.slow
SPEC = """
name: rehearsed
random_seed: 11
encoding: {name: deepseek-v4}
cache: {rule: sglang, page_size: 128}
dp_ranks: 16
requests: {body_len: 2048, output_len: 32, cached: {min_ratio: 0.75}}
splits:
  seed: {per_rank: 1}
  check: {per_rank: 1}
  formal: {total: 640}
"""
TIMES = TimeModel(prefill_rate=200_000, decode_rate=400)


@pytest.fixture(scope="module")
def workload(tmp_path_factory) -> Workload:
    folder = tmp_path_factory.mktemp("rehearsed")
    (folder / "spec.yaml").write_text(SPEC)
    done = CliRunner().invoke(app, ["build", str(folder / "spec.yaml"), "--output", str(folder)])
    assert done.exit_code == 0, done.output
    return open_workload(folder / "rehearsed")


@pytest.mark.parametrize("client", ["aisbench", "sglang", "vllm", "aiperf", "guidellm", "evalscope"])
def test_a_client_keeps_every_promise_at_640_rows(workload, tmp_path, client):
    """The whole card, step by step: flush, seeds and checks, the rows, the second reading, the audit."""
    environment = Path(CLIENTS) / client
    if not CLIENTS or not environment.is_dir():
        pytest.skip(f"WLGEN_CLIENTS names no folder with an environment {client}")
    folder = tmp_path / client
    export(workload, client, folder, model="rehearsal")
    card = (folder / "RUN.md").read_text()
    with rehearsal(workload, times=TIMES) as running:
        steps = [
            block(card, r"3\. Set these once"),
            f"export URL={running.url} MODEL=rehearsal",
            block(card, r"4\. Flush, seed and check"),
            block(card, r"5\. Formal run"),
            *blocks(card, r"6\. Count again, and audit"),
        ]
        ran = shell("\n".join(steps), environment, minutes=15)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-3000:]
    assert "PREPARED" in ran.stdout
