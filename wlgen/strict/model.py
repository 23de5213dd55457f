"""The strict model of everything a person writes: no unknown key, no converted type, each key explained."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError


class Strict(BaseModel):
    """A frozen model that takes no unknown key and converts no type.

    left_out: keys that joined the model after a release. The model writes such a key only where a person has
    written it, so that the fingerprints of older sets hold: `rounds: 1` in a spec stays in the manifest, and
    a spec that does not mention rounds keeps the content that it had before rounds existed.
    misnamed: wrong keys that people write, each with its remedy, where the nearest known key would mislead:
    output_len is nearest to prompt_len, but body_len is meant.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    left_out: ClassVar[frozenset[str]] = frozenset()
    misnamed: ClassVar[Mapping[str, str]] = {}

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = write(self)
        for key in self.left_out - self.model_fields_set:
            content.pop(key, None)
        return content


def key(
    meaning: str,
    *,
    example: str,
    unit: str = "",
    default: Any = ...,
    alias: str | None = None,
    validate_default: bool | None = None,
) -> Any:
    """Return a key of a model with what `wlgen explain` and `wlgen schema` say of it.

    meaning: full sentences. example: a value as a person writes it in YAML. unit: what a number counts.
    """
    extra: JsonDict = {"unit": unit} if unit else {}
    if isinstance(default, Fraction):  # versions of pydantic write a Fraction in different ways
        extra["default"] = float(default)
    return Field(
        default,
        description=meaning,
        examples=[example],
        json_schema_extra=extra,
        alias=alias,
        validate_default=validate_default,
    )


def keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a model by the keys that a person writes."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def refusal(*, expected: str, found: str = "", remedy: str = "", key: str = "") -> PydanticCustomError:
    """Return the exception that a model's validator raises; `validate` makes a problem of it.

    found: "" shows the value itself. key: the key at fault, where a validator looks at a whole mapping.
    """
    context = {"expected": expected, "found": found, "remedy": remedy, "key": key}
    return PydanticCustomError("refused", "Input should be {expected}", context)
