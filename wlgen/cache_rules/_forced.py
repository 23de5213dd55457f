"""An option whose value the engine forces: any other value is an error that names the reason."""

from __future__ import annotations

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError


def forced(value: int, reason: str) -> AfterValidator:
    """Return a validator that takes only `value`; its message names the value and the reason."""

    def only(found: int) -> int:
        if found != value:
            message = "Input should be {value}: {reason}"
            raise PydanticCustomError("forced", message, {"value": value, "reason": reason})
        return found

    return AfterValidator(only)
