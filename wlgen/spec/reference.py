"""The reference of a spec: every key with its meaning, and the JSON Schema, from the models themselves."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from wlgen import registry
from wlgen.errors import error
from wlgen.spec.kinds import KindKey
from wlgen.spec.model import DrawnSpec, TraceSpec
from wlgen.strict.model import keys_of

_INDEX = re.compile(r"\[\d*\]")
_TYPES = {int: "whole number", float: "number", bool: "true or false", str: "text", Fraction: "number"}
_MAPPING = "mapping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a spec. path: dotted, as messages write it. kind: "" unless only one kind takes the key.

    default: as a person writes it in YAML; "" for a required key, and for a key without a default.
    """

    path: str
    kind: str
    meaning: str
    type: str
    unit: str
    required: bool
    default: str
    example: str


def every_key() -> list[Key]:
    """Return every key that a spec may have, each once, in the order of the models."""
    found: dict[tuple[str, str], Key] = {}
    for model in (DrawnSpec, TraceSpec):
        for key in _keys(model, ""):
            found.setdefault((key.path, key.kind), key)
    return list(found.values())


def explained(wanted: str) -> list[Key]:
    """Return the keys at a dotted path and below it; WlgenError names the nearest key if there is none.

    requests[0].cached is requests.cached: a class in a list has the keys of a single class.
    """
    path, keys = _INDEX.sub("", wanted), every_key()
    found = [key for key in keys if key.path == path or key.path.startswith(f"{path}.")]
    if not found:  # a last part alone, as in `wlgen explain tolerance`
        found = [key for key in keys if key.path.endswith(f".{path}")]
    if not found:
        names = sorted({key.path for key in keys})
        near = registry.nearest(path, names) or registry.nearest(path, [n.rpartition(".")[2] for n in names])
        remedy = near or "`wlgen explain` alone lists every key."
        raise error(wanted, expected="a key of a spec", found="no such key", remedy=remedy)
    return found


def _keys(model: type[BaseModel], above: str, kind: str = "") -> Iterator[Key]:
    for name, field in keys_of(model).items():
        path = f"{above}.{name}" if above else name
        mark = next((m for m in field.metadata if isinstance(m, KindKey)), None)
        yield _key(path, field, kind, _MAPPING if mark else _type(field.annotation))
        if mark is not None:
            yield from _chosen_keys(mark, path)
        else:
            for inner in _models(field.annotation):
                yield from _keys(inner, path, kind)


def _chosen_keys(mark: KindKey, path: str) -> Iterator[Key]:
    """Yield the key that chooses a kind, and the keys of each kind."""
    names = registry.names(mark.folder)
    yield Key(
        path=f"{path}.{mark.chooser}",
        kind="",
        meaning=f"One of {', '.join(names)}. `wlgen list` says what each is for.",
        type="text",
        unit="",
        required=False,
        default="",
        example=names[0],
    )
    for name, model in mark.models():
        yield from _keys(model, path, f"{mark.chooser}: {name}" if name else "engine: ...")


def _key(path: str, field: FieldInfo, kind: str, type_: str) -> Key:
    extra = field.json_schema_extra
    unit = str(extra.get("unit", "")) if isinstance(extra, dict) else ""
    return Key(
        path=path,
        kind=kind,
        meaning=field.description or "",
        type=type_,
        unit=unit,
        required=field.is_required(),
        default="" if field.is_required() else _written(field.default),
        example=str((field.examples or [""])[0]),
    )


def _written(default: Any) -> str:
    """Return a default as a person writes it; "" for None, which leaves the key out."""
    if default is None or default is PydanticUndefined:
        return ""
    if isinstance(default, BaseModel):
        default = default.model_dump(mode="json", exclude_none=True)
    if isinstance(default, Fraction):
        default = float(default)
    if isinstance(default, str) and not default:
        return ""
    text = yaml.safe_dump(default, default_flow_style=True, width=1000, sort_keys=False)
    return text.removesuffix("...\n").strip()


def _parts(annotation: Any) -> tuple[Any, ...]:
    """Return the alternatives of a union, without None; for anything else the annotation itself."""
    if get_origin(annotation) is Annotated:
        return _parts(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(part for arm in get_args(annotation) if arm is not type(None) for part in _parts(arm))
    return (annotation,)


def _type(annotation: Any) -> str:
    """Return the type of a value in words: 'whole number or mapping'."""
    words = []
    for part in _parts(annotation):
        origin, inside = get_origin(part), get_args(part)
        if origin is Literal:
            words += [_written(value) for value in inside]
        elif origin in (list, tuple):
            words.append(f"list of {_plural(_type(inside[0]))}")
        elif isinstance(part, type) and issubclass(part, BaseModel):
            words.append(_MAPPING)
        else:
            words.append(_TYPES.get(part, _MAPPING))
    return " or ".join(dict.fromkeys(words))


def _plural(words: str) -> str:
    return " or ".join(word if word == "text" else f"{word}s" for word in words.split(" or "))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models inside an annotation such as `int | Distribution` or `list[Level]`."""
    for part in _parts(annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            yield part
        elif get_origin(part) in (list, tuple):
            yield from _models(get_args(part)[0])


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a spec, draft 2020-12, with which editors complete and check a spec."""
    adapter: TypeAdapter[Any] = TypeAdapter(DrawnSpec | TraceSpec)
    made: dict[str, Any] = _tidied(adapter.json_schema(by_alias=True, mode="validation"))
    drawn = made["$defs"]["DrawnSpec"]["properties"]
    several = drawn["requests"]
    about = {name: several.pop(name) for name in ("description", "examples")}
    drawn["requests"] = about | {"anyOf": [several["items"], several]}  # one class needs no list
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A spec of wlgen", **made}


def _tidied(value: Any, *, names: bool = False) -> Any:
    """Return a schema without pydantic's titles, and with examples as values.

    names: whether the mapping's keys are names of ours, such as a model's properties, and not JSON Schema's
    own words: then `title` is a name like any other, and stays.
    """
    if isinstance(value, list):
        return [_tidied(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: inner for key, inner in value.items() if names or key != "title"}
    if not names and isinstance(kept.get("examples"), list):
        kept["examples"] = [yaml.safe_load(example) for example in kept["examples"]]
    own = ("properties", "$defs")
    return {key: _tidied(inner, names=not names and key in own) for key, inner in kept.items()}
