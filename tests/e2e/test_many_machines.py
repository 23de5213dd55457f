"""Ranks built apart and joined: the README's Ray form, on a local cluster of two workers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CLUSTER = """
import ray, subprocess
ray.init(num_cpus=2, include_dashboard=False, logging_level="error")
"""
pytestmark = pytest.mark.slow


def blocks(kind: str, holding: str) -> str:
    (found,) = [
        b for k, b in re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL) if k == kind and holding in b
    ]
    return str(found)


def run(command: list[str], place: Path) -> None:
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_ranks_built_by_ray_are_joined_into_the_set_that_one_machine_builds(tmp_path):
    pytest.importorskip("ray", reason="ray is not installed in this environment: pip install ray")
    spec = (ROOT / "specs" / "quickstart.yaml").read_text()
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "quickstart.yaml").write_text(spec)

    def small(text: str) -> str:
        return (
            text.replace("warm-128k", "quickstart").replace("range(16)", "range(2)").replace("..15}", "..1}")
        )

    (tmp_path / "cluster.py").write_text(CLUSTER + small(blocks("python", "ray.remote")))
    run([sys.executable, "cluster.py"], tmp_path)
    run(["bash", "-c", small(blocks("bash", "--take parts"))], tmp_path)
    run(["wlgen", "build", "specs/quickstart.yaml", "--output", "alone"], tmp_path)
    assert files(tmp_path / "output" / "quickstart") == files(tmp_path / "alone" / "quickstart")
