"""Plain JSONL: a line a request, the row's id beside a usage block or beside a whole response."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from wlgen.errors import Problem
from wlgen.readers import Result, Source
from wlgen.readers._lines import records
from wlgen.readers._usage import count, counts, seconds, text_sha256

_IDS = ("row_id", "wl_id", "custom_id", "id")  # an OpenAI batch line has an id of its own beside custom_id
_OK = 200
_OPENING = re.compile(rb'\s*\{\s*"(row_id|wl_id|id)"\s*:')


def claims(opening: bytes) -> bool:
    """Return whether the file opens as an object whose first key is an id, and is no batch's."""
    return _OPENING.match(opening) is not None and b'"custom_id"' not in opening


def read(source: Source) -> Iterator[Result | Problem]:
    """Yield the results of lines like {"id": row id, "usage": {...}}.

    In place of `usage` may stand `response`: an OpenAI or /generate response, or a batch's {"status_code",
    "body"}. Optional beside it: text or messages (as sent), text_sha256, index, success, error, attempts,
    dp_rank, start, first_token, end (seconds), finish_reason.
    """
    for found in records(source):
        if isinstance(found, Problem):
            yield found
            continue
        place, record = found
        if (
            "prompt_sha256" in record
            and "messages" in record
            and not ("usage" in record or "response" in record)
        ):
            expected = "a result: usage or a whole response beside the row's id"
            yield Problem(place=place, expected=expected, found="a row of a set, as it is to be sent")
            continue
        result = _result(place, record)
        if result.id is None and result.index is None and result.text_sha256 is None:
            expected = "the row's id (or its index, or its text) on each line"
            yield Problem(place=place, expected=expected, found=f"the keys {', '.join(list(record)[:6])}")
        else:
            yield result


def _result(place: str, record: dict[str, Any]) -> Result:
    response = record.get("response")
    response = response if isinstance(response, dict) else {}
    body = response["body"] if isinstance(response.get("body"), dict) else response
    status = response.get("status_code", _OK)
    error = record.get("error") or body.get("error") or ("" if status == _OK else f"HTTP {status}")
    counted = counts(_usage(record) or _usage(body))
    times = {name: seconds(record.get(name)) for name in ("start", "first_token", "end")}
    stated = record.get("text_sha256")
    return Result(
        place=place,
        id=next((record[key] for key in _IDS if isinstance(record.get(key), str)), None),
        index=count(record.get("index")),
        text_sha256=stated if isinstance(stated, str) else text_sha256(record),
        success=record.get("success", not error) is True,
        error=_message(error),
        attempts=count(record.get("attempts")) or 1,
        dp_rank=_rank(record, body),
        prompt_tokens=counted.prompt,
        cached_tokens=counted.cached,
        output_tokens=counted.output,
        finish_reason=_finish_reason(record, body),
        **times,
    )


def _usage(holder: dict[str, Any]) -> object:
    # /generate answers with meta_info, the OpenAI routes with usage
    return holder.get("usage") or holder.get("meta_info")


def _message(error: object) -> str:
    return str(error.get("message") or error) if isinstance(error, dict) else str(error or "")


def _rank(record: dict[str, Any], body: dict[str, Any]) -> int | None:
    stated = count(record.get("dp_rank"))
    return count((body.get("meta_info") or {}).get("dp_rank")) if stated is None else stated


def _finish_reason(record: dict[str, Any], body: dict[str, Any]) -> str | None:
    reason = record.get("finish_reason") or (body.get("meta_info") or {}).get("finish_reason")
    choices = body.get("choices")
    if reason is None and isinstance(choices, list) and choices and isinstance(choices[0], dict):
        reason = choices[0].get("finish_reason")
    if isinstance(reason, dict):  # SGLang: {"type": "length", "length": 16}
        reason = reason.get("type")
    return reason if isinstance(reason, str) else None
