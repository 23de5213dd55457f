"""Reads a Spec from strict YAML, or from the content that a manifest keeps; every problem at once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from wlgen import registry
from wlgen.errors import error, regular
from wlgen.spec.checks import check
from wlgen.spec.inputs import Inputs
from wlgen.spec.model import DrawnSpec, Spec, TraceSpec
from wlgen.strict.model import keys_of
from wlgen.strict.problems import Places, Problems
from wlgen.strict.validate import describe, validate
from wlgen.strict.yaml import read_yaml
from wlgen.workload.manifest import MANIFEST

if TYPE_CHECKING:
    from wlgen.workload.opened import Workload

MOST_BYTES = 2**20


def load(path: Path) -> Spec:
    """Read a spec's file; WlgenError lists each problem as 'file:line key.path: ...'."""
    remedy = "Give the YAML file of a spec."
    try:
        with regular(path).open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except FileNotFoundError as failure:
        beside = [p.name for p in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
        near = registry.nearest(path.name, beside)
        raise error(str(path), expected="a spec", found="no such file", remedy=near) from failure
    except (OSError, ValueError) as failure:
        found = getattr(failure, "strerror", None) or str(failure)
        raise error(str(path), expected="a spec", found=found, remedy=remedy) from failure
    if len(raw) > MOST_BYTES:
        expected = f"a spec of at most {MOST_BYTES} bytes"
        raise error(str(path), expected=expected, found="a larger file", remedy=remedy)
    return parse(_text(raw, str(path)), str(path))


def parse(text: str, place: str) -> Spec:
    """Return the Spec of a YAML text; `place` is what messages call the text. Errors as for `load`."""
    value, problems = read_yaml(text, place)
    if isinstance(value, dict):
        return _spec(value, problems)
    empty = "no keys" if text.strip() else "an empty file"
    found = empty if value is None else describe(value)
    remedy = f"A spec has the keys {', '.join(keys_of(DrawnSpec))}."
    problems.add((), expected="a spec", found=found, remedy=remedy)
    raise problems.error()


def from_content(content: Mapping[str, Any], place: str) -> Spec:
    """Return the Spec of `Spec.content`, as a manifest keeps it; problems stand at 'place key.path'."""
    if not isinstance(content, Mapping):  # a manifest is a file that anyone may have edited
        raise error(place, expected="a spec", found=describe(content))
    return _spec(dict(content), Problems(Places(source=place)))


def of_set(workload: Workload) -> Spec:
    """Return the Spec of a built set; problems stand at 'DIR/manifest.json key.path'."""
    return from_content(workload.manifest.spec, str(workload.folder / MANIFEST))


def fingerprint(content: Mapping[str, Any]) -> str:
    """Return the sha256, in hex, of a spec's content as JSON with sorted keys and no white space."""
    return hashlib.sha256(orjson.dumps(dict(content), option=orjson.OPT_SORT_KEYS)).hexdigest()


def _text(raw: bytes, place: str) -> str:
    remedy = "Save it as UTF-8."
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise error(place, expected="UTF-8 text", found="UTF-16", remedy=remedy)
    if b"\0" in raw:
        raise error(place, expected="a spec", found="a binary file", remedy="Give the YAML file of a spec.")
    try:
        return raw.decode()
    except UnicodeDecodeError as failure:
        line = raw.count(b"\n", 0, failure.start) + 1
        found = f"the byte 0x{raw[failure.start]:02x}"
        raise error(f"{place}:{line}", expected="UTF-8 text", found=found, remedy=remedy) from failure


def _spec(value: dict[str, Any], problems: Problems) -> Spec:
    """Return the spec of a mapping, and read the files that it names."""
    asked = value.get("requests")
    form: type[Spec] = TraceSpec if isinstance(asked, dict) and "trace" in asked else DrawnSpec
    inputs = Inputs(Path(problems.places.source).parent)
    spec: Spec | None = validate(form, value, (), problems, context=inputs)
    for failure in inputs.failures:
        problems.take(("requests",), failure)
    check(value, problems)
    if problems or spec is None:
        raise problems.error()
    return spec.read_from(problems.places, inputs.kept)
