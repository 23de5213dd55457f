"""The role of a server in a prefill/decode pair, found out before wlgen sends what could harm the server.

A request straight to a prefill or decode server fails for want of bootstrap fields, and one without a rank
ends a prefill server of two ranks (SGLang 0.5.23). So `wlgen` reads GET /server_info first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from wlgen.errors import counted, error
from wlgen.server.api import Server, unusable
from wlgen.server.replies import RequestError, whole_number

Side: TypeAlias = Literal["prefill", "decode"]
_PAGES = ("/server_info", "/get_server_info")  # the second is what older servers have


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One server as it describes itself. side: "" for a server that is not in a pair.

    ranks: its data-parallel ranks. balance: how it chooses the rank of an unpinned request. radix: whether it
    has a prefix cache. bootstrap_port: the port at which decode servers find a prefill server.
    """

    url: str
    side: str
    ranks: int
    balance: str
    radix: bool
    bootstrap_port: int | None


async def describe(server: Server) -> Member | None:
    """Return what a server says of itself; None if it has no page for that, like vLLM or a router."""
    for path in _PAGES:
        page = await server.get(path)
        if page is not None:
            return _member(server.url, page)
    return None


def _member(url: str, page: dict[str, Any]) -> Member:
    mode, balance = page.get("disaggregation_mode"), page.get("load_balance_method")
    return Member(
        url=url,
        side=mode if mode in ("prefill", "decode") else "",
        ranks=whole_number(page.get("dp_size"), f"{url}/server_info dp_size") or 1,
        balance=balance if isinstance(balance, str) else "",
        radix=not page.get("disable_radix_cache"),
        bootstrap_port=whole_number(
            page.get("disaggregation_bootstrap_port"), f"{url}/server_info disaggregation_bootstrap_port"
        ),
    )


async def refuse_member(server: Server) -> None:
    """Raise WlgenError if the server is one side of a pair, which does not answer requests by itself."""
    member = await describe(server)
    if member is not None and member.side:
        raise error(
            "--url",
            expected="a server that answers by itself, or the router in front of a pair",
            found=f"{server.url}, the {member.side} server of a pair ({counted(member.ranks, 'rank')})",
            remedy=f"Give the router as --url and this server as --{member.side} URL. No prompt was sent.",
        )


async def members(servers: Sequence[Server], side: Side) -> list[Member]:
    """Return how the servers of one side describe themselves; WlgenError if one is not of that side."""
    found = []
    for server in servers:
        place = f"--{side} {server.url}"
        expected = f"SGLang's {side} server of a pair (disaggregation_mode {side})"
        try:
            member = await describe(server)
        except RequestError as failure:
            raise unusable(place, failure, expected=expected) from failure
        if member is None or member.side != side:
            other = "a server without /server_info" if member is None else member.side or "a server by itself"
            raise error(place, expected=expected, found=other)
        found.append(member)
    return found
