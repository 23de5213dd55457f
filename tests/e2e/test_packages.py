"""What a person installs: the wheel and the sdist from an empty folder, and the lowest versions allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHONS = [f"python3.{minor}" for minor in (11, 12, 13, 14)]
SPEC = """
name: tiny
random_seed: 7
cache: {rule: sglang, page_size: 16}
dp_ranks: 1
requests: {body_len: 256, output_len: 8, cached: {min_ratio: 0.5}}
splits: {formal: {total: 2}}
"""
pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    own = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=own, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def environment(python: str | Path, folder: Path) -> Path:
    """Make a virtual environment and return its folder of commands."""
    run(python, "-m", "venv", folder, cwd=folder.parent)
    return folder / "bin"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build the sdist, and the wheel from the sdist, out of a copy that holds what git holds."""
    place = tmp_path_factory.mktemp("packages")
    names = run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).split()
    for name in names:
        (place / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place / "tree" / name)
    commands = environment(sys.executable, place / "builder")
    run(commands / "pip", "install", "-q", "build", cwd=place)
    run(commands / "python", "-m", "build", "--outdir", place / "dist", place / "tree", cwd=place)
    (wheel,), (sdist,) = (place / "dist").glob("*.whl"), (place / "dist").glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
@pytest.mark.parametrize("python", PYTHONS)
def test_a_package_runs_from_an_empty_folder(built, kind, python, tmp_path):
    found = shutil.which(python)
    if found is None:
        pytest.skip(f"{python} is not on this machine")
    commands = environment(found, tmp_path / "env")
    run(commands / "pip", "install", "-q", built[kind], cwd=tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "tiny.yaml").write_text(SPEC)
    assert "2 formal rows" in run(commands / "wlgen", "build", "tiny.yaml", cwd=empty)
    run(commands / "wlgen", "new", "mine", "--from", "quickstart", cwd=empty)
    assert "mine: 2 ranks" in run(commands / "wlgen", "plan", "mine.yaml", cwd=empty)
    assert "0 findings" in run(commands / "wlgen", "verify", "output/tiny", "--full", cwd=empty)


def test_the_suite_passes_with_the_lowest_versions_that_are_allowed(tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = [wanted.replace(">=", "==") for wanted in project["dependencies"]]
    tools = [name for name in project["optional-dependencies"]["test"] if not name.startswith("mypy")]
    commands = environment(sys.executable, tmp_path / "env")
    run(commands / "pip", "install", "-q", *lowest, *tools, cwd=tmp_path)
    run(commands / "pip", "install", "-q", "--no-deps", "-e", ROOT, cwd=tmp_path)
    shown = run(commands / "python", "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", cwd=ROOT)
    assert " passed" in shown
