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
    """Route requests to a prefill/decode pair of SGLang, and pin only the prefill rank. It keeps no state.

    A client names the rank as for a plain server: `routed_dp_rank` in the body, or X-Data-Parallel-Rank.
    Ranks are numbered through all prefill servers, in the order given. Use it if SGLang's own router drops
    the pin (sglang-router, on chat routes), or if the decode side has another number of ranks.
    """
    import asyncio

    from wlgen.server.routing import serve_route

    asyncio.run(serve_route(prefill, decode, host, port, typer.echo))
