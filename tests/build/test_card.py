"""The card of a set: Hugging Face loads the folder by it, and it is proved like every other file."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from wlgen.build.build import build
from wlgen.build.recompose import Recomposed
from wlgen.build.store import manifest_bytes
from wlgen.errors import WlgenError
from wlgen.spec import file as spec_file
from wlgen.spec.model import Spec
from wlgen.verify.by_composing import verify_composed
from wlgen.verify.by_encoding import verify_encoded
from wlgen.workload.card import CARD
from wlgen.workload.opened import Workload, open_workload
from wlgen.workload.rows import KEYS

SPECS = Path(__file__).parents[2] / "specs"
LOAD = """if True:
    import json, sys
    from datasets import load_dataset
    found = load_dataset(sys.argv[1])
    loaded = {
        name: [rows.column_names, len(rows), {k: v for k, v in rows[-1].items() if k != "messages"}]
        for name, rows in found.items()
    }
    messages = found["formal"][-1]["messages"]
    print(json.dumps([loaded, [message["role"] for message in messages], messages[-1]["content"]]))
"""


def shipped(name: str, **changes: Any) -> Spec:
    content = spec_file.load(SPECS / f"{name}.yaml").content
    return spec_file.from_content(content | changes, name)


def loaded(folder: Path, home: Path) -> Any:
    """Return what datasets.load_dataset(folder) holds, asked in a process that reaches no network."""
    offline = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    asked = [sys.executable, "-c", LOAD, str(folder)]
    found = subprocess.run(asked, env=os.environ | offline, check=True, timeout=120, capture_output=True)
    return orjson.loads(found.stdout)


@pytest.mark.parametrize(
    ("name", "changes", "null", "roles"),
    [
        ("quickstart", {}, {"session", "turn", "timestamp_ms", "cached_len_recorded", "request_class"}, 1),
        ("chat-6-turns", {"dp_ranks": 2, "splits": {"seed": {"per_rank": 1}, "formal": {"total": 12}}},
         {"request_class"}, 12),
        ("quickstart", {"rounds": 2, "arrivals": {"rate": 4}},
         {"session", "turn", "cached_len_recorded", "request_class"}, 1),
    ],
)  # fmt: skip
def test_load_dataset_takes_every_set_by_its_folder(name, changes, null, roles, tmp_path):
    """Splits whose rows have other keys load together: what a row leaves out is null."""
    workload = build(shipped(name, **changes), tmp_path).workload
    (workload.folder / "prepare.jsonl").write_text('{"event": "begin"}\n')  # a person's file is no row
    (workload.folder / "formal" / "notes.jsonl").write_text('{"note": 1}\n')
    splits, found_roles, text = loaded(workload.folder, tmp_path / "home")
    rows = {split: list(workload.rows((split,))) for split in ("seed", "check", "formal")}
    assert {split: held[1] for split, held in splits.items()} == {s: len(r) for s, r in rows.items() if r}
    assert all(held[0] == list(KEYS) for held in splits.values())
    last = rows["formal"][-1]
    assert splits["formal"][2] == {key: getattr(last, key) for key in KEYS if key != "messages"}
    assert {key for key, value in splits["formal"][2].items() if value is None} == null
    assert (len(found_roles), text) == (roles, last.messages[-1].content)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    return build(shipped("quickstart"), tmp_path_factory.mktemp("small")).workload


@pytest.fixture
def built(small: Workload, tmp_path: Path) -> Workload:
    return open_workload(shutil.copytree(small.folder, tmp_path / small.folder.name))


def broken(workload: Workload) -> list[list[tuple[str, str]]]:
    """Return (id, promise) of the findings of both levels of verify."""
    levels = (verify_composed(workload, Recomposed(workload)), verify_encoded(workload))
    return [[(finding.id, finding.promise) for finding in level.findings] for level in levels]


def test_the_manifest_lists_the_card_in_a_key_of_its_own(built):
    content = orjson.loads((built.folder / "manifest.json").read_bytes())
    sha256 = hashlib.sha256((built.folder / CARD).read_bytes()).hexdigest()
    assert content["card"] == {"path": CARD, "sha256": sha256, "rows": 0}
    assert CARD not in {file["path"] for file in content["files"]}


def test_an_edited_or_missing_card_is_found_and_built_again(built):
    assert broken(built) == [[], []]
    whole = (built.folder / CARD).read_bytes()
    for edit in (lambda: (built.folder / CARD).write_bytes(whole + b"more\n"), (built.folder / CARD).unlink):
        edit()
        assert broken(built) == [[(CARD, "sha256")]] * 2
        again = build(shipped("quickstart"), built.folder.parent)
        assert again.written == 0
        assert (built.folder / CARD).read_bytes() == whole
        assert broken(open_workload(built.folder)) == [[], []]


def test_a_card_with_its_hash_redone_is_found(built):
    forged = (built.folder / CARD).read_bytes().replace(b"seed/rank-*", b"formal/rank-*")
    (built.folder / CARD).write_bytes(forged)
    card = replace(built.manifest.card, sha256=hashlib.sha256(forged).hexdigest())
    (built.folder / "manifest.json").write_bytes(manifest_bytes(replace(built.manifest, card=card)))
    first, full = broken(open_workload(built.folder))
    assert ("manifest.json", "card") in first
    assert ("manifest.json", "card") in full


def test_a_set_that_was_built_before_there_were_cards_is_whole_and_gets_one(built):
    (built.folder / CARD).unlink()
    (built.folder / "manifest.json").write_bytes(manifest_bytes(replace(built.manifest, card=None)))
    assert broken(open_workload(built.folder)) == [[], []]
    assert build(shipped("quickstart"), built.folder.parent).written == 0
    assert (built.folder / CARD).is_file()


def test_an_unchanged_set_with_its_card_is_not_written_again(built):
    before = (built.folder / "manifest.json").stat().st_ino
    build(shipped("quickstart"), built.folder.parent)
    assert (built.folder / "manifest.json").stat().st_ino == before


def test_a_readme_of_a_person_is_never_overwritten(built):
    """In a set from before there were cards, README.md is the person's own: the manifest does not list it."""
    (built.folder / CARD).write_text("mine\n")
    (built.folder / "manifest.json").write_bytes(manifest_bytes(replace(built.manifest, card=None)))
    with pytest.raises(WlgenError, match=r"README\.md"):
        build(shipped("quickstart"), built.folder.parent)
    assert (built.folder / CARD).read_text() == "mine\n"
