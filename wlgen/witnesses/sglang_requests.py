"""SGLang's request metrics files: one JSON object a finished request, written by the server.

`--export-metrics-to-file --export-metrics-to-file-dir DIR` writes sglang-request-metrics-YYYYmmdd_HH.log.
A line holds `request_parameters`, a JSON string of what was asked (the prompt among it unless the server was
told to leave it out), and beside it the answer's meta_info.
Source: SGLang 0.5.23, srt/observability/request_metrics_exporter.py.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, BinaryIO

import numpy as np
import orjson

from wlgen.errors import Problem
from wlgen.witnesses import TIERS, ServedRequest

OPTION = "requests"
LISTED = 5  # lines that cannot be read, of one file
_RID = re.compile(r'"rid":\s*"([^"\\]*)"')  # inside a prompt's text the quotes are escaped, so none matches
_ROW_ID = re.compile(r"(seed|check|formal)-r\d+-")


def claims(opening: bytes) -> bool:
    """Return whether the first line is a request with its parameters."""
    return opening.lstrip().startswith(b'{"request_parameters":')


def read(name: str, content: BinaryIO) -> Iterator[ServedRequest | Problem]:
    """Yield each request; health checks are not in these files."""
    bad = 0
    for number, line in enumerate(content, 1):
        if not line.strip():
            continue
        try:
            yield _request(orjson.loads(line), f"{name}:{number}")
        except (ValueError, KeyError, TypeError, AttributeError) as failure:
            bad += 1
            if bad <= LISTED:
                found = f"{failure!r:.120}"
                yield Problem(place=f"{name}:{number}", expected="a request's metrics", found=found)


def _request(record: Mapping[str, Any], place: str) -> ServedRequest:
    asked = record["request_parameters"]
    known = _RID.search(asked)
    id_ = known[1] if known else None
    # A row's own id decides, so that a prompt of 131072 tokens is not parsed and hashed for nothing.
    text, prompt = (None, None) if id_ and _ROW_ID.match(id_) else _prompt(orjson.loads(asked))
    reason = record.get("finish_reason") or {}
    kind = str(reason.get("type")) if isinstance(reason, dict) and reason else None
    details = record.get("cached_tokens_details")
    return ServedRequest(
        place=place,
        id=id_ or record.get("id"),
        text_sha256=text,
        prompt_sha256=prompt,
        success=kind != "abort",
        error=str(reason.get("message", "aborted")) if kind == "abort" else "",
        received=_number(record.get("request_received_ts")),
        dp_rank=_count(record, "dp_rank"),
        prompt_tokens=_count(record, "prompt_tokens"),
        cached_tokens=_count(record, "cached_tokens"),
        output_tokens=_count(record, "completion_tokens"),
        tiers=_tiers(*(details.get(tier) for tier in TIERS)) if details else None,
        verify_steps=_count(record, "spec_verify_ct"),
        accept_rate=_number(record.get("spec_accept_rate")),
        finish_reason=kind,
    )


def _prompt(asked: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the sha256 of the text and of the ids that were sent, None for what is not there."""
    text, ids = asked.get("text"), asked.get("input_ids")
    of_text = hashlib.sha256(text.encode()).hexdigest() if isinstance(text, str) else None
    of_ids = None
    if isinstance(ids, list) and ids and type(ids[0]) is int:
        of_ids = hashlib.sha256(np.asarray(ids, dtype="<u4").tobytes()).hexdigest()
    return of_text, of_ids


@lru_cache(maxsize=1024, typed=True)
def _tiers(*counts: object) -> Mapping[str, int]:
    """Return tokens by tier; records of equal counts share one mapping (337 MiB to 316 for 100,000)."""
    return {tier: count for tier, count in zip(TIERS, counts, strict=True) if type(count) is int}


def _count(record: Mapping[str, Any], key: str) -> int | None:
    value = record.get(key)
    return value if type(value) is int and value >= 0 else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
