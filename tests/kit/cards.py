"""Run cards as a person follows them: the shell of their steps, in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

MINUTES = 60
WLGEN = f'wlgen() {{ {sys.executable} -m wlgen "$@"; }}'


def blocks(card: str, heading: str) -> list[str]:
    """Return the fenced blocks below a heading, up to the next one."""
    found = re.search(rf"^#+ {heading}[^\n]*\n(.*?)(?=^#|\Z)", card, re.DOTALL | re.MULTILINE)
    assert found, heading
    return re.findall(r"```bash\n(.*?)```", found[1], re.DOTALL)


def block(card: str, heading: str) -> str:
    """Return the first fenced block below a heading."""
    return blocks(card, heading)[0]


def shell(script: str, environment: Path, minutes: int = 10) -> subprocess.CompletedProcess[str]:
    """Run a script with the client's environment on the path; `wlgen` is the one under test."""
    path = f"{environment / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", f"set -e\n{WLGEN}\n{script}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=minutes * MINUTES,
        env=os.environ | {"PATH": path},
    )
