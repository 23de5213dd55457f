"""The real clients, driven by the commands of their run cards against a loopback server, and audited.

Set them up with set_up.sh, then: WLGEN_CLIENTS=FOLDER pytest -m slow tests/clients
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kit.cards import block, blocks, shell
from kit.loopback import MODEL, Loopback, loopback
from kit.sets import spec_of

from wlgen.build.build import build
from wlgen.export.export import export
from wlgen.workload.opened import Workload

pytestmark = pytest.mark.slow

CLIENTS = os.environ.get("WLGEN_CLIENTS")
FORMS = [
    ("aisbench", "text"),
    ("sglang", "text"),
    ("sglang", "ids"),
    ("vllm", "text"),
    ("vllm", "ids"),
    ("aiperf", "text"),
    ("aiperf", "ids"),
    ("guidellm", "text"),
    ("evalscope", "text"),
    ("evalscope", "trace"),
]
BLIND = ("vllm",)  # it keeps no cached tokens: the audit must say that nobody observed them, and nothing else


@pytest.fixture(scope="module", params=["sglang", "vllm"])
def workload(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workload:
    """Build a set of each engine, since each is pinned in its own way."""
    rule = {"engine": request.param, "page_size": 16}
    spec = spec_of(name=f"real-{request.param}", cache_rule=rule, seed={"per_rank": 1}, formal={"total": 12})
    return build(spec, tmp_path_factory.mktemp(request.param)).workload


@pytest.mark.parametrize(("client", "form"), FORMS)
def test_a_real_client_sends_each_row_once_and_its_results_hold(
    workload: Workload, tmp_path: Path, client: str, form: str
):
    environment = Path(CLIENTS or "", client)
    if CLIENTS is None or not environment.is_dir():
        pytest.skip(f"{client} is not set up: tests/clients/set_up.sh FOLDER {client}; WLGEN_CLIENTS=FOLDER")
    out = tmp_path / ("export" if client == "aisbench" else "an export")  # the commands must quote a space
    export(workload, client, out, form=form)
    card = (out / "RUN.md").read_text()
    with loopback(workload) as server:
        for split in ("seed", "check", "formal"):
            server.sent.clear()
            ran = run(card, split, server, environment)
            said = ran.stdout[-4000:] + ran.stderr[-4000:]
            assert ran.returncode == 0, said
            assert server.sent, said
            _check_sent(workload, split, server)
    answer = audited(card, out, environment)
    assert answer["findings"] == []
    assert answer["verdict"] == ("NOT PROVED" if client in BLIND else "KEPT")


def run(card: str, split: str, server: Loopback, environment: Path) -> subprocess.CompletedProcess[str]:
    """Run a split's command of the run card, with the variables of a person who has filled them in."""
    setup = block(card, r"3\. Set these once, in bash")
    heading = r"5\. Formal run: each row once" if split == "formal" else split
    filled = f"export URL={server.url} MODEL={MODEL} RATE={'8' if 'RATE=4' in setup else '0'} RUN=results/one"
    if "RATE=inf" in setup:
        filled += "; RATE=inf"
    return shell(f'{setup}\n{filled}; mkdir -p "$RUN"\n{block(card, heading)}', environment)


def _check_sent(workload: Workload, split: str, server: Loopback) -> None:
    rows = {row.id: row for row in workload.rows() if row.split == split}
    assert all(sent.row for sent in server.sent), "a request of no row was sent"
    assert Counter(sent.row.id for sent in server.sent if sent.row) == Counter(list(rows))
    for sent in server.sent:
        assert sent.row
        assert sent.rank == sent.row.dp_rank
        asked = sent.body.get("max_completion_tokens") or sent.body.get("max_tokens")
        assert asked == sent.row.output_len
        assert sent.body["ignore_eos"] is True


def audited(card: str, folder: Path, environment: Path) -> dict[str, Any]:
    """Return the JSON answer of the run card's audit, without the counters that a loopback server lacks."""
    (settings,) = re.findall(r"^SET=.*$", card, re.MULTILINE)
    command = blocks(card, r"6\. Count again, and audit")[1].partition(" \\\n")[0].strip()
    done = shell(f"cd {shlex.quote(str(folder))}\n{settings}\nRUN=results/one\n{command} --json", environment)
    assert done.returncode in (0, 1), done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
