"""A scrape file: the counters of a run's servers at one moment, written by `wlgen counters` and `prepare`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import orjson

from wlgen.errors import Problem
from wlgen.witnesses import Scrape
from wlgen.witnesses._scrape_file import parse

OPTION = "counters"
LARGEST = 1 << 26  # bytes; 64 servers of 64 ranks need less than one of these 64 MiB


def claims(opening: bytes) -> bool:
    """Return whether the file says that `wlgen counters` wrote it."""
    return b'"command":"counters"' in opening.replace(b" ", b"").replace(b"\n", b"")


def read(name: str, content: BinaryIO) -> Iterator[Scrape | Problem]:
    """Yield the one scrape of a file, or the problem that it has."""
    try:
        yield parse(orjson.loads(content.read(LARGEST)))
    except (ValueError, KeyError, TypeError, AttributeError) as failure:
        remedy = "Take the scrape again with `wlgen counters`."
        yield Problem(place=name, expected="counters of servers", found=f"{failure!r:.120}", remedy=remedy)
