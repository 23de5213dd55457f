"""JSON of a server's page, read without trust: what is not a JSON object counts as one without keys."""

from __future__ import annotations

from typing import Any

import orjson


def fields_of(page: bytes) -> dict[str, Any]:
    """Return the keys of a JSON object, none for anything else."""
    try:
        content = orjson.loads(page)
    except orjson.JSONDecodeError:
        return {}
    return content if isinstance(content, dict) else {}
