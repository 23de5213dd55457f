"""The counters that an audit compares with those after a run: read at the flush, and after the checks.

Between the two only the set's own seeds and checks may be served. Those of warm-128k are 32 requests; where
the server counts 33, somebody else sent one, and no later sum proves the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wlgen.audit.moved import movement
from wlgen.server.api import Server
from wlgen.server.journal import History
from wlgen.server.pair import PairServer
from wlgen.server.scrape import COUNTERS_BEFORE, Address, missing_of, prepared, scrape, write_scrape
from wlgen.witnesses import Scrape
from wlgen.witnesses._scrape_file import parse, values


async def counters_now(server: Server) -> Scrape:
    """Return what the server counts, or each server of a pair, once two readings a second apart agree."""
    if isinstance(server, PairServer):
        sides = [Address(each.url, "prefill") for each in server.prefill]
        return await scrape([*sides, *(Address(each.url, "decode") for each in server.decode)])
    return await scrape([Address(server.url, "plain")])


def kept(found: Scrape) -> dict[str, Any] | None:
    """Return a reading as the journal keeps it; None where a server does not count."""
    return None if missing_of(found) else values(found)


def write_before(now: Scrape, history: History, *, set_sha256: str, beside: Path) -> tuple[Path, list[str]]:
    """Write counters-before.json beside the journal; return its path and, in words, what does not add up.

    history: what was sent since the flush, with the counters of the flush in it. WlgenError where the file
    cannot be written.
    """
    flushed = parse(history.counters or {})
    found = prepared(flushed, now, set_sha256=set_sha256, served=history.served)
    path = beside / COUNTERS_BEFORE
    write_scrape(found, path)
    return path, list(_not_its_own(found, flushed))


def without_counters(now: Scrape) -> list[str]:
    """Return why no counters can prove a run on these servers, with the remedy."""
    return [f"no {COUNTERS_BEFORE}: {words}" for words in missing_of(now)]


def _not_its_own(found: Scrape, flushed: Scrape) -> Iterator[str]:
    known = found.prepared
    if known is None:
        return
    moved = movement(flushed.servers, found.servers)
    for name in ("requests", "prompt_tokens", "cached_tokens"):
        counted, own = moved.total.get(name), getattr(known, name)
        if counted is not None and counted != own:
            words = name.replace("_", " ")
            yield f"since the flush the server counts {counted:,} {words}, the seeds and checks make {own:,}"
