"""What a row is on the wire: its body, its pin to a rank, and the lines of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

import orjson

from wlgen.errors import error
from wlgen.workload import Row, row_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from wlgen.exporters import File, Prompt, Target

RANK_HEADER = "X-data-parallel-rank"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def grouped(prompts: Iterable[Prompt], line: Callable[[Prompt], object], *, apart: bool) -> Iterator[File]:
    """Yield a JSONL file a split, or a split and rank, with one line a row."""

    def name(prompt: Prompt) -> str:
        row = prompt[0]
        return row_file(row.split, row.dp_rank) if apart else f"{row.split}.jsonl"

    for path, group in groupby(prompts, key=name):
        yield path, map(json_line, map(line, group))


def json_line(value: object) -> bytes:
    """Return one JSONL line; arrays of ids are written from their memory."""
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)


def messages(row: Row) -> list[dict[str, str]]:
    """Return the row's messages as a chat client sends them."""
    return [{"role": role, "content": content} for role, content in row.messages]


def one_text(row: Row, *, client: str, remedy: str) -> str:
    """Return the text of a row that is one user message; WlgenError for a client that can send only that."""
    if len(row.messages) == 1 and row.messages[0].role == "user":
        return row.messages[0].content
    found = f"{len(row.messages)} messages ({', '.join(role for role, _ in row.messages)})"
    expected = f"one user message: {client} sends one text a request"
    raise error(f"row {row.id}", expected=expected, found=found, remedy=remedy)


def extras(target: Target, *, by_ids: bool = False) -> dict[str, Any]:
    """Return what each body holds besides prompt, length, stream and rank: greedy, and exact in length."""
    if by_ids:  # no template and no tokenizer stand between the ids and the model
        return {"temperature": 0, "ignore_eos": True}
    fields: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
    if not target.is_chat and not target.pins_in_body:  # a field of vLLM's, which adds a BOS without it
        framing = target.manifest.encoding
        fields["add_special_tokens"] = bool(framing["head_ids"] or framing["tail_ids"])
    return fields | target.template_kwargs


def rank(row: Row, target: Target) -> dict[str, Any]:
    """Return what pins the row in a body: {"routed_dp_rank": r} for SGLang, {} for vLLM."""
    return {"routed_dp_rank": row.dp_rank} if target.pins_in_body else {}


def request(row: Row, ids: NDArray[np.uint32] | None, target: Target) -> tuple[str, dict[str, Any]]:
    """Return the route and the whole body of a row: chat messages, or a completion by text or by ids."""
    body: dict[str, Any] = {"model": target.model} if target.model else {}
    fields = extras(target, by_ids=ids is not None)
    if ids is not None:
        route, body["prompt"] = COMPLETIONS, ids
    elif target.is_chat:
        route, body["messages"] = CHAT, messages(row)
    else:
        remedy = "Export it to a client that takes token ids."
        route, body["prompt"] = COMPLETIONS, one_text(row, client="a completion", remedy=remedy)
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    return route, {**body, "max_tokens": row.output_len, **stream, **fields, **rank(row, target)}
