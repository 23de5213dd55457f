"""What must always hold, checked by other means: whole prompts encoded by transformers, every pair compared.

It reads a set's files as plain JSON and takes nothing of wlgen but the packaged tokenizer.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import deepseek_recipe as recipe

from wlgen.encodings.deepseek_v4 import packaged_tokenizer

KEYS = [
    "id",
    "split",
    "dp_rank",
    "group",
    "round",
    "messages",
    "body_len",
    "prompt_len",
    "shared_len",
    "cached_len",
    "output_len",
    "prompt_sha256",
]
UNSAFE = re.compile(r"[{}\x00-\x08\x0b-\x1f\x7f-\x9f\ufffd]")


def broken_promises(folder: Path) -> list[str]:
    """Return every promise of DESIGN.md that a built set breaks, in words; [] for a sound set."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    rows = read_rows(folder)
    prompts = [server_ids(manifest["spec"]["encoding"], row["messages"]) for row in rows]
    return [
        *_files(folder, manifest),
        *(f for row, ids in zip(rows, prompts, strict=True) for f in _token_exact(manifest, row, ids)),
        *_sharing_exact(manifest, rows, prompts),
        *(f for row in rows for f in _per_request(manifest, row)),
        *(f for row in rows for f in _safe_text(manifest, row)),
        *_counts(manifest, rows),
    ]


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a set's files: seeds, checks, formal rows, rank by rank."""
    files = [file for split in ("seed", "check", "formal") for file in sorted(folder.glob(f"{split}/*"))]
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


@cache
def _loaded(path: str) -> Any:
    from transformers import AutoTokenizer  # noqa: PLC0415 (takes a second)

    return AutoTokenizer.from_pretrained(path)


def server_ids(encoding: dict[str, Any], messages: list[dict[str, str]]) -> list[int]:
    """Return the ids of a prompt as an OpenAI-compatible server encodes it."""
    if encoding["name"] == "deepseek-v4":
        return list(packaged_tokenizer()[0].encode(deepseek_text(messages), add_special_tokens=False).ids)
    tokenizer = _loaded(encoding["path"])
    if encoding["name"] == "raw":
        (message,) = messages
        return list(
            tokenizer.encode(message["content"], add_special_tokens=encoding.get("add_special_tokens", False))
        )
    text = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, **encoding["template_kwargs"]
    )
    return list(tokenizer.encode(text, add_special_tokens=False))


def deepseek_text(messages: list[dict[str, str]]) -> str:
    """Return a prompt as DeepSeek's own renderer writes it."""
    conversation = recipe.Conversation(
        [recipe.UserMessage(m["content"]) for m in messages], thinking_mode=False
    )
    return str(recipe.DeepseekV4Encoding().render_conversation(conversation).prompt)


def _token_exact(manifest: dict[str, Any], row: dict[str, Any], ids: list[int]) -> Iterator[str]:
    head, tail = manifest["encoding"]["head_ids"], manifest["encoding"]["tail_ids"]
    little_endian = b"".join(i.to_bytes(4, "little") for i in ids)
    if row["prompt_len"] != len(ids):
        yield f"{row['id']}: prompt_len {row['prompt_len']}, but the server counts {len(ids)}"
    if row["body_len"] != len(ids) - len(head) - len(tail):
        yield f"{row['id']}: body_len {row['body_len']} of {len(ids)}"
    if ids[: len(head)] != head or ids[len(ids) - len(tail) :] != tail:
        yield f"{row['id']}: other framing"
    if row["prompt_sha256"] != hashlib.sha256(little_endian).hexdigest():
        yield f"{row['id']}: other ids"


def shared(one: list[int], other: list[int]) -> int:
    """Return the length of the longest common prefix."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _sharing_exact(
    manifest: dict[str, Any], rows: list[dict[str, Any]], prompts: list[list[int]]
) -> Iterator[str]:
    head, crowded = len(manifest["encoding"]["head_ids"]), set()
    groups = list(dict.fromkeys(row["group"] for row in rows))
    for (row, ids), (other, others) in combinations(zip(rows, prompts, strict=True), 2):
        one_group = row["group"] == other["group"]
        found, planned = shared(ids, others), row["shared_len"] if one_group else head
        if found == planned + 1:  # the row of the later group shares what the earlier group began with
            crowded.add(max(row, other, key=lambda r: (groups.index(r["group"]), r is other))["id"])
        elif found != planned:
            yield f"{row['id']}, {other['id']}: share {found}, not {planned}"
        if row["messages"] == other["messages"]:
            yield f"{row['id']}, {other['id']}: the same text"
    if len(crowded) > manifest["proof"]["rows_that_share_a_lead"]:
        yield f"{sorted(crowded)} share a token more than planned"


def cached_len(rule: dict[str, Any], shared_len: int, prompt_len: int) -> int:
    """Return the cached tokens as the table of the engines gives them, written out anew."""
    page, quantum = rule["page_size"], rule["hit_quantum"]
    held = min(shared_len, prompt_len - 1)
    if not rule["speculative"]:
        return held // quantum * quantum
    if rule["engine"] == "sglang":
        return max(0, held - 1) // quantum * quantum
    if quantum == page and not rule["sliding_window"]:
        return max(0, held // quantum * quantum - quantum)
    lookahead = rule["window_page"] or quantum  # a hybrid one looks a block further, past the last token too
    return max(0, min(shared_len, prompt_len) - lookahead) // quantum * quantum


def _per_request(manifest: dict[str, Any], row: dict[str, Any]) -> Iterator[str]:
    if row["split"] == "seed":
        return
    bound = manifest["spec"]["requests"]["cached"]
    found = cached_len(manifest["cache"], row["shared_len"], row["prompt_len"])
    if found != row["cached_len"]:
        yield f"{row['id']}: cached_len {row['cached_len']}, by the rule {found}"
    if found < Fraction(str(bound.get("min_ratio", 0))) * row["prompt_len"]:
        yield f"{row['id']}: {found} of {row['prompt_len']} is below {bound['min_ratio']}"
    if found != bound.get("tokens", found) or found > bound.get("max_tokens", found):
        yield f"{row['id']}: {found} breaks {bound}"


def _safe_text(manifest: dict[str, Any], row: dict[str, Any]) -> Iterator[str]:
    encoding = manifest["spec"]["encoding"]
    special = [] if encoding["name"] == "deepseek-v4" else _loaded(encoding["path"]).all_special_tokens
    for text in (message["content"] for message in row["messages"]):
        unsafe = UNSAFE.search(text) or any(token in text for token in special) or text != text.strip()
        if unsafe or not unicodedata.is_normalized("NFC", text):
            yield f"{row['id']}: unsafe text"


def _files(folder: Path, manifest: dict[str, Any]) -> Iterator[str]:
    listed = [file["path"] for file in manifest["files"]]
    if sorted(listed) != sorted(p.relative_to(folder).as_posix() for p in folder.glob("*/*")):
        yield f"the manifest lists {listed}"
    for file in manifest["files"]:
        found = (folder / file["path"]).read_bytes()
        if hashlib.sha256(found).hexdigest() != file["sha256"] or found.count(b"\n") != file["rows"]:
            yield f"{file['path']}: other bytes"


def _counts(manifest: dict[str, Any], rows: list[dict[str, Any]]) -> Iterator[str]:
    if any(list(row) != KEYS for row in rows):
        yield "rows with other keys"
    if len({row["id"] for row in rows}) != len(rows):
        yield "an id that two rows have"
    for split, counts in manifest["splits"].items():
        for rank in manifest["ranks"]:
            found = sum((row["split"], row["dp_rank"]) == (split, rank) for row in rows)
            if found != counts["per_rank"][rank]:
                yield f"{found} {split} rows of rank {rank}, not {counts['per_rank'][rank]}"
