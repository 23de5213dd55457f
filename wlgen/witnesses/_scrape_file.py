"""The JSON of a scrape file, written and read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from wlgen.witnesses import COUNTS, GAUGES, ROLES, Prepared, Scrape, ServerCounts


def values(scrape: Scrape) -> dict[str, Any]:
    """Return a scrape as JSON values, the keys of its file."""
    return {
        "time": scrape.time,
        "quiet": scrape.quiet,
        "servers": [_server_values(server) for server in scrape.servers],
        "prepared": None
        if scrape.prepared is None
        else asdict(scrape.prepared)
        | {"flushed": [_server_values(server) for server in scrape.prepared.flushed]},
    }


def parse(content: Mapping[str, Any]) -> Scrape:
    """Return the scrape of JSON values; KeyError, TypeError or ValueError where they are none."""
    prepared = content.get("prepared")
    return Scrape(
        time=str(content["time"]),
        quiet=content["quiet"] is True,
        servers=tuple(map(_server, content["servers"])),
        prepared=None
        if prepared is None
        else Prepared(**prepared | {"flushed": tuple(map(_server, prepared["flushed"]))}),
    )


def _server_values(server: ServerCounts) -> dict[str, Any]:
    ranks = {str(rank): dict(counts) for rank, counts in sorted(server.ranks.items())}
    whole = {"url": server.url, "role": server.role, "engine": server.engine, "started": server.started}
    return whole | {"total": dict(server.total), "ranks": ranks, "missing": list(server.missing)}


def _server(content: Mapping[str, Any]) -> ServerCounts:
    if content["role"] not in ROLES:
        raise ValueError(f"role {content['role']!r}")
    return ServerCounts(
        url=content["url"],
        role=content["role"],
        engine=content["engine"],
        started=content["started"],
        total=_counts(content["total"]),
        ranks={int(rank): _counts(counts) for rank, counts in content["ranks"].items()},
        missing=tuple(content["missing"]),
    )


def _counts(content: Mapping[str, Any]) -> dict[str, int]:
    if unknown := [name for name, count in content.items() if type(count) is not int or name not in _KNOWN]:
        raise ValueError(f"the count {unknown[0]!r}")
    return dict(content)


_KNOWN = {*COUNTS, *GAUGES}
