"""Plain JSONL: a line a request, the row's id beside a usage block or beside a whole response."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wlgen.errors import Problem
from wlgen.readers import Result, Source
from wlgen.readers._door import Part, admitted, error_words
from wlgen.readers._lines import records
from wlgen.readers._usage import counts, text_sha256

BLIND = ""

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
        yield admitted(_result(place, record), record)


def _result(place: str, record: Part) -> Result:
    # A text beside the usage is the answer's own words, of which the audit asks nothing.
    response = Part(None) if isinstance(record.get("response"), str) else record.part("response")
    body = response.part("body") if "body" in response else response
    status = response.get("status_code") if "status_code" in response else _OK
    refused = "" if status == _OK else f"HTTP {error_words(status)}"
    error = record.error("error") or body.error("error") or refused
    counted = counts(_usage(record) or _usage(body) or Part(None))
    sent = {key: record.get(key) for key in ("messages", "prompt", "text")}
    stated = record.get("success") if "success" in record else not error
    return Result(
        place=place,
        id=_id(record),
        index=record.count("index"),
        text_sha256=record.sha256("text_sha256") or text_sha256(sent),
        success=stated is True,
        error=error,
        attempts=record.count("attempts") or 1,
        dp_rank=_rank(record, body),
        prompt_tokens=counted.prompt,
        cached_tokens=counted.cached,
        output_tokens=counted.output,
        finish_reason=_finish_reason(record, body),
        start=record.seconds("start"),
        first_token=record.seconds("first_token"),
        end=record.seconds("end"),
    )


def _id(record: Part) -> str | None:
    # {"row_id": "formal-r00-000000", "id": 7}: a number beside the row's id is the client's own.
    stated = [key for key in _IDS if record.get(key) is not None]
    named = [key for key in stated if isinstance(record.get(key), str)] or stated
    return record.text(named[0]) if named else None


def _usage(holder: Part) -> Part | None:
    # /generate answers with meta_info, the OpenAI routes with usage
    key = next((key for key in ("usage", "meta_info") if holder.get(key)), None)
    return holder.part(key) if key else None


def _rank(record: Part, body: Part) -> int | None:
    stated = record.count("dp_rank")
    return body.part("meta_info").count("dp_rank") if stated is None else stated


def _finish_reason(record: Part, body: Part) -> str | None:
    reason = record.get("finish_reason") or body.part("meta_info").get("finish_reason")
    choices = body.items("choices")
    if reason is None and choices and isinstance(choices[0], dict):
        reason = choices[0].get("finish_reason")
    if isinstance(reason, dict):  # SGLang: {"type": "length", "length": 16}
        reason = reason.get("type")
    return reason if isinstance(reason, str) else None
