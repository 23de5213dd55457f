"""Runs a rehearsed pair on three sockets: router, prefill, decode."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace

import uvicorn
from starlette.types import ASGIApp

from wlgen.encodings import Encoding
from wlgen.rehearse.faults import Faults
from wlgen.rehearse.known import KnownRows
from wlgen.rehearse.life import Life
from wlgen.rehearse.pair import DecodeSide, PairLife, PairRouter, PrefillSide, RouterName
from wlgen.rehearse.settings import Settings

_NO_PREFILL = 1e12  # tokens a second on the decode side, which receives the KV of a prompt


def new_pair(
    settings: Settings, encoding: Encoding, known: KnownRows, *, decode_ranks: int, decode_radix: bool
) -> PairLife:
    """Return one life of a pair. Faults of runs and of the cache strike the prefill side.

    Other faults strike the decode side, which answers. What a client is told of a cache comes from the
    prefill side, since the decode side hands its figure on.
    """
    faults = settings.faults
    of_cache = Faults(lose_cache=faults.lose_cache, thinking=faults.thinking)
    of_answers = replace(faults, lose_cache=None)
    times = replace(settings.times, prefill_rate=_NO_PREFILL)
    first = replace(settings, faults=of_cache)
    second = replace(settings, faults=of_answers, ranks=decode_ranks, times=times, acting=None)
    return PairLife(
        prefill=Life(settings=first, encoding=encoding, known=known),
        decode=Life(settings=second, encoding=encoding, known=known),
        decode_radix=decode_radix,
    )


def serve_pair(
    listeners: Sequence[socket.socket],
    pair: PairLife,
    router: RouterName,
    started: Callable[[list[uvicorn.Server]], None] = lambda _: None,
    further: Sequence[PairLife] = (),
) -> None:
    """Serve until interrupted. A request that ends the prefill server does not end the other two servers.

    listeners: of the router, the prefill and the decode server, then of each further prefill server. further:
    lives whose prefill sides fill the same rooms, and so serve the same decode side.
    """
    urls = ["http://{}:{}".format(*listener.getsockname()[:2]) for listener in listeners]
    apps = [
        PairRouter(router, pair, urls[1], urls[2]).application(),
        PrefillSide(pair, pair.prefill).application(),
        DecodeSide(pair, pair.decode).application(),
        *(PrefillSide(each, each.prefill).application() for each in further),
    ]
    servers = [_server(app) for app in apps]
    started(servers)
    asyncio.run(_all(listeners, servers, pair))


async def _all(listeners: Sequence[socket.socket], servers: Sequence[uvicorn.Server], pair: PairLife) -> None:
    async def end_prefill() -> None:
        await pair.ended.wait()
        listeners[1].close()
        servers[1].should_exit = servers[1].force_exit = True

    ending = asyncio.create_task(end_prefill())
    serving = zip(servers, listeners, strict=True)
    tasks = [asyncio.create_task(server.serve(sockets=[listener])) for server, listener in serving]
    try:
        await tasks[0]
    finally:
        ending.cancel()
        for server in servers[1:]:
            server.should_exit = server.force_exit = True
        await asyncio.gather(*tasks[1:], return_exceptions=True)


def _server(app: ASGIApp) -> uvicorn.Server:
    config = uvicorn.Config(
        app, log_level="critical", access_log=False, timeout_graceful_shutdown=1, server_header=False
    )
    return uvicorn.Server(config)
