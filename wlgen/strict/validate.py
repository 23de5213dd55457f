"""Values against pydantic models: each error in the words of a problem, at the line of its key."""

from __future__ import annotations

import re
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from wlgen.registry import nearest
from wlgen.strict.model import keys_of
from wlgen.strict.numbers import number_remedy
from wlgen.strict.problems import KeyPath, Problems, clip

M = TypeVar("M", bound=BaseModel)

# pydantic's name of an error -> what was expected; for others, pydantic's own words.
_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "is_instance_of": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "model_type": "a mapping of keys",
    "dict_type": "a mapping of keys",
    "list_type": "a list",
    "less_than_equal": "at most {le}",
    "greater_than_equal": "at least {ge}",
}
_PER_CENT = 100


def validate(
    model: type[M], value: object, path: KeyPath, problems: Problems, *, context: object = None
) -> M | None:
    """Return the model of the value at `path`, or None once each of its problems is added.

    context: what the model's validators may ask for, such as the files that a spec names.
    """
    try:
        return model.model_validate(value, context=context)
    except ValidationError as failure:
        details = failure.errors(include_url=False)
    located = [(_location(value, detail), detail) for detail in details]
    meant: set[KeyPath] = set()  # `bodylen` is unknown and body_len missing: one mistake, reported once
    wrong: dict[KeyPath, list[ErrorDetails]] = {}
    for loc, detail in located:
        if detail["type"] == "extra_forbidden":
            meant.add(_add_unknown(model, value, path, loc, problems))
        elif detail["type"] != "missing":
            wrong.setdefault(loc, []).append(detail)
    for loc, detail in located:
        if detail["type"] == "missing" and loc not in meant:
            example = _example(model, value, loc)
            remedy = f"Add it, for example {example}." if example else ""
            problems.add((*path, *loc), expected=f"the key {loc[-1]}", found="no such key", remedy=remedy)
    for loc, alternatives in wrong.items():
        # A length that is a wrong mapping also fails as a whole number; only the error inside it helps.
        if not any(other[: len(loc)] == loc != other for other, _ in located):
            _add_wrong(alternatives, _example(model, value, loc), (*path, *loc), problems)
    return None


def _location(value: Any, detail: ErrorDetails) -> KeyPath:
    """Return the keys that lead to an error, without the union branches that pydantic names among them."""
    keys: list[str | int] = []
    for key in detail["loc"]:
        inside = key in value if isinstance(value, dict) else isinstance(value, list) and isinstance(key, int)
        if inside:
            value = value[key]
            keys.append(key)
    return (*keys, detail["loc"][-1]) if detail["type"] == "missing" else tuple(keys)


def _add_unknown(
    model: type[BaseModel], value: object, path: KeyPath, loc: KeyPath, problems: Problems
) -> KeyPath:
    """Add the problem of an unknown key, and return the path of the known key that the remedy names."""
    *around, key = loc
    holder = _model_at(model, value, tuple(around))
    known, word = list(keys_of(holder)), str(key).lower().replace("-", "_")
    remedy = getattr(holder, "misnamed", {}).get(word) or nearest(word, known)
    if not remedy and (home := _home(model, str(key))):
        remedy = f"It belongs under {home}."
    expected = f"one of the keys {', '.join(known)}" if known else "no key here"
    problems.add((*path, *loc), expected=expected, found=f"the unknown key {clip(str(key))!r}", remedy=remedy)
    return (*around, next((name for name in known if repr(name) in remedy), ""))


def _add_wrong(details: list[ErrorDetails], example: str, where: KeyPath, problems: Problems) -> None:
    """Add the one problem of a value; `details` holds one error for each branch of a union."""
    kind, value, context = details[0]["type"], details[0]["input"], details[0].get("ctx", {})
    if kind == "refused":
        where = (*where, context["key"]) if context["key"] else where
        found = context["found"] or describe(value, problems.places.written.get(where), typed=False)
        problems.add(where, expected=context["expected"], found=found, remedy=context["remedy"])
        return
    written = problems.places.written.get(where)
    expected = " or ".join(dict.fromkeys(map(_expected, details)))
    found = describe(value, written, typed=kind != "literal_error")
    mapping = kind in ("model_type", "dict_type") and example
    remedy = f"Write, for example, {example}." if mapping else _remedy(kind, value, written, context)
    problems.add(where, expected=expected, found=found, remedy=remedy)


def _expected(detail: ErrorDetails) -> str:
    if detail["type"] in _EXPECTED:
        return _EXPECTED[detail["type"]].format(**detail.get("ctx", {}))
    return detail["msg"].removeprefix("Input should be ").removeprefix("Value error, ")


def _example(model: type[BaseModel], value: object, loc: KeyPath) -> str:
    """Return the key at `loc` with the example of its field, or ''."""
    if not loc:
        return ""
    field = keys_of(_model_at(model, value, loc[:-1])).get(str(loc[-1]))
    return f"`{loc[-1]}: {field.examples[0]}`" if field and field.examples else ""


def _model_at(model: type[BaseModel], value: Any, path: KeyPath) -> type[BaseModel]:
    """Return the model that holds the keys at `path` inside a value of `model`."""
    for key in path:
        inside = key in value if isinstance(value, dict) else isinstance(value, list)
        value = value[key] if inside else None
        field = keys_of(model).get(str(key))
        if field is not None:
            model = _inner(field, value) or model
    return model


def _inner(field: FieldInfo, value: Any = None) -> type[BaseModel] | None:
    """Return the model inside a field such as `X | None`, or the model of the kind that `value` chooses."""
    chosen = [mark.model_of(value) for mark in field.metadata if hasattr(mark, "model_of")]
    return chosen[0] if chosen else _inside(field.annotation)


def _inside(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_inside, get_args(annotation))), None)


def _home(model: type[BaseModel], key: str) -> str:
    """Return the key under which `key` is known, or ''."""
    for name, field in keys_of(model).items():
        inner = _inner(field)
        if inner and key in keys_of(inner):
            return name
        if inner and (deeper := _home(inner, key)):
            return f"{name}.{deeper}"
    return ""


def describe(value: object, written: str | None = None, *, typed: bool = True) -> str:
    """Return a value as a message shows it.

    written: the value as it stands in the file. typed: whether a text is followed by "(text)".
    """
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        quoted = written is not None and written.startswith('"')
        shown = clip(written) if written and quoted else repr(clip(value))
        return f"{shown} (text)" if typed else shown
    plain = "null" if value is None else str(value).lower()
    if written and written.lower() != plain and (value is None or isinstance(value, bool)):
        return f"{written}, which YAML reads as {plain}"
    return clip(written or plain)


def _remedy(kind: str, value: object, written: str | None, context: dict[str, Any]) -> str:
    """Return what to write in place of a value that pydantic refused with an error of this kind, or ''."""
    remedy = ""
    if kind in ("int_type", "int_from_float", "is_instance_of"):
        if isinstance(value, str) and ("%" not in value or kind == "is_instance_of"):
            remedy = number_remedy(value, quoted=bool(written and written.startswith('"')))
        elif isinstance(value, float) and value.is_integer():
            remedy = f"Write {int(value)}."
    elif kind == "literal_error" and isinstance(value, str):
        remedy = nearest(value, re.findall(r"'([^']*)'", str(context["expected"])))
    elif kind == "string_type" and isinstance(value, bool | int | float):
        remedy = f"Quote it: '{written or value}'."
    elif kind == "bool_type" and value in ("true", "false"):
        remedy = "Remove the quotes."
    elif kind == "less_than_equal" and context["le"] == 1 and isinstance(value, int | float):
        remedy = f"For {value} % write {value / _PER_CENT}." if value <= _PER_CENT else ""
    return remedy
