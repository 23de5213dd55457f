"""The spec's file: strict YAML, or the content that a manifest keeps, into a Spec; every problem at once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import orjson
from pydantic import Field, TypeAdapter, ValidationError

from wlgen import cache_rules, encodings, registry, tasks
from wlgen.cache_rules import CacheRule
from wlgen.errors import WlgenError, error
from wlgen.pages import ceil_to, floor_to
from wlgen.places import KeyPath, Places, Problems, clip
from wlgen.spec import (
    Cached,
    CheckSplit,
    EngineNumbers,
    FormalSplit,
    Kind,
    Name,
    Prefix,
    RandomSeed,
    Ranks,
    Requests,
    SeedSplit,
    Spec,
    Splits,
    Tokens,
)
from wlgen.strict import Strict
from wlgen.validate import describe, validate
from wlgen.yaml_nodes import read_yaml

MOST_BYTES = 2**20
_ENCODING = {"name": "deepseek-v4"}
_TASK = {"name": "copy"}
_TASK_PATH = ("requests", "task")
T = TypeVar("T")


class _Requests(Strict):
    body_len: Tokens = Field(examples=["131072"])
    output_len: Tokens = Field(examples=["1024"])
    cached: Cached = Field(examples=["{min_ratio: 0.9}"])
    prefix: Prefix = Field(default=Prefix(), examples=["{shared_by: all}"])
    task: dict[str, Any] = Field(default=_TASK, examples=["{name: copy}"])


class _Splits(Strict):
    seed: SeedSplit | None = Field(default=None, examples=["{per_rank: 1}"])
    check: CheckSplit = Field(default=CheckSplit(), examples=["{per_rank: 1}"])
    formal: FormalSplit = Field(examples=["{total: 640}"])


class _File(Strict):
    """The grammar. The mappings that choose a kind are checked by that kind's own model."""

    name: Name = Field(examples=["warm-128k"])
    random_seed: RandomSeed = 0
    encoding: dict[str, Any] = Field(default=_ENCODING, examples=["{name: deepseek-v4}"])
    cache: dict[str, Any] = Field(examples=["{rule: sglang}"])
    dp_ranks: Ranks = 1
    requests: _Requests = Field(examples=["{body_len: 131072, output_len: 1024, cached: {min_ratio: 0.9}}"])
    splits: _Splits = Field(examples=["{formal: {total: 640}}"])


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
    remedy = f"A spec has the keys {', '.join(_File.model_fields)}."
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
    encoding = _encoding(_at(value, ("encoding",), _ENCODING), problems)
    cache = _cache(_at(value, ("cache",)), problems)
    task = _kind(tasks, _at(value, _TASK_PATH, _TASK), _TASK_PATH, problems)
    file = validate(_File, value, (), problems)
    _check_seeds(value, problems)
    _check_rows(value, problems)
    if problems or file is None or encoding is None or cache is None or task is None:
        raise problems.error()
    requests = file.requests
    seed = (file.splits.seed or SeedSplit()) if requests.cached.warm else None
    splits = file.splits.model_copy(update={"seed": seed})
    content = file.model_copy(update={"splits": splits}).model_dump(mode="json", exclude_none=True)
    content |= {"encoding": _written(encoding), "cache": cache[1]}
    content["requests"]["task"] = _written(task)
    return Spec(
        name=file.name,
        random_seed=file.random_seed,
        encoding=encoding,
        cache=cache[0],
        dp_ranks=file.dp_ranks,
        requests=Requests(
            body_len=requests.body_len,
            output_len=requests.output_len,
            cached=requests.cached,
            prefix=requests.prefix,
            task=task,
        ),
        splits=Splits(seed=seed, check=splits.check, formal=splits.formal),
        content=content,
        place=problems.places.source,
        lines=problems.places.lines,
    )


def _written(kind: Kind) -> dict[str, Any]:
    return {"name": kind.name, **kind.options.model_dump(mode="json", exclude_none=True)}


def _at(value: object, path: KeyPath, default: object = None) -> object:
    """Return the value at a path of keys, or the default where a key is absent."""
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return default
        value = value[key]
    return value


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
        return rule, numbers.model_dump() | {"hit_quantum": rule.hit_quantum}
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


def _valid(adapter: TypeAdapter[T], value: object) -> T | None:
    """Return the value if it is valid by itself; what is wrong with it is said by the file's model."""
    try:
        return adapter.validate_python(value)
    except ValidationError:
        return None


def _check_seeds(value: dict[str, Any], problems: Problems) -> None:
    """Check that a warm set has at least one seed a rank, and a zero set none."""
    path = ("splits", "seed")
    asked = _at(value, path, {})
    cached = _valid(TypeAdapter(Cached), _at(value, ("requests", "cached")))
    seed = _valid(TypeAdapter(SeedSplit), {"per_rank": 0} if asked is None else asked)
    if cached is None or seed is None or asked == {}:
        return
    if cached.warm and not seed.per_rank:
        expected = "at least 1 seed a rank, since the bound asks for cached tokens"
        problems.add(path, expected=expected, found="none", remedy="Delete splits.seed for 1 a rank.")
    if not cached.warm and seed.per_rank:
        expected = "no seeds, since the bound asks for no cached tokens"
        remedy = "Delete splits.seed, or ask for tokens in requests.cached."
        problems.add(path, expected=expected, found=f"{seed.per_rank} a rank", remedy=remedy)


def _check_rows(value: dict[str, Any], problems: Problems) -> None:
    """Check that formal rows fill the ranks alike where each has its own prefix, and fill every group."""
    prefix = _valid(TypeAdapter(Prefix), _at(value, ("requests", "prefix"), {}))
    formal = _valid(TypeAdapter(FormalSplit), _at(value, ("splits", "formal")))
    ranks = _valid(TypeAdapter[int](Ranks), _at(value, ("dp_ranks",), 1))
    if prefix is None or formal is None or ranks is None:
        return
    rows = formal.rows(ranks)
    if prefix.shared_by == "rank" and rows % ranks:
        expected = f"a multiple of dp_ranks {ranks}, since each rank has its own prefix"
        lower, upper = floor_to(rows, ranks), ceil_to(rows, ranks)
        remedy = f"The nearest are {lower} and {upper}." if lower else f"The least is {upper}."
        problems.add(("splits", "formal", "total"), expected=expected, found=str(rows), remedy=remedy)
    if prefix.groups is not None and prefix.groups > rows:
        expected = f"at most one group for each of the {rows} formal rows"
        remedy = "Ask for fewer groups, or for more formal rows."
        problems.add(
            ("requests", "prefix", "groups"), expected=expected, found=str(prefix.groups), remedy=remedy
        )
