"""Requests as the engines read them: the fields that a rehearsal understands, checked, and the named rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from wlgen.encodings import Message
from wlgen.rehearse.dialects import Dialect, Kind, RefusedError

_DEFAULT_OUTPUT = {"completion": 16, "generate": 128}


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
    meta_info: bool
    dp_rank: int | None
    template_kwargs: Mapping[str, Any]
    name: str | None


def parse_ask(kind: Kind, body: bytes, headers: Mapping[str, str], dialect: Dialect) -> Ask:
    """Return the request of a body and its headers; RefusedError says what the rehearsal cannot read."""
    fields = json_object(body)
    sampling = _of(fields, "sampling_params", dict, {}) if kind == "generate" else fields
    messages = parse_messages(fields, dialect) if kind == "chat" else None
    prompt = fields.get("text") if kind == "generate" else fields.get("prompt")
    ids = fields.get("prompt") if kind == "completion" and isinstance(prompt, list) else None
    if dialect.ids_field and kind != "completion":
        ids = fields.get(dialect.ids_field)
    _check_ids(ids)
    return_token_ids = _of(fields, "return_token_ids", bool, default=False)
    stream = _of(fields, "stream", bool, default=False)
    if return_token_ids and stream and kind == "chat" and not dialect.streams_ids:
        raise RefusedError(400, "return_token_ids is not supported with stream")
    if ids is None and messages is None and not isinstance(prompt, str):
        served = "a real server serves a list of prompts, too"
        raise RefusedError(400, f"one prompt a request, a string or a list of token ids; {served}")
    return Ask(
        kind=kind,
        model=_of(fields, "model", str, None),
        messages=messages,
        text=prompt if isinstance(prompt, str) else None,
        ids=ids,
        output_len=_output_len(kind, sampling),
        stream=stream,
        include_usage=bool(_of(fields, "stream_options", dict, {}).get("include_usage")),
        return_token_ids=return_token_ids,
        cached_details=_asked(fields, dialect.detail_field),
        meta_info=_asked(fields, dialect.meta_field),
        dp_rank=dialect.rank_of(fields, headers, kind),
        template_kwargs=_of(fields, "chat_template_kwargs", dict, {}),
        name=dialect.name_of(fields, headers),
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


def parse_messages(fields: Mapping[str, Any], dialect: Dialect) -> tuple[Message, ...]:
    """Return the conversation of a chat or tokenize body, or refuse it."""
    try:
        messages = tuple(
            Message(m["role"], _content(m["content"], dialect.part_break)) for m in fields["messages"]
        )
    except (KeyError, TypeError) as failure:
        raise RefusedError(400, "messages: expected a list of {role, content}") from failure
    if not messages or not all(isinstance(part, str) for message in messages for part in message):
        raise RefusedError(400, "messages: expected at least one, with role and content as text")
    return messages


def _content(content: Any, part_break: str) -> Any:
    """Return a message's text; its text parts are joined as the engine joins them for a text model."""
    if isinstance(content, list) and all(part["type"] == "text" for part in content):
        return part_break.join(part["text"] for part in content)
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
        served = "a real server serves a list of prompts, too"
        raise RefusedError(400, f"token ids: expected one list of whole numbers; {served}")


def _asked(fields: Mapping[str, Any], key: str | None) -> bool:
    return key is not None and bool(_of(fields, key, bool, default=False))


def _output_len(kind: Kind, sampling: Mapping[str, Any]) -> int:
    keys = {"generate": ("max_new_tokens",), "chat": ("max_completion_tokens", "max_tokens")}
    asked = [sampling[key] for key in keys.get(kind, ("max_tokens",)) if sampling.get(key) is not None]
    output_len = asked[0] if asked else _DEFAULT_OUTPUT.get(kind)
    if output_len is None:
        served = "a real server generates to the end of its context"
        raise RefusedError(400, f"max_tokens: a rehearsal needs it in a chat request; {served}")
    if type(output_len) is not int or output_len < 1:
        served = "a real server may serve 0" if output_len == 0 else "a whole number is expected"
        raise RefusedError(400, f"max_tokens: a rehearsal needs at least 1, got {output_len!r}; {served}")
    if _of(sampling, "n", int, 1) != 1:
        raise RefusedError(400, "n: a rehearsal gives one choice a request; a real server serves more")
    return output_len
