"""Result files of the real clients with one value, or some bytes, changed: what a door must withstand."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from kit.audits import plain, rows

from wlgen import readers, registry
from wlgen.errors import Problem
from wlgen.readers import Reader, Result, Source

SAMPLES = Path(__file__).parents[1] / "samples"
FILES = {
    "aisbench": "aisbench/plugin/rows5_details.jsonl",
    "sglang": "sglang/bench_serving.jsonl",
    "vllm": "vllm/bench_serve_detailed.json",
    "aiperf": "aiperf/profile_export.jsonl",
    "guidellm": "guidellm/benchmarks.json",
    "inference-perf": "inference-perf/per_request_lifecycle_metrics.json",
}
CLIENTS = (*FILES, "plain", "openai-batch")
BY_LINE = ("aisbench", "aiperf", "plain", "openai-batch")  # a record a line
APART = (*BY_LINE, "inference-perf", "guidellm")  # the others keep an array a field, not records
Place = tuple[str | int, ...]


def document(client: str) -> Any:
    """Return what a sample holds as one value: a list of its lines where it has lines."""
    if client in FILES:
        content = (SAMPLES / FILES[client]).read_bytes()
        lines = client in BY_LINE
        return [json.loads(line) for line in content.splitlines()] if lines else json.loads(content)
    sent = [json.loads(plain(row, dp_rank=0, start=1, first_token=1.5, end=2)) for row in rows(2)]
    if client == "plain":
        return sent
    bodies = [{"usage": line["usage"], "choices": [{"finish_reason": "length"}]} for line in sent]
    responses = [{"status_code": 200, "body": body} for body in bodies]
    return [{"custom_id": line["id"], "response": r} for line, r in zip(sent, responses, strict=True)]


def content(client: str, value: Any) -> bytes:
    """Return a document as its file; NaN and Infinity are spelled as Python clients do."""
    if client in BY_LINE and isinstance(value, list):
        return b"".join(json.dumps(line).encode() + b"\n" for line in value)
    return json.dumps(value).encode()


def read(client: str, data: bytes) -> list[Result | Problem]:
    """Return all that a reader yields of a file; its other files stand where the sample's stand."""
    folder = (SAMPLES / FILES.get(client, "")).parent

    def beside(relative: str) -> Path | None:
        return folder / relative if (folder / relative).is_file() else None

    reader = cast("Reader", registry.load(readers, client, place="test"))
    return list(reader.read(Source(name="formal.jsonl", content=io.BytesIO(data), beside=beside)))


def records(client: str, value: Any) -> list[Any]:
    """Return the records of a document of a client of APART."""
    return value["benchmarks"][0]["requests"]["successful"] if client == "guidellm" else value


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Yield the place of each value in a document, of long lists only the first two: (0, "usage")."""
    yield at
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*at, key))
    elif isinstance(value, list):
        for index in range(min(len(value), 2)):
            yield from places(value[index], (*at, index))


def put(value: Any, at: Place, new: Any) -> Any:
    """Return a copy of a document with one value replaced."""
    if not at:
        return new
    changed = copy.copy(value)
    changed[at[0]] = put(value[at[0]], at[1:], new)
    return changed
