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
from wlgen.errors import error
from wlgen.server.api import base_url
from wlgen.server.door import KEY_VARIABLE
from wlgen.witnesses import TIERS, Prepared, Role, Scrape, ServerCounts
from wlgen.witnesses._scrape_file import values

COUNTERS_BEFORE = "counters-before.json"  # in the folder of the journal
PAUSE = 1.0  # seconds between two readings that must agree
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class _Names(NamedTuple):
    """An engine's names for the rank's label, for plain counts and for counts that a label divides."""

    rank: str
    plain: Mapping[str, str]
    divided: Mapping[str, tuple[str, Mapping[str, tuple[str, ...]]]]
    needed: Mapping[str, str]  # a count that a proof needs, and what to do where it is not there


_NAMES: Mapping[str, _Names] = {
    # Of finished requests SGLang counts the whole server, without a rank; of admitted work each rank. The
    # sources of cached_tokens_total are disjoint, and `total` is there only where no details are known.
    "sglang": _Names(
        rank="dp_rank",
        plain={
            "sglang:num_requests_total": "requests",
            "sglang:prompt_tokens_total": "prompt_tokens",
            "sglang:generation_tokens_total": "output_tokens",
            "sglang:num_aborted_requests_total": "aborted",
            "sglang:num_retracted_requests_total": "retracted",
            "sglang:spec_verify_calls_total": "verify_steps",
            "sglang:num_running_reqs": "running",
            "sglang:num_queue_reqs": "waiting",
        },
        divided={
            "sglang:cached_tokens_total": (
                "cache_source",
                {tier: ("cached_tokens", f"cached_{tier}") for tier in TIERS} | {"": ("cached_tokens",)},
            ),
            "sglang:prefill_effective_tokens_total": (
                "mode",
                {"input": ("computed",)} | {f"{tier}_hit": (f"hit_{tier}",) for tier in TIERS} | {"": ()},
            ),
        },
        needed={},
    ),
    "vllm": _Names(
        rank="engine",
        plain={
            "vllm:prompt_tokens_total": "prompt_tokens",
            "vllm:prompt_tokens_cached_total": "cached_tokens",
            "vllm:prefix_cache_hits_total": "cached_device",
            "vllm:external_prefix_cache_hits_total": "cached_external",
            "vllm:generation_tokens_total": "output_tokens",
            "vllm:num_preemptions_total": "retracted",
            "vllm:spec_decode_num_drafts_total": "drafts",
            "vllm:spec_decode_num_draft_tokens_total": "proposed_tokens",
            "vllm:spec_decode_num_accepted_tokens_total": "accepted_tokens",
            "vllm:num_requests_running": "running",
            "vllm:num_requests_waiting": "waiting",
        },
        divided={
            "vllm:request_success_total": (
                "finished_reason",
                {"abort": ("requests", "aborted"), "error": ("requests", "aborted"), "": ("requests",)},
            ),
        },
        needed={"cached_tokens": "vLLM counts hits only with prefix caching on: --enable-prefix-caching"},
    ),
}
# What an engine counts from 0 on, so that its absence beside the others means 0. SGLang's labelled counters
# appear with their first event; a page with none of its own names at all says nothing.
_ZERO_WHERE_ABSENT = {
    "sglang": (
        "requests",
        "prompt_tokens",
        "cached_tokens",
        "output_tokens",
        "aborted",
        "retracted",
    ),
    "vllm": ("aborted",),
}


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
            quiet = idle and now == last
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
        engine = "sglang" if await _is_sglang(client, url) else ""
        words = (
            "no counters: start SGLang with --enable-metrics"
            if engine
            else "no /metrics page: a router has none, so give the servers' own addresses"
        )
        return ServerCounts(url=url, role=role, engine=engine, missing=(words,))
    return counts_of(page, url=url, role=role)


def counts_of(page: str, *, url: str, role: Role = "plain") -> ServerCounts:
    """Return the counters of a /metrics page of SGLang or vLLM."""
    engine = next((name for name in _NAMES if f"\n{name}:" in f"\n{page}"), "")
    if not engine:
        known = " or ".join(_NAMES)
        return ServerCounts(url=url, role=role, engine="", missing=(f"its /metrics has no names of {known}",))
    names = _NAMES[engine]
    total: dict[str, int] = defaultdict(int)
    ranks: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    started = None
    for name, labels, value in _samples(page):
        if name == "process_start_time_seconds":
            started = value
            continue
        rank = labels.get(names.rank, "")
        for count in _counted(names, name, labels):
            total[count] += round(value)
            if rank.isdecimal():
                ranks[int(rank)][count] += round(value)
    for count in _ZERO_WHERE_ABSENT[engine]:
        total.setdefault(count, 0)
    if engine == "vllm" and "cached_tokens" not in total and "cached_device" in total:  # before 0.12 or so
        for of in (total, *ranks.values()):
            of["cached_tokens"] = of["cached_device"] + of.get("cached_external", 0)
    return ServerCounts(
        url=url,
        role=role,
        engine=engine,
        started=started,
        total=dict(total),
        ranks={rank: dict(counts) for rank, counts in sorted(ranks.items())},
        missing=tuple(words for count, words in names.needed.items() if count not in total),
    )


def _counted(names: _Names, name: str, labels: Mapping[str, str]) -> Sequence[str]:
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


async def _is_sglang(client: httpx.AsyncClient, url: str) -> bool:
    pages = ("/server_info", "/get_server_info", "/model_info", "/get_model_info")
    return any([await _page(client, f"{url}{path}") is not None for path in pages])


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
