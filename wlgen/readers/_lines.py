"""JSON lines of a result file: each a record with its place, or the problem that stands there."""

from __future__ import annotations

from collections.abc import Iterator

from wlgen.errors import Problem
from wlgen.readers import Source
from wlgen.readers._door import Part, decoded


def records(source: Source) -> Iterator[tuple[str, Part] | Problem]:
    """Yield (place, record) for each line that is not blank; a cut or foreign line is a Problem."""
    for number, line in enumerate(source.content, 1):
        if not line.strip():
            continue
        place = f"{source.name}:{number}"
        try:
            record = decoded(line)
        except ValueError as failure:
            cut = "" if line.endswith(b"\n") else ", in a last line without an end: the file was cut"
            yield Problem(place=place, expected="a whole JSON line", found=f"garbled: {failure}{cut}")
            continue
        if isinstance(record, dict):
            yield place, Part(record)
        else:
            found = f"garbled: a value of type {type(record).__name__}"
            yield Problem(place=place, expected="a JSON object", found=found)
