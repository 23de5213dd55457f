"""The strict model of everything a person writes: no unknown key, no converted type."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError


class Strict(BaseModel):
    """A frozen model that takes no unknown key and converts no type.

    A key added after a release defaults to None, which a spec's content leaves out: so old fingerprints hold.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def refusal(*, expected: str, found: str = "", remedy: str = "", key: str = "") -> PydanticCustomError:
    """Return what a model's validator raises, in the words of an error.

    found: the value itself where empty. key: the key at fault, where a validator looks at a whole mapping.
    """
    context = {"expected": expected, "found": found, "remedy": remedy, "key": key}
    return PydanticCustomError("refused", "Input should be {expected}", context)
