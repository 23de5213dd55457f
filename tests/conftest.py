"""What several test files share: the option that rewrites goldens, and one small built set."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from kit.sets import spec_of

from wlgen.build.build import build
from wlgen.server import scrape
from wlgen.text import lexicon
from wlgen.workload.opened import Workload, open_workload

settings.register_profile("wlgen", deadline=None)  # on a busy machine an example of 1 ms may take 300
settings.load_profile("wlgen")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--refresh-goldens", action="store_true", help="Rewrite tests/golden from this build.")


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two readings of counters stand 20 ms apart instead of a second: a rehearsal counts at once."""
    monkeypatch.setattr(scrape, "PAUSE", 0.02)


@pytest.fixture(scope="session")
def warm_set(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    """Build a warm set of 2 ranks, 2 groups, 10 formal rows. Tests change copies only: `copy_of`."""
    spec = spec_of(prefix={"shared_by": "group", "groups": 2}, formal={"total": 10})
    return build(spec, tmp_path_factory.mktemp("warm")).workload


@pytest.fixture(scope="session")
def zero_set(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    """Build a zero set of 2 ranks, 6 formal rows. Tests change copies only: `copy_of`."""
    spec = spec_of(cached={"max_tokens": 0}, formal={"total": 6})
    return build(spec, tmp_path_factory.mktemp("zero")).workload


@pytest.fixture(scope="module")
def small_bank() -> Iterator[None]:
    """Draw fewer sentences: for modules that build many sets, and rows that look more alike."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lexicon, "BANK", 64)
        yield


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Workload], Workload]:
    """Copy a built set to a place of the test's own."""

    def copy(workload: Workload) -> Workload:
        folder = tmp_path / "copy"
        shutil.copytree(workload.folder, folder)
        return open_workload(folder)

    return copy
