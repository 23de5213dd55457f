"""The reference is generated from the models that validate, so it says every key and cannot drift."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from wlgen.errors import WlgenError
from wlgen.spec.file import parse
from wlgen.spec.reference import every_key, explained, schema

ROOT = Path(__file__).parents[2]
SPECS = sorted(ROOT.glob("specs/*.yaml"))


@pytest.mark.parametrize("key", every_key(), ids=lambda key: f"{key.path} {key.kind}")
def test_every_key_has_a_meaning_a_type_and_an_example(key):
    assert key.meaning.endswith(".")
    assert key.type
    assert key.example
    assert yaml.safe_load(key.example) is not None


@pytest.mark.parametrize(
    ("path", "type_", "unit", "default"),
    [
        ("requests.cached.tolerance", "number", "cached tokens / prompt tokens", "0.005"),
        ("random_seed", "whole number", "", "0"),
        ("requests.body_len", "whole number or mapping", "tokens", ""),
        ("splits.seed.shape", "short or full", "", "short"),
        ("requests.trace.block_size", "whole number", "tokens", "512"),
        ("encoding", "mapping", "", "{name: deepseek-v4}"),
        ("rounds", "whole number", "rounds", "1"),
        ("order", "generated or group or interleaved or shuffled or short_to_long", "", "generated"),
        ("requests.prefix.levels", "list of mappings", "", ""),
    ],
)
def test_a_key_has_the_default_that_the_models_give(path, type_, unit, default):
    (key,) = [key for key in every_key() if key.path == path]
    assert (key.type, key.unit, key.default) == (type_, unit, default)


def test_keys_of_kinds_say_their_kind():
    found = {(key.kind, key.default) for key in every_key() if key.path == "cache.page_size"}
    assert {("rule: sglang", "1"), ("rule: vllm", "16"), ("engine: ...", "")} <= found


def test_a_key_is_found_as_messages_write_it_and_by_its_last_part():
    whole = explained("requests.cached")
    assert whole == explained("requests[1].cached")
    assert whole[0].path == "requests.cached"
    assert len(whole) == 7
    assert [key.path for key in explained("tolerance")] == ["requests.cached.tolerance"]
    with pytest.raises(WlgenError, match=r"found no such key\. Did you mean 'tolerance'\?"):
        explained("tolerence")


def test_the_schema_beside_the_shipped_specs_is_the_one_of_the_models():
    """Refresh it with: wlgen schema > specs/spec.schema.json."""
    assert json.loads((ROOT / "specs" / "spec.schema.json").read_text()) == schema()


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_the_first_line_of_a_shipped_spec_names_its_schema(path):
    first = path.read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=spec.schema.json"
    assert (path.parent / first.rpartition("=")[2]).is_file()


def fits(value: Any, part: dict[str, Any], whole: dict[str, Any]) -> bool:  # noqa: PLR0911 (one a kind)
    """Return whether a value fits a JSON Schema, as far as this one uses the language."""
    if "$ref" in part:
        return fits(value, whole["$defs"][part["$ref"].rpartition("/")[2]], whole)
    choices = part.get("anyOf") or part.get("oneOf")
    if choices:
        return any(fits(value, choice, whole) for choice in choices)
    types: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "null": type(None),
        "number": (int, float),
        "integer": int,
    }
    if "type" in part and not isinstance(value, types[part["type"]]):
        return False
    if "const" in part or "enum" in part:
        return value in part.get("enum", [part.get("const")])
    if isinstance(value, dict):
        known = part.get("properties", {})
        closed = part.get("additionalProperties") is False
        return (
            set(part.get("required", [])) <= set(value)
            and not (closed and set(value) - set(known))
            and all(fits(value[key], known[key], whole) for key in value if key in known)
        )
    if isinstance(value, list):
        return all(fits(item, part.get("items", {}), whole) for item in value)
    low, high = part.get("minimum"), part.get("maximum")
    return (low is None or value >= low) and (high is None or value <= high)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_shipped_specs_fit_the_schema_and_their_mistakes_do_not(path):
    value = yaml.safe_load(path.read_text())
    assert fits(value, schema(), schema())
    assert not fits(value | {"colour": "red"}, schema(), schema())
    assert not fits(value | {"dp_ranks": "16"}, schema(), schema())
    assert not fits(value | {"cache": {"rule": "sglang", "hit_quantum": 8}}, schema(), schema())


def test_examples_of_whole_sections_are_specs():
    examples = {key.path: key.example for key in every_key() if "." not in key.path and not key.kind}
    needed = {name: yaml.safe_load(examples[name]) for name in ("name", "cache", "requests", "splits")}
    assert parse(json.dumps(needed), "s").name == "warm-128k"
