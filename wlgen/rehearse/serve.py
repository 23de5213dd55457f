"""Runs a rehearsal on a socket until it is interrupted; the fault `restart` begins a new life."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import uvicorn

from wlgen.errors import error
from wlgen.rehearse.app import application
from wlgen.rehearse.life import Life

_DOWN_SECONDS = 1.0
_LAST_ANSWER_SECONDS = 0.05  # time for the last answer before a restart to reach its client


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free port. WlgenError if the address is not free."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as failure:
        remedy = "Choose another --port, or 0 for any free one."
        place = f"{host}:{port}"
        raise error(place, expected="a free address", found=str(failure), remedy=remedy) from failure


def serve(listener: socket.socket, new_life: Callable[[int], Life]) -> None:
    """Serve until interrupted. new_life: makes one life of the server, from the number of restarts so far."""
    host, port = listener.getsockname()[:2]
    restarts = 0
    while True:
        life = new_life(restarts)
        again = asyncio.run(_one_life(listener, life))
        if not again:
            return
        restarts += 1
        listener.close()
        asyncio.run(asyncio.sleep(_DOWN_SECONDS))
        listener = listen(host, port)


async def _one_life(listener: socket.socket, life: Life) -> bool:
    """Serve one life; return whether it ended because the fault `restart` struck."""
    server = web_server(life)

    async def strike() -> None:
        await life.restart_due.wait()
        await asyncio.sleep(_LAST_ANSWER_SECONDS)
        server.should_exit = server.force_exit = True

    striking = asyncio.create_task(strike())
    await server.serve(sockets=[listener])
    striking.cancel()
    return life.restart_due.is_set()


def web_server(life: Life) -> uvicorn.Server:
    """Return a server of one life, quiet and without a lifespan."""
    config = uvicorn.Config(
        application(life),
        log_level="critical",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    return uvicorn.Server(config)
