"""The card of a set: README.md beside the manifest, which tells people and Hugging Face what it holds.

`datasets.load_dataset(DIR)` would take every .json below a folder for data, the manifest too, and refuses
splits whose rows have other keys, as the seeds of a chat have no session. So the card's first lines name the
row files of each split and the type of every column; a key that a row leaves out is loaded as null.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from wlgen.pages import percent_of
from wlgen.workload.manifest import FileProof, Manifest
from wlgen.workload.rows import ROW_TYPES
from wlgen.workload.splits import SPLITS

CARD = "README.md"
_DTYPES = {str: "string", int: "int64"}


def with_card(manifest: Manifest) -> Manifest:
    """Return a manifest that lists its card."""
    proof = FileProof(path=CARD, sha256=hashlib.sha256(card_bytes(manifest)).hexdigest(), rows=0)
    return replace(manifest, card=proof)


def card_bytes(manifest: Manifest) -> bytes:
    """Return the card's bytes, which follow from the manifest and nothing else."""
    return ("\n".join(_lines(manifest)) + "\n").encode()


def _lines(manifest: Manifest) -> Iterator[str]:
    rows, patterns = _rows(manifest), _patterns(manifest)
    yield from ("---", "configs:", "- config_name: default", "  data_files:")
    for split, paths in patterns.items():
        yield from (f"  - split: {split}", "    path:")
        yield from (f'    - "{path}"' for path in paths)
    yield from ("dataset_info:", "  features:")
    for name, kind in ROW_TYPES.items():
        yield f"  - name: {name}"
        if name == "messages":
            yield from ("    list:", "    - name: role", "      dtype: string")
            yield from ("    - name: content", "      dtype: string")
        else:
            yield f"    dtype: {_DTYPES[kind]}"
    promises = manifest.promises
    yield from ("---", f"# {manifest.name}", "")
    yield "Prompts for a benchmark of an LLM server, whose cached tokens are planned, token by token."
    yield from ("", "| split | rows |", "|---|---|")
    yield from (f"| {split} | {rows[split]} |" for split in patterns)
    yield from ("", "| cached tokens of the prompt | planned |", "|---|---|")
    yield f"| what the spec asks for | {percent_of(promises.configured)} |"
    yield f"| all requests together | {percent_of(promises.aggregate)} |"
    yield f"| the request with the least | {percent_of(promises.per_request_min)} |"
    yield from ("", f"Ranks of the server: {manifest.dp_ranks}, of which {len(manifest.ranks)} stand here.")
    yield f"Spec: {manifest.spec_sha256}, whole in manifest.json."
    yield "The formal rows are measured, once in a cache's life; seeds and checks are sent before them."
    yield from ("", "    wlgen verify DIR", '    datasets.load_dataset(DIR, split="formal")')


def _rows(manifest: Manifest) -> Counter[str]:
    rows: Counter[str] = Counter()
    for file in manifest.files:
        rows[file.path.split("/")[0]] += file.rows
    return rows


def _patterns(manifest: Manifest) -> dict[str, list[str]]:
    """Return the patterns of each split's files, such as "formal/round-1/rank-*.jsonl"."""
    found: dict[str, list[str]] = {split: [] for split in SPLITS}
    for file in manifest.files:
        path = PurePosixPath(file.path)
        if path.parts[0] in found:
            found[path.parts[0]].append(f"{path.parent}/rank-*.jsonl")
    return {split: list(dict.fromkeys(paths)) for split, paths in found.items() if paths}
