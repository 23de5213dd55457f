"""Requests as the engines read them: the fields a rehearsal understands, checked, and the rank they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import orjson

from wlgen.encodings import Message

Kind: TypeAlias = Literal["chat", "completion", "generate"]
_DEFAULT_OUTPUT = {"chat": 128, "completion": 16, "generate": 128}


class RefusedError(Exception):
    """An answer that is an error: HTTP status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request. Exactly one of messages, text and ids is given."""

    kind: Kind
    model: str | None
    messages: tuple[Message, ...] | None
    text: str | None
    ids: list[int] | None
    output_len: int
    stream: bool
    include_usage: bool
    return_token_ids: bool
    cached_details: bool
    dp_rank: int | None
    template_kwargs: Mapping[str, Any]
    name: str | None


def parse_ask(kind: Kind, body: bytes, headers: Mapping[str, str], engine: str) -> Ask:
    """Return the request of a body and its headers; RefusedError says what is not understood."""
    fields = json_object(body)
    sampling = _of(fields, "sampling_params", dict, {}) if kind == "generate" else fields
    messages = parse_messages(fields) if kind == "chat" else None
    prompt = fields.get("text") if kind == "generate" else fields.get("prompt")
    ids = fields.get("prompt") if kind == "completion" and isinstance(prompt, list) else None
    if engine == "sglang" and kind != "completion":
        ids = fields.get("input_ids")
    _check_ids(ids)
    if ids is None and messages is None and not isinstance(prompt, str):
        raise RefusedError(400, "one prompt a request: a string, or a list of token ids")
    return Ask(
        kind=kind,
        model=_of(fields, "model", str, None),
        messages=messages,
        text=prompt if isinstance(prompt, str) else None,
        ids=ids,
        output_len=_output_len(kind, sampling),
        stream=_of(fields, "stream", bool, default=False),
        include_usage=bool(_of(fields, "stream_options", dict, {}).get("include_usage")),
        return_token_ids=_of(fields, "return_token_ids", bool, default=False),
        cached_details=engine == "sglang"
        and _of(fields, "return_cached_tokens_details", bool, default=False),
        dp_rank=_dp_rank(fields, headers, engine, kind),
        template_kwargs=_of(fields, "chat_template_kwargs", dict, {}),
        name=_of(fields, "rid", str, None) if engine == "sglang" else headers.get("x-request-id"),
    )


def json_object(body: bytes) -> dict[str, Any]:
    """Return a body's JSON object, or refuse it."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as failure:
        raise RefusedError(400, f"the body is not JSON: {failure}") from failure
    if not isinstance(fields, dict):
        raise RefusedError(400, "the body is not a JSON object")
    return fields


def parse_messages(fields: Mapping[str, Any]) -> tuple[Message, ...]:
    """Return the conversation of a chat or tokenize body, or refuse it."""
    try:
        messages = tuple(Message(m["role"], _content(m["content"])) for m in fields["messages"])
    except (KeyError, TypeError) as failure:
        raise RefusedError(400, "messages: expected a list of {role, content}") from failure
    if not messages or not all(isinstance(part, str) for message in messages for part in message):
        raise RefusedError(400, "messages: expected at least one, with role and content as text")
    return messages


def _content(content: Any) -> Any:
    """Return a message's text; text parts are joined by lines, as vLLM joins them for a text model."""
    if isinstance(content, list) and all(part["type"] == "text" for part in content):
        return "\n".join(part["text"] for part in content)
    return content


def _of(fields: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = fields.get(key)
    if value is None:
        return default
    if type(value) is not kind:
        raise RefusedError(400, f"{key}: expected {kind.__name__}, found {type(value).__name__}")
    return value


def _check_ids(ids: object) -> None:
    if ids is None:
        return
    if not (isinstance(ids, list) and ids and all(type(i) is int and i >= 0 for i in ids)):
        raise RefusedError(400, "token ids: expected one list of whole numbers")


def _output_len(kind: Kind, sampling: Mapping[str, Any]) -> int:
    keys = {"generate": ("max_new_tokens",), "chat": ("max_completion_tokens", "max_tokens")}
    asked = [sampling[key] for key in keys.get(kind, ("max_tokens",)) if sampling.get(key) is not None]
    output_len = asked[0] if asked else _DEFAULT_OUTPUT[kind]
    if type(output_len) is not int or output_len < 1:
        raise RefusedError(400, f"max_tokens must be at least 1, got {output_len!r}")
    if _of(sampling, "n", int, 1) != 1:
        raise RefusedError(400, "n: a rehearsal gives one choice a request")
    return output_len


def _dp_rank(fields: Mapping[str, Any], headers: Mapping[str, str], engine: str, kind: Kind) -> int | None:
    """Return the pinned rank as each engine reads it.

    vLLM 0.32.0 reads the header alone and ignores what is no integer. SGLang 0.5.23 reads the body; on the
    OpenAI routes the header beats it and must be an integer.
    """
    header = headers.get("x-data-parallel-rank")
    if engine == "vllm":
        try:
            return None if header is None else int(header)
        except ValueError:
            return None
    if header is not None and kind != "generate":
        try:
            return int(header)
        except ValueError as failure:
            message = f"Invalid X-Data-Parallel-Rank header: must be an integer, got '{header}'"
            raise RefusedError(400, message) from failure
    rank: int | None = _of(fields, "routed_dp_rank", int, None)
    return rank if rank is not None else _of(fields, "data_parallel_rank", int, None)
