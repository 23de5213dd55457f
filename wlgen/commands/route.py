"""`wlgen route`: a small router for a prefill/decode pair, which pins the prefill rank alone."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    prefill: Annotated[list[str], typer.Option(help="A prefill server; repeat it for several.")],
    decode: Annotated[list[str], typer.Option(help="A decode server; repeat it for several.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8080,
) -> None:
    """Route requests to a prefill/decode pair of SGLang, pinned to a prefill rank alone. It keeps no state.

    A client names the rank as of a plain server: `routed_dp_rank` in the body, or X-Data-Parallel-Rank. The
    ranks of several prefill servers count on, in the order given. Use it where SGLang's own router drops the
    pin (chat routes of sglang-router), or where the decode side has other ranks than the prefill side.
    """
    import asyncio

    from wlgen.server.routing import serve_route

    asyncio.run(serve_route(prefill, decode, host, port, typer.echo))
