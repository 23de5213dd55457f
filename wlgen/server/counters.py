"""A server's own counts of its work, which prove that nothing was sent to it between two looks.

A count of finished requests proves nothing: it lacks a request that its client gave up, whose prompt is in
the cache all the same. So a look uses only counts of work, or counts of requests together with aborts.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping
from typing import TypeAlias

from wlgen.server.api import Server
from wlgen.server.replies import RequestError

Look: TypeAlias = Mapping[str, int]  # a counter's name -> its value, summed over ranks unless named by rank
_PAUSE, _TRIES = 0.25, 12  # seconds between two looks that must agree, and how often
_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{.*\})? (\S+)(?: \S+)?$")


async def look(server: Server) -> Look | None:
    """Return the server's counts since its start; None if they could not prove that it was idle."""
    found: dict[str, int] = {}
    for part in server.counted:
        totals = _totals(await _text(part, "/metrics"))
        for group in part.engine.idle_proofs:
            if all(name in totals for name in group):
                found |= {f"{part.url} {name}": totals[name] for name in group}
    if server.engine.load_page:
        counts = await computed(server) or {}
        found |= {f"rank {rank}: computed tokens": n for rank, n in counts.items()}
    return found or None


async def settled(server: Server) -> Look | None:
    """Return the first look that equals the look before it: SGLang counts a request after its answer."""
    found = await look(server)
    for _ in range(_TRIES):
        await asyncio.sleep(_PAUSE)
        before, found = found, await look(server)
        if found == before:
            break
    return found


async def computed(server: Server) -> dict[int, int] | None:
    """Return how many prompt tokens each rank has computed, None if no page says it."""
    counts: list[int] = []
    for part in server.counted:
        try:
            page = await part.page(part.engine.load_page)
        except RequestError:
            return None
        found = None if page is None else part.engine.read_computed(page)
        if found is None:
            return None
        counts += found
    return dict(enumerate(counts))


def fell(earlier: Look | None, later: Look | None) -> bool:
    """Return whether a count fell. Counts only grow while a server lives, so it then restarted."""
    pairs = [(earlier[name], later[name]) for name in (earlier or {}) if earlier and later and name in later]
    return any(after < before for before, after in pairs)


def moved(earlier: Look | None, later: Look | None) -> bool:
    """Return whether a count changed."""
    return any((later or {}).get(name, count) != count for name, count in (earlier or {}).items())


def idle(earlier: Look | None, later: Look | None) -> bool:
    """Return whether two looks prove that nothing was sent between them."""
    return earlier is not None and earlier == later


async def _text(server: Server, path: str) -> str:
    try:
        return (await server.page(path) or b"").decode(errors="replace")
    except RequestError:  # a page that fails proves nothing, and is asked again next time
        return ""


def _totals(page: str) -> dict[str, int]:
    """Return each counter of a Prometheus page, summed over its labels.

    A counter that is announced (`# TYPE name counter`) but has no line is 0: nothing of it has happened yet.
    """
    totals: dict[str, int] = {}
    for line in page.splitlines():
        if line.startswith("# TYPE ") and line.endswith(" counter"):
            totals.setdefault(line.split(" ")[2], 0)
        elif found := _LINE.match(line):
            totals[found[1]] = totals.get(found[1], 0) + _whole(found[2])
    return totals


def _whole(text: str) -> int:
    try:
        number = float(text)
    except ValueError:
        return 0
    return int(number) if math.isfinite(number) else 0
