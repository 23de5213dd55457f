"""What a row is on the wire: its body, its pin to a rank, and the lines of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby
from typing import Any

import orjson

from wlgen.errors import error
from wlgen.exporters import Chunk, File, Json, Prompt, Target, part
from wlgen.workload.rows import row_file

RANK_HEADER = "X-data-parallel-rank"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


_HERE = "\x00"  # stands for a Json while the rest of a line is encoded; no id, name or number holds it
_HERE_ENCODED = orjson.dumps(_HERE)
_OPTIONS = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_PASSTHROUGH_DATACLASS


def grouped(prompts: Iterable[Prompt], line: Callable[[Prompt], object], *, apart: bool) -> Iterator[File]:
    """Yield a JSONL file a part, or a part and rank, with one line a row."""

    def name(prompt: Prompt) -> str:
        if apart:
            return row_file(prompt.split, prompt.dp_rank, prompt.round)
        return f"{part(prompt.split, prompt.round)}.jsonl"

    for path, group in groupby(prompts, key=name):
        yield path, chain.from_iterable(json_line(line(prompt)) for prompt in group)


def json_line(value: object) -> Iterator[Chunk]:
    """Yield the chunks of one JSONL line: texts as they stand in the set, ids from their memory."""
    texts: list[Chunk] = []

    def hold(found: object) -> str:
        if not isinstance(found, Json):
            raise TypeError(f"{type(found).__name__} in a line")
        texts.append(found.raw)
        return _HERE

    line = orjson.dumps(value, hold, _OPTIONS)
    rest, view = 0, memoryview(line)
    for text in texts:
        here = line.index(_HERE_ENCODED, rest)
        yield view[rest:here]
        yield text
        rest = here + len(_HERE_ENCODED)
    yield view[rest:]


def messages(prompt: Prompt) -> list[dict[str, object]]:
    """Return the prompt's messages as a chat client sends them."""
    return [{"role": role, "content": content} for role, content in prompt.messages]


def one_text(prompt: Prompt, *, client: str, remedy: str) -> Json:
    """Return the text of one user message; WlgenError for a client that can send only that."""
    if len(prompt.messages) == 1 and prompt.messages[0].role == "user":
        return prompt.messages[0].content
    found = f"{len(prompt.messages)} messages ({', '.join(role for role, _ in prompt.messages)})"
    expected = f"one user message: {client} sends one text a request"
    raise error(f"row {prompt.id}", expected=expected, found=found, remedy=remedy)


def extras(target: Target, *, by_ids: bool = False) -> dict[str, Any]:
    """Return what each body holds besides prompt, length, stream and rank: greedy, and exact in length."""
    if by_ids:  # no template and no tokenizer stand between the ids and the model
        return {"temperature": 0, "ignore_eos": True}
    fields: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
    if not target.is_chat and not target.pins_in_body:  # a field of vLLM's, which adds a BOS without it
        framing = target.manifest.encoding
        fields["add_special_tokens"] = bool(framing["head_ids"] or framing["tail_ids"])
    return fields | target.template_kwargs


def rank(prompt: Prompt, target: Target) -> dict[str, Any]:
    """Return what pins the row in a body: {"routed_dp_rank": r} for SGLang, {} for vLLM."""
    return dict.fromkeys(target.pin_fields, prompt.dp_rank)


def rank_in_shell(target: Target) -> str:
    """Return what pins a run, as JSON in which the shell fills in the rank: ',"routed_dp_rank":$r'."""
    return "".join(f',"{name}":$r' for name in target.pin_fields)


def request(prompt: Prompt, target: Target) -> tuple[str, dict[str, Any]]:
    """Return the route and the whole body of a row: chat messages, or a completion by text or by ids."""
    body: dict[str, Any] = {"model": target.model} if target.model else {}
    fields = extras(target, by_ids=prompt.ids is not None)
    if prompt.ids is not None:
        route, body["prompt"] = COMPLETIONS, prompt.ids
    elif target.is_chat:
        route, body["messages"] = CHAT, messages(prompt)
    else:
        remedy = "Export it to a client that takes token ids."
        route, body["prompt"] = COMPLETIONS, one_text(prompt, client="a completion", remedy=remedy)
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    return route, {**body, "max_tokens": prompt.output_len, **stream, **fields, **rank(prompt, target)}
