"""AISBench models of an export: each row on its rank, and what the server reported kept beside it.

Stands with wlgen_extras.jsonl in a folder on PYTHONPATH; needs nothing but AISBench and what it needs.
"""

from __future__ import annotations

import copy
import json
import os
import time
from pathlib import Path
from typing import Any

import xxhash
from ais_bench.benchmark.models import VLLMCustomAPI, VLLMCustomAPIChat  # type: ignore[import-not-found]

EXTRAS = Path(__file__).with_name("wlgen_extras.jsonl")


class _Pinned:
    """What both models add: the row's rank goes out with it, the response's facts come back.

    extra_perf_data of a record then holds wl_id, dp_rank, wall_start and wall_end (seconds since the epoch),
    response_id, finish_reason, usage, and cached_tokens where the server reported it.
    """

    def __init__(self, **settings: Any) -> None:
        # The key comes from the environment: AISBench writes its config, and a key in it, to disk.
        super().__init__(**{**settings, "api_key": os.environ.get("OPENAI_API_KEY", "")})
        self._rows: dict[str, list[dict[str, Any]]] = {}
        with EXTRAS.open(encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                self._rows.setdefault(row.pop("json_xxh3"), []).append(row)

    async def generate(
        self, input_data: Any, max_out_len: int, output: Any, session: Any = None, **rest: Any
    ) -> Any:
        """Send one row once; a text that is not a row's is not sent, and its record says so."""
        as_json = json.dumps(str(input_data), ensure_ascii=False)
        rows = self._rows.get(xxhash.xxh3_128_hexdigest(as_json.encode()))
        if not rows:
            output.error_info = "wlgen: the text of this request is not that of any row: not sent"
            return output
        row = rows.pop(0) if len(rows) > 1 else rows[0]  # rows of one text, as a trace may repeat it: in turn
        sender = copy.copy(self)  # headers and body are the model's own: one copy a request keeps ranks apart
        sender.headers = {**self.headers, **row["headers"]}  # type: ignore[attr-defined]
        sender.generation_kwargs = {**self.generation_kwargs, **row["body"]}  # type: ignore[attr-defined]
        kept = {"wl_id": row["wl_id"], "dp_rank": row["dp_rank"], "wall_start": time.time()}
        output.extra_perf_data = kept
        await super(_Pinned, sender).generate(input_data, max_out_len, output, session=session, **rest)  # type: ignore[misc]
        output.extra_perf_data["wall_end"] = time.time()
        return output

    async def parse_stream_response(self, event: dict[str, Any], output: Any) -> None:
        """Take one stream event as AISBench does, and keep what it drops."""
        await super().parse_stream_response(event, output)  # type: ignore[misc]
        _keep(event, output.extra_perf_data)

    async def parse_text_response(self, answer: dict[str, Any], output: Any) -> None:
        """Take one whole answer as AISBench does, and keep what it drops."""
        await super().parse_text_response(answer, output)  # type: ignore[misc]
        _keep(answer, output.extra_perf_data)


def _keep(answer: dict[str, Any], kept: dict[str, Any]) -> None:
    if answer.get("id"):
        kept["response_id"] = answer["id"]
    for choice in answer.get("choices") or ():
        if choice.get("finish_reason"):
            kept["finish_reason"] = choice["finish_reason"]
    usage = answer.get("usage")
    if usage:
        kept["usage"] = usage
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        if cached is not None:
            kept["cached_tokens"] = cached


class WlgenChat(_Pinned, VLLMCustomAPIChat):  # type: ignore[misc]
    """Chat messages to /v1/chat/completions."""


class WlgenCompletions(_Pinned, VLLMCustomAPI):  # type: ignore[misc]
    """Raw text to /v1/completions."""
