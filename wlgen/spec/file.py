"""The spec's file: strict YAML, or the content that a manifest keeps, into a Spec; every problem at once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson

from wlgen import cache_rules, encodings, registry, tasks
from wlgen.cache.rule import CacheRule
from wlgen.errors import WlgenError, error
from wlgen.spec.arrivals import Arrivals
from wlgen.spec.checks import check, value_at
from wlgen.spec.grammar import DEFAULT_ENCODING, DEFAULT_TASK, AnyFile, ClassesFile, SingleFile, TraceFile
from wlgen.spec.inputs import Inputs
from wlgen.spec.model import (
    MOST_ROWS,
    Cached,
    CheckSplit,
    EngineNumbers,
    FormalSplit,
    Kind,
    Prefix,
    Requests,
    SeedSplit,
    Spec,
    Splits,
    Trace,
)
from wlgen.strict.problems import KeyPath, Places, Problems, clip
from wlgen.strict.validate import describe, validate
from wlgen.strict.yaml import read_yaml

MOST_BYTES = 2**20


def load(path: Path) -> Spec:
    """Read a spec's file; WlgenError lists each problem as 'file:line key.path: ...'."""
    remedy = "Give the YAML file of a spec."
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except FileNotFoundError as failure:
        beside = [p.name for p in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
        near = registry.nearest(path.name, beside)
        raise error(str(path), expected="a spec", found="no such file", remedy=near) from failure
    except (OSError, ValueError) as failure:
        found = "a directory" if isinstance(failure, IsADirectoryError) else str(failure)
        raise error(str(path), expected="a spec", found=found, remedy=remedy) from failure
    if len(raw) > MOST_BYTES:
        expected = f"a spec of at most {MOST_BYTES} bytes"
        raise error(str(path), expected=expected, found="a larger file", remedy=remedy)
    return parse(_text(raw, str(path)), str(path))


def parse(text: str, place: str) -> Spec:
    """Return the Spec of a YAML text; `place` is what messages call it. Errors as for `load`."""
    value, problems = read_yaml(text, place)
    if isinstance(value, dict):
        return _spec(value, problems)
    empty = "no keys" if text.strip() else "an empty file"
    found = empty if value is None else describe(value)
    remedy = f"A spec has the keys {', '.join(SingleFile.model_fields)}."
    problems.add((), expected="a spec", found=found, remedy=remedy)
    raise problems.error()


def from_content(content: Mapping[str, Any], place: str) -> Spec:
    """Return the Spec of the content that `parse` gave; problems stand at 'place key.path'."""
    if not isinstance(content, Mapping):  # a manifest is a file that anyone may have edited
        raise error(place, expected="a spec", found=describe(content))
    return _spec(dict(content), Problems(Places(source=place)))


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
    asked = value.get("requests")
    single = TraceFile if "trace" in _mapping(asked) else SingleFile
    form: type[AnyFile] = ClassesFile if isinstance(asked, list) else single
    encoding = _encoding(value_at(value, ("encoding",), DEFAULT_ENCODING), problems)
    cache = _cache(value_at(value, ("cache",)), problems)
    file = validate(form, value, (), problems)
    paths = [("requests", i) for i in range(len(asked))] if isinstance(asked, list) else [("requests",)]
    tasks_of = [
        _kind(tasks, value_at(value, (*p, "task"), DEFAULT_TASK), (*p, "task"), problems) for p in paths
    ]
    check(value, problems)
    if problems or file is None or encoding is None or cache is None or None in tasks_of:
        raise problems.error()
    kinds = [kind for kind in tasks_of if kind is not None]
    content = file.model_dump(mode="json", exclude_none=True)
    content |= {"encoding": _written(encoding), "cache": cache[1]}
    classes = content["requests"] if isinstance(asked, list) else [content["requests"]]
    for written, kind in zip(classes, kinds, strict=True):
        written["task"] = _written(kind)
    inputs = Inputs(problems)
    requests, splits = _requests(file, kinds, inputs, content["requests"]), _splits(file)
    trace, arrivals = _trace(file, inputs, content), _arrivals(file, inputs, content)
    if problems:
        raise problems.error()
    if splits.check.per_rank == 0 and "check" in content["splits"]:
        content["splits"]["check"] = splits.check.model_dump(mode="json", exclude_none=True)
    if splits.seed is not None:
        content["splits"]["seed"] = splits.seed.model_dump(mode="json", exclude_none=True)
    else:
        content["splits"].pop("seed", None)
    return Spec(
        name=file.name,
        random_seed=file.random_seed,
        encoding=encoding,
        cache=cache[0],
        dp_ranks=file.dp_ranks,
        requests=requests,
        splits=splits,
        content=content,
        place=problems.places.source,
        trace=trace,
        rounds=file.rounds or 1,
        order=getattr(file, "order", None) or "generated",
        arrivals=arrivals,
        inputs=inputs.kept,
        lines=problems.places.lines,
    )


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _requests(file: AnyFile, kinds: list[Kind], inputs: Inputs, content: Any) -> tuple[Requests, ...]:
    """Return the classes of a file; of a trace one, which says the task and no more."""
    if isinstance(file, TraceFile):
        cold = Cached(cold=True)
        return (Requests(name="", body_len=1, output_len=1, cached=cold, prefix=Prefix(), task=kinds[0]),)
    several = isinstance(file, ClassesFile)
    classes = file.requests if isinstance(file, ClassesFile) else [file.requests]
    equal = all(getattr(c, "count", None) is None for c in classes)
    paths: list[KeyPath] = [("requests", i) if several else ("requests",) for i in range(len(classes))]
    written = content if several else [content]
    return tuple(
        Requests(
            name=getattr(of, "name", ""),
            body_len=inputs.length(of.body_len, (*path, "body_len"), said["body_len"]),
            output_len=inputs.length(of.output_len, (*path, "output_len"), said["output_len"]),
            cached=of.cached,
            prefix=of.prefix,
            task=kind,
            weight=(1 if (weight := getattr(of, "weight", None)) is None else weight) if equal else None,
            count=getattr(of, "count", None),
            session=of.session,
        )
        for of, kind, path, said in zip(classes, kinds, paths, written, strict=True)
    )


def _trace(file: AnyFile, inputs: Inputs, content: dict[str, Any]) -> Trace | None:
    if not isinstance(file, TraceFile):
        return None
    return inputs.trace(file.requests.trace, ("requests", "trace"), content["requests"]["trace"])


def _arrivals(file: AnyFile, inputs: Inputs, content: dict[str, Any]) -> Arrivals | None:
    arrivals: Arrivals | None = getattr(file, "arrivals", None)
    if arrivals is None or arrivals.column is None:
        return arrivals
    times = inputs.numbers(arrivals.column, ("arrivals",), content["arrivals"], least=0)
    return arrivals.model_copy(update={"times": times})


def _splits(file: AnyFile) -> Splits:
    """Return the splits: seeds where a class has a prefix to prime, formal rows alone for a trace."""
    if isinstance(file, TraceFile):
        total = file.splits.formal.total or MOST_ROWS
        return Splits(seed=None, check=CheckSplit(per_rank=0), formal=FormalSplit(total=total))
    classes = file.requests if isinstance(file, ClassesFile) else [file.requests]
    warm = any(of.cached.warm for of in classes)
    seed = (file.splits.seed or SeedSplit()) if warm else None
    cold = any(of.cached.cold for of in classes)  # a check would fill its cache before the formal rows
    check_split = CheckSplit(per_rank=0) if cold else file.splits.check
    return Splits(seed=seed, check=check_split, formal=file.splits.formal)


def _written(kind: Kind) -> dict[str, Any]:
    return {"name": kind.name, **kind.options.model_dump(mode="json", exclude_none=True)}


def _encoding(chosen: object, problems: Problems) -> Kind | None:
    if isinstance(chosen, dict) and "path" in chosen:  # a tokenizer of the person's own needs no name
        chosen = {"name": "chat-template", **chosen}
    return _kind(encodings, chosen, ("encoding",), problems, alternative=" or the key path")


def _kind(
    folder: ModuleType,
    chosen: object,
    path: KeyPath,
    problems: Problems,
    *,
    key: str = "name",
    alternative: str = "",
) -> Kind | None:
    """Return the kind that the mapping at `path` chooses by `key`, or None once its problems are added."""
    if isinstance(chosen, str):
        remedy = f"Write {{{key}: {clip(chosen)}}}."
        problems.add(path, expected="a mapping of keys", found=describe(chosen), remedy=remedy)
    if not isinstance(chosen, dict):
        return None  # the file's model says what is wrong with it
    options = dict(chosen)
    name = options.pop(key, None)
    where = (*path, key)
    if not isinstance(name, str):
        written = problems.places.written.get(where)
        found = describe(name, written) if key in chosen else clip(", ".join(chosen)) or "no key"
        expected = f"the key {key} (one of {', '.join(registry.names(folder))}){alternative}"
        problems.add(where, expected=expected, found=found)
        return None
    try:
        module = registry.load(folder, name, place=problems.places.at(where))
    except WlgenError as failure:
        problems.take(where, failure)
        return None
    valid = validate(module.Options, options, path, problems)
    return None if valid is None else Kind(name=name, options=valid)


def _cache(chosen: object, problems: Problems) -> tuple[CacheRule, dict[str, Any]] | None:
    """Return the rule of the `cache` mapping and its normalised content, or None."""
    path = ("cache",)
    if isinstance(chosen, dict) and "engine" in chosen and "rule" not in chosen:
        numbers = validate(EngineNumbers, chosen, path, problems)
        if numbers is None:
            return None
        rule = numbers.rule()
        return rule, numbers.model_dump(exclude_none=True) | {"hit_quantum": rule.hit_quantum}
    if isinstance(chosen, dict) and "engine" in chosen:
        found, remedy = "both", "Delete engine: the rule knows its own."
        problems.add((*path, "engine"), expected="rule or engine", found=found, remedy=remedy)
    kind = _kind(cache_rules, chosen, path, problems, key="rule", alternative=" or the key engine")
    if kind is None:
        return None
    place = problems.places.at(path)
    try:
        rule = registry.load(cache_rules, kind.name, place=place).rule(kind.options, place=place)
    except WlgenError as failure:
        problems.take(path, failure)
        return None
    content = _written(kind)
    return rule, {"rule": content.pop("name"), **content}
