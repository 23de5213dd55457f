"""Starts the router of route.py: it asks each server for its role, then serves until it is interrupted."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import uvicorn

from wlgen.errors import error
from wlgen.server.api import Server
from wlgen.server.door import KEY_VARIABLE
from wlgen.server.pair import pair_engine
from wlgen.server.roles import Member, Side, members
from wlgen.server.route import application


async def serve_route(
    prefill: Sequence[str], decode: Sequence[str], host: str, port: int, say: Callable[[str], None]
) -> None:
    """Serve the router; WlgenError if a server has another role, or if the address is taken."""
    first, second = await _sides("prefill", prefill), await _sides("decode", decode)
    try:
        listener = socket.create_server((host, port), backlog=1024)
    except OSError as failure:
        place = f"{host}:{port}"
        remedy = "Choose another --port, or 0 for any free one."
        raise error(place, expected="a free address", found=str(failure), remedy=remedy) from failure
    ranks = sum(member.ranks for member in first)
    say(f"prefill: {', '.join(member.url for member in first)}; ranks 0 to {ranks - 1}")
    say(f"decode: {', '.join(member.url for member in second)}; not pinned")
    say(f"listening on http://{host}:{listener.getsockname()[1]}")
    config = uvicorn.Config(
        application(first, second), log_level="critical", access_log=False, timeout_graceful_shutdown=1
    )
    await uvicorn.Server(config).serve(sockets=[listener])


async def _sides(side: Side, urls: Sequence[str]) -> list[Member]:
    key = os.environ.get(KEY_VARIABLE)
    async with AsyncExitStack() as opened:
        servers = [
            await opened.enter_async_context(Server(url, engine=pair_engine(), api_key=key, timeout=60.0))
            for url in urls
        ]
        return await members(servers, side)
