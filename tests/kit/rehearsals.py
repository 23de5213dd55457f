"""Small built sets, and rehearsals of them on a real socket in a thread of the test."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import orjson
from kit.rules import made_rule
from starlette.responses import PlainTextResponse

from wlgen.build import build
from wlgen.build.recall import prompt_ids
from wlgen.cache.rule import CacheRule
from wlgen.encodings import deepseek_v4
from wlgen.rehearse.faults import parse_faults
from wlgen.rehearse.known import KnownRows
from wlgen.rehearse.life import Life
from wlgen.rehearse.serve import listen, web_server
from wlgen.rehearse.sets import set_encoding
from wlgen.rehearse.settings import Ids, Settings, TimeModel
from wlgen.spec import file as spec_file
from wlgen.workload.opened import Workload, open_workload
from wlgen.workload.rows import Row

FAST = TimeModel(prefill_rate=1e9, decode_rate=1e9)
WARM = "{min_ratio: 0.75}"
ZERO = "{max_tokens: 0}"


@cache
def small_set(
    *,
    name: str = "small",
    engine: str = "sglang",
    cached: str = WARM,
    ranks: int = 3,
    seed: str = "{per_rank: 1}",
    page_size: int = 64,
    window: int | None = None,
    check: int = 1,
    prefix: str = "{shared_by: all}",
    encoding: str = "deepseek-v4",
    rounds: int = 1,
) -> Workload:
    """Return a set of 512-token bodies: a seed and a check a rank, two formal rows a rank.

    A set is built once a test run. Its journal, which a preparation leaves in its folder, is the caller's.
    """
    wide = "" if window is None else f", sliding_window: {window}"
    splits = "" if cached == ZERO else f"  seed: {seed}\n"
    text = f"""
name: {name}
random_seed: 7
encoding: {{name: {encoding}}}
cache: {{rule: {engine}, page_size: {page_size}{wide}}}
dp_ranks: {ranks}
rounds: {rounds}
requests: {{body_len: 512, output_len: 8, cached: {cached}, prefix: {prefix}}}
splits:
{splits}  check: {{per_rank: {check}}}
  formal: {{total: {2 * ranks}}}
"""
    return build.build(spec_file.parse(text, "small.yaml"), _output()).workload


@cache
def _output() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="wlgen-sets-"))
    atexit.register(shutil.rmtree, folder)
    return folder


@cache
def _recalled(folder: Path) -> list[tuple[Row, Ids]]:
    return list(prompt_ids(open_workload(folder)))


@dataclass
class Rehearsal:
    """A running rehearsal: its URL, its server's life, and each request it got as (path, headers, body)."""

    url: str
    life: Life
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)

    def post(self, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
        """Send one request and return the whole answer."""
        return httpx.post(self.url + path, json=body, headers=headers, timeout=30)

    def chat(self, text: Any, **fields: Any) -> dict[str, Any]:
        """Send one chat request and return its answer, which must be good."""
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 1} | fields
        answer = self.post("/v1/chat/completions", body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def texts(self) -> list[str]:
        """Return the text of each generating request, in order."""
        return [
            body["messages"][-1]["content"] if "messages" in body else body["prompt"]
            for path, _, body in self.requests
            if path.endswith("completions") and body  # none where the client was interrupted
        ]


@cache
def encoding():
    """Return the encoding of small sets."""
    return deepseek_v4.load(deepseek_v4.Options(), place="test")


@contextmanager
def rehearsal(
    *sets: Workload,
    engine: str = "sglang",
    rule: CacheRule | None = None,
    ranks: int = 3,
    faults: tuple[str, ...] = (),
    times: TimeModel = FAST,
    port: int = 0,
    hidden: tuple[str, ...] = (),
    loads: bool = False,
    enable_metrics: bool = True,
    **settings: Any,
) -> Iterator[Rehearsal]:
    """Serve a rehearsal of the sets until the block ends.

    hidden: paths that answer 404, as /metrics of a default SGLang server. loads: answer /v1/loads.
    """
    if rule is None:
        plain = made_rule(name=engine, engine=engine, page_size=64, hit_quantum=64)
        rule = sets[0].manifest.cache if sets else plain
    wanted = Settings(
        model="rehearsal",
        ranks=sets[0].manifest.dp_ranks if sets else ranks,
        rule=rule,
        times=times,
        faults=parse_faults(faults),
        enable_metrics=enable_metrics,
        **settings,
    )
    with KnownRows() as known:
        for workload in sets:
            for row, ids in _recalled(workload.folder):
                known.add(row, ids)
        spoken = set_encoding(sets[0]) if sets else encoding()
        life = Life(settings=wanted, encoding=spoken, known=known)
        listener = listen("127.0.0.1", port)
        running = Rehearsal(f"http://127.0.0.1:{listener.getsockname()[1]}", life)
        server = web_server(life)
        served = _hiding(server.config.app, hidden if loads else (*hidden, "/v1/loads"))
        server.config.app = _recorded(served, running)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield running
        finally:
            server.should_exit = server.force_exit = True
            thread.join()
            listener.close()


def _hiding(app, hidden: tuple[str, ...]):
    async def some(scope, receive, send):
        shown = PlainTextResponse("Not Found", 404) if scope["path"] in hidden else app
        await shown(scope, receive, send)

    return some


def _recorded(app, running: Rehearsal):
    async def recorded(scope, receive, send):
        received = bytearray()
        body: dict[str, Any] = {}
        headers = {k.decode(): v.decode() for k, v in scope["headers"]}
        running.requests.append((scope["path"], headers, body))

        async def tapped():
            message = await receive()
            received.extend(message.get("body", b""))
            if message["type"] == "http.request" and not message.get("more_body") and received[:1] == b"{":
                body.update(orjson.loads(received))
            return message

        await app(scope, tapped, send)

    return recorded
