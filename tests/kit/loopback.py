"""A small OpenAI-compatible server on loopback that knows a set's rows and records what clients send it."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from wlgen.workload.opened import Workload
from wlgen.workload.rows import Row

MODEL = "loopback"


@dataclass
class Sent:
    """One request as it came: the row it is of (None if of none), its route, body and rank."""

    row: Row | None
    route: str
    body: dict[str, Any]
    rank: int | None


@dataclass
class Loopback:
    """Answers each known row with its planned counts, and records it."""

    rows: dict[str, Row]
    url: str = ""
    sent: list[Sent] = field(default_factory=list)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/health", lambda _request: Response()),
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
                Route("/v1/completions", self._complete, methods=["POST"]),
            ]
        )

    async def _models(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model", "root": MODEL}]})

    async def _complete(self, request: Request) -> Response:
        body = orjson.loads(await request.body())
        row = self.rows.get(_key(body))
        header = request.headers.get("x-data-parallel-rank")
        rank = body.get("routed_dp_rank") if header is None else int(header)
        self.sent.append(Sent(row=row, route=request.url.path, body=body, rank=rank))
        asked = body.get("max_completion_tokens") or body.get("max_tokens") or 16
        prompt, cached = (row.prompt_len, row.cached_len) if row else (1, 0)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": asked,
            "total_tokens": prompt + asked,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        chat = request.url.path.endswith("chat/completions")
        details = {"device": cached, "host": 0}
        events = list(_events(len(self.sent), asked, chat=chat, details=details, usage=usage))
        if body.get("stream"):
            stream = [b"data: " + orjson.dumps(e) + b"\n\n" for e in events] + [b"data: [DONE]\n\n"]
            return StreamingResponse(_paced(stream), media_type="text/event-stream")
        text = "a " * asked
        choice = {"index": 0, "finish_reason": "length"} | (
            {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        )
        return JSONResponse({"id": f"answer-{len(self.sent)}", "choices": [choice], "usage": usage})


def _key(body: dict[str, Any]) -> str:
    """Return what a row is known by: the hash of its last message's text, or of its ids."""
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        return hashlib.sha256(np.array(prompt, dtype="<u4").tobytes()).hexdigest()
    if prompt is None:
        content = body["messages"][-1]["content"]
        prompt = content if isinstance(content, str) else "".join(part["text"] for part in content)
    return hashlib.sha256(prompt.encode()).hexdigest()


def _events(
    number: int, asked: int, *, chat: bool, details: dict[str, int], usage: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    kind = {
        "id": f"answer-{number}",
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": 0,
        "model": MODEL,
    }
    for token in range(asked):
        last = "length" if token == asked - 1 else None
        part = {"delta": {"role": "assistant", "content": "a "}} if chat else {"text": "a "}
        yield {**kind, "choices": [{"index": 0, "finish_reason": last, **part}]}
    yield {**kind, "choices": [], "usage": usage, "sglext": {"cached_tokens_details": details}}


async def _paced(stream: list[bytes]) -> Any:
    for event in stream:
        yield event


@contextmanager
def loopback(workload: Workload) -> Iterator[Loopback]:
    """Serve a set's rows from a thread; the address is its `url`."""
    rows: dict[str, Row] = {}
    for row in workload.rows():
        rows[row.text_sha256] = rows[row.prompt_sha256] = row
    server = Loopback(rows)
    config = uvicorn.Config(server.app(), host="127.0.0.1", port=0, log_level="warning")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not running.started:
        if time.monotonic() > deadline:
            raise TimeoutError("the loopback server did not start")
        time.sleep(0.01)
    port = running.servers[0].sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{port}"
    try:
        yield server
    finally:
        running.should_exit = True
        thread.join(timeout=10)
