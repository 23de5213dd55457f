"""One scrape of the counters of a run's servers, and the file that keeps it.

A scrape is read until two readings a second apart are equal and nothing runs: SGLang counts a request after
its answer has left, so a reading right after the last answer misses it.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import httpx
import orjson

from wlgen import __version__
from wlgen.engines import Counters, Engine, every_engine
from wlgen.errors import error
from wlgen.server.api import base_url
from wlgen.server.door import KEY_VARIABLE
from wlgen.witnesses import Prepared, Role, Scrape, ServerCounts
from wlgen.witnesses._scrape_file import values

COUNTERS_BEFORE = "counters-before.json"  # in the folder of the journal
PAUSE = 1.0  # seconds between two readings that must agree
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Address(NamedTuple):
    """A server's URL, and its role in a prefill/decode pair where the caller knows it."""

    url: str
    role: Role | None = None


async def scrape(addresses: Sequence[Address], *, seconds: float = 10.0, patience: float = 60.0) -> Scrape:
    """Return the counters of each server once two readings a second apart are equal and nothing runs.

    seconds: how long a server may take to answer. After `patience` seconds the last reading is returned,
    with quiet False. The API key comes from the environment. WlgenError where a server does not answer.
    """
    key = os.environ.get(KEY_VARIABLE)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    deadline = time.monotonic() + patience
    async with httpx.AsyncClient(headers=headers, timeout=seconds, trust_env=False) as client:
        last: list[ServerCounts] = []
        while True:
            now = await asyncio.gather(*(_server(client, address) for address in addresses))
            idle = not any(of.total.get("running") or of.total.get("waiting") for of in now)
            quiet = idle and (now == last or not any(of.total for of in now))
            if quiet or time.monotonic() >= deadline:
                return Scrape(time=datetime.now(UTC).isoformat(), quiet=quiet, servers=tuple(now))
            last = now
            await asyncio.sleep(PAUSE)


def prepared(flushed: Scrape, after: Scrape, *, set_sha256: str, served: Sequence[tuple[int, int]]) -> Scrape:
    """Return `after` as a scrape from which a run may be proved: with what was served since the flush.

    flushed: taken right after the flush. served: (prompt tokens, cached tokens) of each seed and check that
    was sent between the two; sets of spec fingerprint `set_sha256`.
    """
    known = Prepared(
        set_sha256=set_sha256,
        flushed=flushed.servers,
        requests=len(served),
        prompt_tokens=sum(prompt for prompt, _ in served),
        cached_tokens=sum(cached for _, cached in served),
    )
    return Scrape(time=after.time, quiet=flushed.quiet and after.quiet, servers=after.servers, prepared=known)


def write_scrape(found: Scrape, path: Path) -> None:
    """Write a scrape file; WlgenError where the file cannot be written. Half a file never has its name."""
    missing = missing_of(found)
    head = {"wlgen": __version__, "command": "counters", "ok": found.quiet and not missing}
    content = orjson.dumps(head | values(found), option=orjson.OPT_INDENT_2)
    place = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        place.write_bytes(content + b"\n")
        place.replace(path)
    except OSError as failure:
        place.unlink(missing_ok=True)
        found_ = failure.strerror or str(failure)
        raise error(str(path), expected="a writable file for the counters", found=found_) from failure


def missing_of(found: Scrape) -> list[str]:
    """Return what the servers of a scrape do not count, each with the flag that turns it on."""
    return [f"{server.url}: {words}" for server in found.servers for words in server.missing]


async def _server(client: httpx.AsyncClient, address: Address) -> ServerCounts:
    url = base_url(address.url)
    role = address.role or await _role(client, url)
    page = await _page(client, f"{url}/metrics")
    if page is None:
        engine = await _engine_without_metrics(client, url)
        words = "no /metrics page: a router has none, so give the servers' own addresses"
        if engine is not None:
            words = f"no counters: {engine.counters.flag}"
        name = "" if engine is None else engine.name
        return ServerCounts(url=url, role=role, engine=name, missing=(words,))
    return counts_of(page, url=url, role=role)


def counts_of(page: str, *, url: str, role: Role = "plain") -> ServerCounts:
    """Return the counters of a /metrics page of a known engine."""
    known_ones = list(every_engine())
    engine = next((each for each in known_ones if f"\n{each.counters.prefix}" in f"\n{page}"), None)
    if engine is None:
        known = " or ".join(each.name for each in known_ones)
        return ServerCounts(url=url, role=role, engine="", missing=(f"its /metrics has no names of {known}",))
    names = engine.counters
    total: dict[str, int] = defaultdict(int)
    ranks: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    starts: list[float] = []
    for name, labels, value in _samples(page):
        if name == names.start:
            starts.append(value)
            continue
        rank = labels.get(names.rank_label, "")
        for count in _counted(names, name, labels):
            total[count] += round(value)
            if rank.isdecimal():
                ranks[int(rank)][count] += round(value)
    for count in names.zero:
        total.setdefault(count, 0)
    for count, parts in names.sums.items():
        if count not in total and parts[0] in total:
            for of in (total, *ranks.values()):
                of[count] = sum(of.get(part, 0) for part in parts)
    return ServerCounts(
        url=url,
        role=role,
        engine=engine.name,
        started=max(starts, default=None),  # of SGLang's phases the longest is the whole start
        total=dict(total),
        ranks={rank: dict(counts) for rank, counts in sorted(ranks.items())},
        missing=tuple(words for count, words in names.needed.items() if count not in total),
    )


def _counted(names: Counters, name: str, labels: Mapping[str, str]) -> Sequence[str]:
    """Return the counts that a sample of this name and these labels adds to."""
    if name in names.plain:
        return (names.plain[name],)
    if name in names.divided:
        label, counts = names.divided[name]
        return counts.get(labels.get(label, ""), counts[""])
    return ()


def _samples(page: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    for name, labels, value in _SAMPLE.findall(page):
        try:
            number = float(value)
        except ValueError:
            continue
        if number == number and abs(number) != float("inf"):  # noqa: PLR0124 (a NaN differs from itself)
            yield name, dict(_LABEL.findall(labels)), number


async def _role(client: httpx.AsyncClient, url: str) -> Role:
    for path in ("/server_info", "/get_server_info"):
        page = await _page(client, f"{url}{path}")
        try:
            content = orjson.loads(page) if page is not None else {}
        except orjson.JSONDecodeError:
            continue
        mode = content.get("disaggregation_mode") if isinstance(content, dict) else None
        if mode in ("prefill", "decode"):
            found: Role = "prefill" if mode == "prefill" else "decode"
            return found
        if page is not None:
            break
    return "plain"


async def _engine_without_metrics(client: httpx.AsyncClient, url: str) -> Engine | None:
    """Return the engine that answers on its own pages, of those that have /metrics only with a flag."""
    for known in every_engine():
        pages = [*known.page_size_pages, *known.own_pages] if known.counters.flag else []
        if any([await _page(client, f"{url}{path}") is not None for path in pages]):
            return known
    return None


async def _page(client: httpx.AsyncClient, url: str) -> str | None:
    """Return a page's text, None where the server has no such page."""
    try:
        response = await client.get(url)
    except httpx.HTTPError as failure:
        found = f"no answer ({type(failure).__name__})"
        remedy = "Start the server, or correct the address."
        raise error(url, expected="a server", found=found, remedy=remedy) from None
    if response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        remedy = f"Set the API key in the environment variable {KEY_VARIABLE}."
        raise error(url, expected="an answer", found=f"HTTP {response.status_code}", remedy=remedy)
    return response.text if response.status_code == HTTPStatus.OK else None
