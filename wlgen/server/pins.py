"""Proof, before any seed, that a pair keeps a pin: by throw-away prompts and the prefill side's counters.

A pin that fails hangs the decode side for 300 s, so no prompt here waits longer than PIN_SECONDS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from wlgen.errors import WlgenError, error
from wlgen.server.api import AskedPrompt, unusable
from wlgen.server.counters import computed
from wlgen.server.pair import ROUTE, PairServer
from wlgen.server.replies import Reply, RequestError

_PAUSE, _TRIES = 0.1, 50  # seconds between two looks at the counters, and how many looks
PIN_SECONDS = 60.0  # enough for a cold server, which compiles kernels at its first prompt
_LOST = (
    f"The pin is lost on the way: sglang-router keeps it on /v1/completions only. {ROUTE}. A request that "
    "hangs holds the decode side for 300 s."
)


async def prove_pair(pair: PairServer, fresh: Callable[[], AskedPrompt], impossible: int, last: int) -> str:
    """Return the proof that the pair keeps pins; WlgenError if it does not.

    fresh: makes a prompt of at least three quanta that no server has seen. impossible: a rank that cannot
    exist. last: the last rank of the set.
    """
    if await _served(pair, fresh(), impossible):
        found = f"rank {impossible} served, which cannot exist"
        raise error(f"{pair.url} pins", expected="a router that keeps them", found=found, remedy=_LOST)
    prompt = fresh()
    at_start = await computed(pair)
    await _ask(pair, prompt, 0)
    again = await _ask(pair, prompt, 0)
    if again.cached_tokens is None:
        remedy = pair.engine.report_flag
        raise error(f"{pair.url} pins", expected="cached tokens in usage", found="none", remedy=remedy)
    if not again.cached_tokens:
        raise _broken(pair, "a prompt sent twice to rank 0 to hit", f"{again.cached_tokens} cached tokens")
    moved = await _moved(pair, at_start)
    if moved is not None and moved != {0}:
        raise _broken(pair, "rank 0 of the prefill side to compute the prompt", f"ranks {sorted(moved)}")
    if last == 0:
        return "pinning: proved, the prefill side has one rank"
    after_first = await computed(pair)
    other = await _ask(pair, prompt, last)
    if other.cached_tokens:
        raise _broken(pair, f"the same prompt to miss on rank {last}", f"{other.cached_tokens} cached tokens")
    moved = await _moved(pair, after_first)
    if moved is not None and moved != {last}:
        expected = f"rank {last} of the prefill side to compute the prompt"
        raise _broken(pair, expected, f"ranks {sorted(moved)}")
    counted = "" if moved is None else f", and the prefill side computed it on ranks 0 and {last} in turn"
    proved = f"a prompt sent twice to rank 0 hits, on rank {last} it misses"
    return f"pinning: proved, {proved}{counted}"


async def _moved(pair: PairServer, before: dict[int, int] | None) -> set[int] | None:
    """Return the ranks that computed more than a health probe's one token; None if the servers do not count.

    A server may count a moment after its answer, so two looks must agree on which ranks moved, for up to 5 s.
    """
    seen: set[int] | None = None
    for _ in range(_TRIES):
        after = await computed(pair)
        if before is None or after is None:
            return None
        last, seen = seen, {rank for rank, count in after.items() if count > before.get(rank, 0) + 1}
        if seen and seen == last:
            break
        await asyncio.sleep(_PAUSE)
    return seen


async def _served(pair: PairServer, prompt: AskedPrompt, rank: int) -> bool:
    try:
        await pair.ask(prompt, max_tokens=1, dp_rank=rank, stream=False, seconds=PIN_SECONDS)
    except RequestError as failure:
        if failure.trouble == "http":
            return False
        raise _unanswered(pair, rank, failure) from failure
    return True


async def _ask(pair: PairServer, prompt: AskedPrompt, rank: int) -> Reply:
    try:
        return await pair.ask(prompt, max_tokens=1, dp_rank=rank, stream=False, seconds=PIN_SECONDS)
    except RequestError as failure:
        raise _unanswered(pair, rank, failure) from failure


def _unanswered(pair: PairServer, rank: int, failure: RequestError) -> WlgenError:
    place, expected = f"{pair.url} pins", f"an answer to a prompt pinned to rank {rank}"
    if failure.trouble in ("timeout", "http"):
        return error(place, expected=expected, found=failure.message, remedy=_LOST)
    return unusable(place, failure, expected=expected)


def _broken(pair: PairServer, expected: str, found: str) -> WlgenError:
    return error(f"{pair.url} pins", expected=expected, found=found, remedy=_LOST)
