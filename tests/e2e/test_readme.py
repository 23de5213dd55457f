"""The README's commands do what it shows: each block is run as a person would, its output compared."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TIMES = re.compile(r"\d+\.\d+ s")


def block(holding: str, kind: str = "") -> str:
    """Return the code block of a kind that holds a text."""
    blocks = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)
    (found,) = [text for of, text in blocks if of == kind and holding in text]
    return str(found)


def steps(text: str) -> list[tuple[str, list[str]]]:
    """Return (command, the lines shown behind it) for each line that begins with '$ '."""
    found: list[tuple[str, list[str]]] = []
    for line in filter(None, text.splitlines()):
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "specs", tmp_path / "specs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def run(command: str) -> subprocess.CompletedProcess[str]:
    words = command.replace("python ", f"{sys.executable} ", 1).split()
    if words[0] == "wlgen":
        words[:1] = [sys.executable, "-c", "from wlgen.cli import main; main()"]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def answered(*ports: int) -> None:
    """Wait for a server at each port, a minute at most."""
    for _ in range(600):
        tried = [socket.socket() for _ in ports]
        found = [one.connect_ex(("127.0.0.1", port)) for one, port in zip(tried, ports, strict=True)]
        for one in tried:
            one.close()
        if not any(found):
            return
        time.sleep(0.1)


@pytest.fixture
def rehearsal(place: Path, port: int) -> Iterator[None]:
    assert run(f"wlgen build {place}/specs/quickstart.yaml --output served").returncode == 0
    serve = (
        "from wlgen.cli import main; main()",
        "rehearse",
        "--set",
        "served/quickstart",
        "--enable-metrics",
        "--port",
        str(port),
    )
    with subprocess.Popen([sys.executable, "-c", *serve], stdout=subprocess.DEVNULL) as server:
        answered(port)
        yield
        server.terminate()


@pytest.mark.usefixtures("place")
def test_the_plan_of_the_warm_set_is_as_shown():
    ((command, shown),) = steps(block("$ wlgen plan specs/warm-128k.yaml"))
    assert run(command).stdout.splitlines() == shown


def test_the_trap_is_refused_as_shown(place: Path):
    ((command, shown),) = steps(block("$ wlgen plan trap.yaml"))
    text = (place / "specs" / "warm-128k.yaml").read_text()
    text = text.replace("{rule: sglang-dsv4-npu}", "{rule: sglang, page_size: 128}")
    text = text.replace("{min_ratio: 0.90}", "{tokens: 117888, min_ratio: 0.9}")
    (place / "trap.yaml").write_text(text)
    found = run(command.partition("#")[0])
    assert found.returncode == 2
    assert re.sub(r"yaml:\d+", "yaml:N", found.stderr) == re.sub(r"yaml:\d+", "yaml:N", shown[0] + "\n")


@pytest.mark.usefixtures("rehearsal")
def test_the_whole_path_is_as_shown(place: Path, port: int):
    (place / "send.py").write_text(block("import hashlib, json, httpx", "python").replace("8000", str(port)))
    for command, shown in steps(block("$ wlgen rehearse --set")):
        if command.startswith("wlgen rehearse"):
            continue  # served by the fixture
        found = run(command.replace("8000", str(port)))
        assert found.returncode == 0, found.stderr
        printed = TIMES.sub("T s", found.stdout.replace(str(port), "8000")).splitlines()
        wanted = [TIMES.sub("T s", line) for line in shown]
        assert [line.rstrip() for line in printed if line][: len(wanted)] == wanted


@pytest.mark.usefixtures("rehearsal")
def test_a_set_sent_twice_is_found_as_shown(place: Path, port: int):
    (place / "send.py").write_text(block("import hashlib, json, httpx", "python").replace("8000", str(port)))
    run("wlgen build specs/quickstart.yaml")
    run("wlgen export output/quickstart --to plain --split formal --output run")
    for _ in range(2):
        assert run("python send.py").returncode == 0
    found = run("wlgen audit output/quickstart results.jsonl")
    assert found.returncode == 1
    assert block("cause: sent_twice") in found.stdout


def free_ports(count: int) -> int:
    """Return the first of so many free ports in a row."""
    for first in range(20000 + os.getpid() % 10000, 60000, count):
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for port in range(first, first + count):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError("no free ports")


@pytest.mark.usefixtures("place")
def test_a_pair_is_prepared_as_shown():
    """The two lines of the README, at three ports that are free here."""
    first = free_ports(3)
    lines = block("wlgen rehearse --pd", "bash").strip()
    for number in range(3):
        lines = lines.replace(str(8000 + number), str(first + number))
    serve, prepare = (line.partition("#")[0] for line in lines.splitlines())
    assert run("wlgen build specs/quickstart.yaml").returncode == 0
    words = [sys.executable, "-c", "from wlgen.cli import main; main()", *serve.split()[1:]]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as pair:
        try:
            answered(first, first + 1, first + 2)
            found = run(prepare)
        finally:
            pair.terminate()
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.splitlines()[-1].startswith("PREPARED: every check kept its promises")
