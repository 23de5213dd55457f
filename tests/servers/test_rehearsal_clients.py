"""Real clients drive a rehearsal at 640 rows as their run cards say, and every promise holds.

Run: WLGEN_CLIENTS=FOLDER pytest -m slow tests/servers, where FOLDER/NAME is the environment of a client.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from kit.rehearsals import rehearsal
from typer.testing import CliRunner

from wlgen.cli import app
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


def run_card(folder: Path, section: str) -> str:
    """Return the commands of a section of an export's run card."""
    card = (folder / "RUN.md").read_text()
    found = re.search(rf"^## \d+\. {section}.*?```bash\n(.*?)```", card, re.MULTILINE | re.DOTALL)
    assert found, f"no section {section} in the run card"
    return found[1]


@pytest.mark.parametrize("client", ["aisbench", "sglang", "aiperf"])
def test_a_client_keeps_every_promise_at_640_rows(workload, tmp_path, client):
    environment = Path(CLIENTS) / client
    if not CLIENTS or not environment.is_dir():
        pytest.skip(f"WLGEN_CLIENTS names no folder with an environment {client}")
    journal, folder = tmp_path / "journal.jsonl", tmp_path / client
    with rehearsal(workload, times=TIMES) as running:
        cli = CliRunner()
        done = cli.invoke(
            app, ["prepare", str(workload.folder), "--url", running.url, "--journal", str(journal)]
        )
        assert done.exit_code == 0, done.output
        arguments = ["--to", client, "--split", "formal", "--output", str(folder), "--model", "rehearsal"]
        assert cli.invoke(app, ["export", str(workload.folder), *arguments]).exit_code == 0
        once = re.sub(r"^pip install.*$", "", run_card(folder, "Set these once"), flags=re.MULTILINE)
        script = f"set -e\n{once}\nexport URL={running.url} MODEL=rehearsal CONCURRENCY=64\n"
        script += run_card(folder, "Formal run")
        paths = f"{environment / 'bin'}:{os.environ['PATH']}"
        ran = subprocess.run(
            ["bash", "-c", script],
            cwd=folder,
            env=os.environ | {"PATH": paths},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    answer = audited(folder)
    assert answer["findings"] == []
    assert answer["promises"]["per_request_min"] >= answer["promises"]["configured"]


def audited(folder: Path) -> dict:
    """Run the audit of the run card and return its JSON."""
    wlgen = f"{sys.executable} -c 'from wlgen.cli import main; main()'"
    once = re.search(r"^SET=.*$", (folder / "RUN.md").read_text(), re.MULTILINE)[0]
    command = run_card(folder, "Audit").strip().replace("wlgen audit", f"{wlgen} audit")
    ran = subprocess.run(
        ["bash", "-c", f"{once}\n{command} --json"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.stdout, ran.stderr
    return orjson.loads(ran.stdout)
