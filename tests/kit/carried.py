"""What the files of an export would make each client send, read as that client reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """One request: its split and place come from the file, the rest from the line, None where it has none."""

    split: str
    output_len: int
    messages: list[dict[str, str]] | None = None
    prompt: str | list[int] | None = None
    id: str | None = None
    body_rank: int | None = None
    header_rank: int | None = None
    file_rank: int | None = None

    @property
    def text(self) -> str | None:
        """The text a server would be sent, of a single message."""
        if self.messages is not None:
            (message,) = self.messages
            return message["content"]
        return self.prompt if isinstance(self.prompt, str) else None

    @property
    def rank(self) -> int | None:
        """The rank that the request, its header or its run is pinned to."""
        return next((r for r in (self.body_rank, self.header_rank, self.file_rank) if r is not None), None)


def carried(client: str, folder: Path) -> list[Carried]:
    """Return every request of an export, in the order of its files."""
    return [
        READERS[client](line, folder, split, rank)
        for split in ("seed", "check", "formal")
        for path, rank in _files(folder, split)
        for line in lines(path)
    ]


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the decoded lines of a JSONL file, as Python's json reads them."""
    with path.open(encoding="utf-8") as text:
        return [json.loads(line) for line in text]


def _files(folder: Path, split: str) -> Iterator[tuple[Path, int | None]]:
    if (folder / f"{split}.jsonl").exists():
        yield folder / f"{split}.jsonl", None
    for path in sorted((folder / split).glob("rank-*.jsonl")):
        yield path, int(path.stem.removeprefix("rank-"))


def _of_body(body: dict[str, Any], split: str, **more: Any) -> Carried:
    """Read an OpenAI request body."""
    return Carried(
        split=split,
        messages=body.get("messages"),
        prompt=body.get("prompt"),
        output_len=body["max_tokens"],
        body_rank=body.get("routed_dp_rank"),
        **more,
    )


def _aisbench(line: dict[str, Any], folder: Path, split: str, _rank: int | None) -> Carried:
    # CustomDataset.load renames max_tokens; PromptTemplate("{question}") then replaces every known column.
    columns = {**line, "max_out_len": line["max_tokens"], "idx": 0, "subdivision": "x"}
    columns.pop("max_tokens")
    text = "{question}"
    for name, value in columns.items():
        text = text.replace(f"{{{name}}}", str(value))
    rows = {row["json_xxh3"]: row for row in lines(folder / "wlgen_extras.jsonl")}
    row = rows[xxhash.xxh3_128_hexdigest(json.dumps(text, ensure_ascii=False).encode())]
    header = row["headers"].get("X-data-parallel-rank")
    return Carried(
        split=split,
        prompt=text,
        output_len=line["max_tokens"],
        id=row["wl_id"] if row["wl_id"] == line["wl_id"] else None,
        body_rank=row["body"].get("routed_dp_rank"),
        header_rank=None if header is None else int(header),
    )


def _sglang(line: dict[str, Any], _folder: Path, split: str, rank: int | None) -> Carried:
    extra = {k: v for k, v in line.items() if k not in {"messages", "max_tokens", "model"}}
    body = {"messages": line["messages"], "max_tokens": line["max_tokens"], **extra}
    found = _of_body(body, split, id=line["rid"], file_rank=rank)
    if "input_ids" not in line:
        return found
    return Carried(
        split=split,
        output_len=found.output_len,
        messages=found.messages,
        prompt=line["input_ids"],
        id=found.id,
        body_rank=found.body_rank,
        file_rank=rank,
    )


def _vllm(line: dict[str, Any], _folder: Path, split: str, rank: int | None) -> Carried:
    return Carried(split=split, prompt=line["prompt"], output_len=line["output_tokens"], file_rank=rank)


def _aiperf(line: dict[str, Any], _folder: Path, split: str, rank: int | None) -> Carried:
    if "payload" in line:
        return _of_body(line["payload"], split, id=line["session_id"], file_rank=rank)
    return Carried(
        split=split,
        messages=line.get("messages"),
        prompt=line.get("text_input"),
        output_len=line["output_length"],
        id=line["session_id"],
        body_rank=line["extra"].get("routed_dp_rank"),
        file_rank=rank,
    )


def _guidellm(line: dict[str, Any], _folder: Path, split: str, rank: int | None) -> Carried:
    return Carried(
        split=split,
        messages=line.get("messages"),
        prompt=line.get("prompt"),
        output_len=line["output_tokens_count"],
        file_rank=rank,
    )


def _evalscope(line: dict[str, Any], _folder: Path, split: str, rank: int | None) -> Carried:
    if "body" not in line:
        return _of_body(line, split, file_rank=rank)
    header = int(line["headers"]["X-data-parallel-rank"])
    return _of_body(line["body"], split, id=line["request_id"], header_rank=header)


def _openai_batch(line: dict[str, Any], _folder: Path, split: str, rank: int | None) -> Carried:
    return _of_body(line["body"], split, id=line["custom_id"], file_rank=rank)


def _plain(line: dict[str, Any], _folder: Path, split: str, _rank: int | None) -> Carried:
    return Carried(
        split=split,
        messages=line["messages"],
        prompt=line.get("input_ids"),
        output_len=line["output_len"],
        id=line["id"],
        body_rank=line["dp_rank"],
    )


READERS: dict[str, Callable[[dict[str, Any], Path, str, int | None], Carried]] = {
    "aisbench": _aisbench,
    "sglang": _sglang,
    "vllm": _vllm,
    "aiperf": _aiperf,
    "guidellm": _guidellm,
    "evalscope": _evalscope,
    "openai-batch": _openai_batch,
    "plain": _plain,
}
