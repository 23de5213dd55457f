"""Sets of shaped traffic: specs of any shape, built small, and proved by other means than wlgen's."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from kit.oracle import server_ids, shared
from kit.sets import content_of

from wlgen.build.build import build
from wlgen.build.ready import load_encoding
from wlgen.cache.rule import PrefixCache
from wlgen.engines import new_cache
from wlgen.plan.rows import Plan
from wlgen.plan.solve import solve
from wlgen.spec import file as spec_file
from wlgen.spec.model import Spec
from wlgen.workload.opened import Workload, open_workload
from wlgen.workload.rows import Finding
from wlgen.workload.splits import SPLITS

RULES: dict[str, dict[str, Any]] = {
    "dense": {"engine": "sglang", "page_size": 16},
    "token": {"engine": "sglang", "page_size": 1},
    "dense, speculative": {"engine": "vllm", "page_size": 16, "speculative": True},
    "hybrid": {"engine": "vllm", "page_size": 16, "hit_quantum": 64},
    "window": {"engine": "sglang", "page_size": 16, "hit_quantum": 64, "sliding_window": 32},
}
UNIFORM = {"uniform": [200, 400]}
ANSWER = np.array([1], dtype=np.uint32)
Row = dict[str, Any]


def shape(*, requests: dict[str, Any] | list[dict[str, Any]] | None = None, **changes: Any) -> dict[str, Any]:
    """Return the content of a small spec with other requests, and other keys of its top."""
    top = {key: changes.pop(key) for key in ("order", "arrivals", "rounds") if key in changes}
    content = content_of(**changes) | top
    asked = requests if isinstance(requests, list) else content["requests"] | (requests or {})
    return content | {"requests": asked}


def spec_of(place: str = "spec", **changes: Any) -> Spec:
    return spec_file.from_content(shape(**changes), place)


def built(place: Path, *, only: tuple[Sequence[int], Sequence[int]] = ((), ()), **changes: Any) -> Workload:
    """Build a spec, or `only` some ranks and rounds of it."""
    return build(spec_of(str(place / "spec"), **changes), place, ranks=only[0], rounds=only[1]).workload


def plan_of(**changes: Any) -> Plan:
    """Return the plan alone, without the words of a lexicon."""
    spec = spec_of(**changes)
    return solve(spec, load_encoding(spec), lambda *_: 2)


def clashes(plan: Plan) -> list[str]:
    """Return the rows with an ordinal out of bounds, or that of another stream which begins there."""
    (least, most), begun, found = plan.source.ordinals(), {}, []
    for row in (row for file in plan.files() for row in plan.rows(*file)):
        path: tuple[object, ...] = ()
        for message in row.messages:
            for segment in message.segments:
                same = begun.setdefault((path, segment.ordinal), segment.stream) == segment.stream
                if not (same and least <= segment.ordinal <= most):
                    found.append(row.id)
                path = (*path, segment.stream, segment.tokens)
            path = (*path, "next message")
    return found


def rows_of(workload: Workload, *splits: str) -> list[Row]:
    """Return the rows of the set's files as plain JSON, in the order sent."""
    return [json.loads(line) for path in _paths(workload, *splits) for line in _lines(workload, path)]


def _paths(workload: Workload, *splits: str) -> list[str]:
    paths = [file.path for file in workload.manifest.files]
    return [path for path in paths if path.split("/")[0] in (splits or SPLITS)]


def _lines(workload: Workload, path: str) -> list[bytes]:
    return (workload.folder / path).read_bytes().splitlines()


def bytes_of(workload: Workload) -> dict[str, bytes]:
    return {path: (workload.folder / path).read_bytes() for path in _paths(workload)}


def ids_of(workload: Workload, row: Row) -> list[int]:
    return server_ids(dict(workload.manifest.spec["encoding"]), row["messages"])


def replayed(workload: Workload) -> Iterator[tuple[Row, int]]:
    """Yield each row with what a cache of its file's rank reports when all rows are sent in order."""
    caches: defaultdict[str, PrefixCache] = defaultdict(lambda: new_cache(workload.manifest.cache))
    for path in _paths(workload):
        cache = caches[path.rsplit("/", 1)[1]]
        for line in _lines(workload, path):
            row = json.loads(line)
            match = cache.match(np.array(ids_of(workload, row), dtype=np.uint32))
            cache.insert(match, ANSWER)
            yield row, match.cached_len


def broken(workload: Workload) -> list[str]:
    """Return where a row is not as long as it says, or finds another count cached than it says."""
    found = []
    for row, cached_len in replayed(workload):
        if len(ids_of(workload, row)) != row["prompt_len"]:
            found.append(f"{row['id']}: prompt_len {row['prompt_len']}")
        if cached_len != row["cached_len"]:
            found.append(f"{row['id']}: cached_len {row['cached_len']}, replayed {cached_len}")
    return found


def broken_pairs(workload: Workload, *, gap: int = 0) -> list[str]:
    """Return the pairs of rows that share other than what their groups and shared_len say.

    Two rows of one group share all that the one that leaves first does; rows of two groups no more.
    gap: tokens of framing behind a system message, which one of another length does not share.
    """
    rows = rows_of(workload)
    prompts = [ids_of(workload, row) for row in rows]
    found = []
    for (row, ids), (other, others) in combinations(zip(rows, prompts, strict=True), 2):
        both, least = shared(ids, others), min(row["shared_len"], other["shared_len"])
        least -= gap if row["shared_len"] != other["shared_len"] else 0
        exact = row["group"] == other["group"]
        if both != least if exact else both > least:
            found.append(f"{row['id']}, {other['id']}: share {both}, not {least}")
    return found


def rewrite(workload: Workload, path: str, rows: list[Row]) -> Workload:
    """Write a file's rows, and its hash into the manifest, so that only the content can tell."""
    content = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
    (workload.folder / path).write_bytes(content)
    manifest = json.loads((workload.folder / "manifest.json").read_bytes())
    for file in manifest["files"]:
        if file["path"] == path:
            file |= {"sha256": hashlib.sha256(content).hexdigest(), "rows": len(rows)}
    (workload.folder / "manifest.json").write_text(json.dumps(manifest))
    return open_workload(workload.folder)


def retold(workload: Workload, row: Row, messages: list[dict[str, str]]) -> Row:
    """Return a row of other messages with the figures of its text, as one who lies well would write it."""
    ids = ids_of(workload, row | {"messages": messages})
    framing = row["prompt_len"] - row["body_len"]
    return row | {
        "messages": messages,
        "prompt_len": len(ids),
        "body_len": len(ids) - framing,
        "prompt_sha256": hashlib.sha256(np.array(ids, dtype="<u4").tobytes()).hexdigest(),
    }


def promises(findings: list[Finding]) -> set[tuple[str, str]]:
    return {(finding.id, finding.promise) for finding in findings}
