"""Files of shipped specs have the bytes they had: on any machine, with any version of any library.

After a change of the format, and only then: pytest tests/golden --refresh-goldens
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson
import pytest

from wlgen.build.build import build
from wlgen.spec import file as spec_file
from wlgen.spec.model import Spec

SPECS = Path(__file__).parent.parent.parent / "specs"
GOLDEN = Path(__file__).with_name("hashes.json")
RANK = 3  # of 16, one row a split


def shipped(name: str, **splits: Any) -> Spec:
    """Return a shipped spec with other splits: the rows of a rank do not depend on how many there are."""
    content = spec_file.load(SPECS / f"{name}.yaml").content
    return spec_file.from_content(content | {"splits": content["splits"] | splits}, name)


def quickstart(**requests: Any) -> Spec:
    content = spec_file.load(SPECS / "quickstart.yaml").content
    return spec_file.from_content(content | {"requests": content["requests"] | requests}, "quickstart")


def mixed(count: int) -> Spec:
    """Return the spec of two classes with this many rows each, whose counts are a part of it."""
    content = spec_file.load(SPECS / "mixed-0-90.yaml").content
    requests = [of | {"count": count} for of in content["requests"]]
    changes = {"requests": requests, "splits": content["splits"] | {"formal": {"total": 2 * count}}}
    return spec_file.from_content(content | changes | {"dp_ranks": 2}, "mixed-0-90")


def cases() -> dict[str, tuple[Spec, list[int]]]:
    """Return specs by name, with the ranks to build."""
    groups = {"shared_by": "group", "groups": 3}
    return {
        "warm-128k": (shipped("warm-128k", formal={"total": 16}), [RANK]),
        "zero-16k": (shipped("zero-16k", formal={"total": 16}), [RANK]),
        "quickstart": (shipped("quickstart"), [0, 1]),
        "quickstart, words, groups": (quickstart(task={"name": "words"}, prefix=groups), [0, 1]),
        "quickstart, by rank": (quickstart(prefix={"shared_by": "rank"}, output_len=200), [0, 1]),
        "aggregate-50": (shipped("aggregate-50", formal={"total": 32}), [RANK]),
        "chat-6-turns": (shipped("chat-6-turns", formal={"total": 48}), [RANK]),
        "cold-fill": (shipped("cold-fill", formal={"total": 40}), [RANK]),
        "mixed-0-90": (mixed(1), [0, 1]),
        "tenants-zipf": (shipped("tenants-zipf", formal={"total": 16}), [RANK]),
        "three-rounds": (shipped("three-rounds", formal={"total": 16}), [RANK]),
    }


@pytest.fixture(scope="module")
def goldens(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if request.config.getoption("--refresh-goldens"):
        found = {name: hashes(case, tmp_path_factory.mktemp("refresh")) for name, case in cases().items()}
        GOLDEN.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return dict(orjson.loads(GOLDEN.read_bytes()))


def hashes(case: tuple[Spec, list[int]], place: Path) -> dict[str, str]:
    """Return the fingerprint of the spec and the hash of each file that is built of it."""
    spec, ranks = case
    folder = build(spec, place, ranks=ranks).workload.folder
    files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*.jsonl"))}
    found = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return {"spec": spec_file.fingerprint(spec.content)} | found


@pytest.mark.parametrize("name", list(cases()))
def test_the_bytes_are_those_of_the_golden(name, goldens, tmp_path):
    assert hashes(cases()[name], tmp_path) == goldens[name]


def test_every_golden_has_its_case(goldens):
    assert set(goldens) == set(cases())


@pytest.mark.parametrize("name", ["quickstart", "warm-128k", "zero-16k"])
def test_the_fingerprint_of_a_shipped_spec_is_what_it_was(name):
    """Else the sets that people built of it would be built again."""
    assert spec_file.fingerprint(spec_file.load(SPECS / f"{name}.yaml").content) == FINGERPRINTS[name]


FINGERPRINTS = {
    "quickstart": "1d82c79f7b799d00b84c5e9e16bd2ca6b5642ec62d7c09733536da4febb60521",
    "warm-128k": "fa5798e3188a895374efb0bbfefca87cc6a880e70188582f32211f1bda71dd3b",
    "zero-16k": "b96c2a491f2814d3b4b0d86e1f82736c520d8e89649a852599178852e52aab59",
}
