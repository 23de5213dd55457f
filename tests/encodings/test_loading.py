"""Finding and loading a tokenizer: folders, hub ids, and what is said when there is neither."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import time

import pytest
from kit import families

from wlgen.encodings import _loading
from wlgen.encodings._loading import load_tokenizer
from wlgen.errors import WlgenError


def refusal(path, revision=None):
    with pytest.raises(WlgenError) as caught:
        load_tokenizer(str(path), revision, place="spec.yaml:3")
    (problem,) = caught.value.problems
    assert problem.place == "spec.yaml:3"
    return problem


def test_the_sha256_is_of_tokenizer_json(tmp_path):
    folder = families.chatml(tmp_path)
    _, sha256 = load_tokenizer(str(folder), None, place="spec.yaml:3")
    assert sha256 == hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()


def test_a_relative_path_and_a_home_path_are_folders(tmp_path, monkeypatch):
    families.chatml(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_tokenizer("model", None, place="")[1] == load_tokenizer("~/model", None, place="")[1]


@pytest.mark.parametrize("name", ["tokenizer.model", "vocab.json", "qwen.tiktoken"])
def test_a_folder_without_tokenizer_json_names_how_to_convert(tmp_path, name):
    (tmp_path / name).write_bytes(b"x")
    problem = refusal(tmp_path)
    assert problem.found == f"a folder with {name}"
    assert "save_pretrained" in problem.remedy


def test_an_empty_folder_is_called_empty(tmp_path):
    assert refusal(tmp_path).found == "an empty folder"


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"model": {"type": "BPE", "vocab": 3}}', "\0\1"])
def test_a_broken_tokenizer_json_is_refused(tmp_path, content):
    folder = families.chatml(tmp_path)
    (folder / "tokenizer.json").write_text(content)
    problem = refusal(folder)
    assert problem.expected == "a tokenizer that transformers can load"
    assert "\n" not in problem.found


def test_a_broken_config_is_refused(tmp_path):
    folder = families.chatml(tmp_path)
    (folder / "tokenizer_config.json").write_text("{")
    assert refusal(folder).expected == "a tokenizer that transformers can load"


def test_a_tokenizer_that_needs_its_own_code_is_refused(tmp_path):
    folder = families.chatml(
        tmp_path, auto_map={"AutoTokenizer": ["own.Own", None]}, tokenizer_class="OwnTokenizer"
    )
    (folder / "own.py").write_text("raise SystemExit('ran')")
    # transformers 4 and 5 say it in their own words.
    found = refusal(folder).found
    assert "contains custom code" in found or "trust_remote_code=True" in found


def test_a_file_is_not_a_folder(tmp_path):
    file = families.chatml(tmp_path) / "tokenizer.json"
    assert refusal(file).remedy == "Give the folder it stands in."


def test_a_folder_has_no_revision(tmp_path):
    assert refusal(families.chatml(tmp_path), "main").found == "revision 'main'"


@pytest.mark.parametrize("path", ["./model", "../model", "/no/such/model", "~/model", "a/b/c", "model/"])
def test_a_path_that_is_no_hub_id_is_not_looked_up(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_loading, "_hub_file", _no_hub)
    assert refusal(path).found == f"no such folder, {path}"


@pytest.mark.parametrize("path", ["models/qwen", "qwen"])
def test_a_missing_folder_beside_others_is_not_looked_up_unless_a_revision_is_given(
    tmp_path, monkeypatch, path
):
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_loading, "_hub_file", _no_hub)
    problem = refusal(path)
    assert problem.found == f"no such folder, {path}"
    assert "revision: main" in problem.remedy
    with pytest.raises(LookupError, match=path):
        load_tokenizer(path, "main", place="spec.yaml:3")


def test_the_remedy_for_older_tokenizer_files_works_as_printed(tmp_path):
    """A folder of vocab.json and merges.txt was sent to a Python call that no shell runs."""
    old = tmp_path / "an old model"
    old.mkdir()
    letters = {letter: n for n, letter in enumerate("abcdefghijklmnopqrstuvwxyzĠ")}
    (old / "vocab.json").write_text(json.dumps(letters | {"ab": 27, "<|endoftext|>": 28}))
    (old / "merges.txt").write_text("#version: 0.2\na b\n")
    (old / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    with pytest.raises(WlgenError) as failure:
        load_tokenizer(str(old), None, place="s")
    printed = failure.value.problems[0].remedy
    command = printed.partition(" && ")[2].replace("python", shlex.quote(sys.executable), 1)
    subprocess.run(command, shell=True, check=True, capture_output=True)  # noqa: S602 (as a person would)
    assert f"give {old}-fast:" in printed
    assert load_tokenizer(f"{old}-fast", None, place="s")[0].encode("ab") == [27]


def test_a_hub_that_does_not_answer_is_asked_once(tmp_path):
    """Six tries took 24 seconds and eleven raw lines before the good message."""
    code = HUB.split("for kind", maxsplit=1)[0] + (
        "try: raw.load(raw.Options(path='some/model', revision='v1'), place='s')\n"
        "except WlgenError as failure: print(failure)\n"
    )
    environment = os.environ | {"HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9"}
    environment.pop("HF_HUB_OFFLINE", None)
    started = time.monotonic()
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert "no copy of that hub id on this machine, and no answer from the hub" in run.stdout
    assert run.stderr == ""
    assert time.monotonic() - started < 15


def _no_hub(path, revision, place):
    """Stand for _hub_file up to where it looks up."""
    _loading._check_hub_id(path, revision, place)
    raise LookupError(path)


HUB = """
from wlgen.encodings import chat_template as c, raw
from wlgen.errors import WlgenError
for kind, path, revision in (
    (c, "some/model", None), (c, "some/model", "v1"), (raw, "some/model", "v2"), (c, "other/model", None)
):
    try:
        e = kind.load(kind.Options(path=path, revision=revision), place="spec.yaml:3")
        print(len(e.frame(("user",)).texts), e.tokenizer_sha256)
    except WlgenError as failure:
        print(failure)
"""


def test_a_hub_id_is_taken_from_the_cache_when_offline(tmp_path):
    """A model folder fetched before serves without the hub; another one gives one clear line."""
    hub = tmp_path / "hub" / "models--some--model"
    folder = families.chatml(hub / "snapshots" / ("0" * 40))
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    for name in ("main", "v1"):
        (hub / "refs").mkdir(exist_ok=True)
        (hub / "refs" / name).write_text("0" * 40)
    environment = os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    run = subprocess.run(
        [sys.executable, "-c", HUB], capture_output=True, text=True, env=environment, cwd=tmp_path, check=True
    )
    main, tagged, no_revision, missing = run.stdout.splitlines()
    sha256 = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    assert main == tagged == f"2 {sha256}"
    assert no_revision.startswith(
        "spec.yaml:3: expected a folder or a hub id with tokenizer.json, found no such"
    )
    assert missing.startswith("spec.yaml:3: expected a folder or a hub id with tokenizer.json, found no such")
    assert run.stderr == ""
