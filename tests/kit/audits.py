"""A small set of rows with its manifest, and good results of it, to be spoilt one promise at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import orjson
from kit.rules import made_rule

from wlgen.audit.findings import Promised
from wlgen.build.store import manifest_bytes
from wlgen.encodings import Message
from wlgen.readers import Result
from wlgen.streams import FORMAT
from wlgen.workload.bounds import Bound
from wlgen.workload.manifest import FileProof, Manifest, Promises
from wlgen.workload.rows import KEYS, OPTIONAL_KEYS, Row, row_file
from wlgen.workload.splits import BY_NAME

PROMPT, SHARED, CACHED, OUTPUT = 2052, 1664, 1664, 64
RULE = made_rule(name="sglang", engine="sglang", page_size=128, hit_quantum=128)
RANKS = 2


def row(split: str, rank: int, number: int, **changes: Any) -> Row:
    """Return a row: warm, 81.09 % cached; a seed finds nothing and asks for one token."""
    seed = split == "seed"
    fields: dict[str, Any] = {
        "id": f"{split}-r{rank:02d}-{number:06d}",
        "split": BY_NAME[split],
        "dp_rank": rank,
        "group": "0",
        "round": 0,
        "messages": (Message("user", f"the text of {split} {rank} {number}"),),
        "body_len": PROMPT - 4,
        "prompt_len": PROMPT,
        "shared_len": SHARED,
        "cached_len": 0 if seed else CACHED,
        "output_len": OUTPUT if split == "formal" else 1,
        "prompt_sha256": "0" * 64,
    }
    return Row(**fields | changes)


def rows(formal: int = 4, ranks: int = RANKS) -> list[Row]:
    """Return a seed and a check a rank, and `formal` formal rows a rank, in file order."""
    seeds = [row("seed", rank, 0) for rank in range(ranks)]
    checks = [row("check", rank, 0) for rank in range(ranks)]
    return [*seeds, *checks, *(row("formal", rank, n) for rank in range(ranks) for n in range(formal))]


def manifest(cached: Mapping[str, Any] | None = None, ranks: int = RANKS) -> Manifest:
    """Return the manifest of `rows()`; cached is the spec's bound."""
    reached = CACHED / PROMPT
    return Manifest(
        format=FORMAT,
        name="small",
        spec={"dp_ranks": ranks, "requests": {"cached": {"min_ratio": 0.8} if cached is None else cached}},
        spec_sha256="0" * 64,
        encoding={"name": "deepseek-v4", "head_ids": [0, 1], "tail_ids": [2, 3]},
        cache=RULE,
        promises=Promises(configured=0.8, aggregate=reached, per_request_min=reached),
        splits={},
        ranks=list(range(ranks)),
        files=(),
        proof={},
    )


def write_set(folder: Path, content: Iterable[Row] | None = None) -> Path:
    """Write rows and manifest as a built set, and return its folder."""
    by_file: dict[str, list[Row]] = {}
    for each in rows() if content is None else content:
        by_file.setdefault(row_file(each.split, each.dp_rank), []).append(each)
    proofs = []
    for path, held in by_file.items():
        data = b"".join(orjson.dumps(line(each)) + b"\n" for each in held)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
        proofs.append(FileProof(path=path, sha256=hashlib.sha256(data).hexdigest(), rows=len(held)))
    written = replace(manifest(), files=tuple(proofs))
    (folder / "manifest.json").write_bytes(manifest_bytes(written))
    return folder


def line(each: Row) -> dict[str, Any]:
    """Return the keys of a row's JSONL line, in order."""
    values = ((name, getattr(each, name)) for name in KEYS)
    fields = {name: value for name, value in values if name not in OPTIONAL_KEYS or value is not None}
    return fields | {"messages": [message._asdict() for message in each.messages]}


def good(content: Iterable[Row], **changes: Any) -> list[Result]:
    """Return a result of each row as promised, sent one after another on one clock."""
    return [
        Result(
            place=f"results:{number}",
            **{
                "id": each.id,
                "text_sha256": each.text_sha256,
                "dp_rank": each.dp_rank,
                "prompt_tokens": each.prompt_len,
                "cached_tokens": each.cached_len,
                "output_tokens": each.output_len,
                "start": float(number),
                "first_token": number + 0.5,
                "end": number + 0.9,
            }
            | changes,
        )
        for number, each in enumerate(content, 1)
    ]


def plain(each: Row, **changes: Any) -> bytes:
    """Return a plain result line of a row as promised; changes replace its keys."""
    usage = {
        "prompt_tokens": each.prompt_len,
        "completion_tokens": each.output_len,
        "prompt_tokens_details": {"cached_tokens": each.cached_len},
    }
    sent = {"id": each.id, "text_sha256": each.text_sha256, "usage": usage}
    return orjson.dumps(sent | changes) + b"\n"


def promised(content: Iterable[Row]) -> list[Promised]:
    """Return what rows promise, at least 80 % cached each."""
    return [Promised.of(each, Bound(min_ratio=Fraction(4, 5))) for each in content]
