"""The strict model of everything a person writes: no unknown key, no converted type."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A frozen model that takes no unknown key and converts no type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
