"""Preflight: what wlgen must know of a live server before a person spends hours on it.

It sends throw-away prompts and no row of the set, but for one seed or check that the server tokenizes, which
touches no cache.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

import numpy as np

from wlgen.encodings import Encoding, Message
from wlgen.engines import Engine
from wlgen.errors import WlgenError, error
from wlgen.faults._words import FRAMINGS, OTHER_FRAMING
from wlgen.registry import nearest
from wlgen.server.api import AskedPrompt, Server, unusable
from wlgen.server.pair import PairServer
from wlgen.server.pins import prove_pair
from wlgen.server.replies import Reply, RequestError
from wlgen.workload.opened import Workload
from wlgen.workload.rows import Row
from wlgen.workload.splits import BEFORE

IMPOSSIBLE_RANK = 32_767
_PROVED = "framing: proved"
_SHORT = 64  # words of a throw-away prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What a preflight found.

    omits_zero: whether the server leaves cached tokens out if they are 0. pinned: whether it keeps pins,
    since it refuses impossible ranks. proofs: a line for each thing that was proved, or could not be.
    unproved: the things that could not be proved, in a word or two each.
    """

    omits_zero: bool
    pinned: bool
    proofs: tuple[str, ...]
    unproved: tuple[str, ...] = ()


async def choose_model(server: Server, wanted: str | None) -> str:
    """Return the model to ask for; WlgenError if no server answers or it does not serve that model."""
    try:
        served = await server.models()
    except RequestError as failure:
        raise unusable(
            f"{server.url}/v1/models", failure, expected="a server that answers, with a list of its models"
        ) from failure
    if not served:
        raise error(f"{server.url}/v1/models", expected="a model", found="none")
    if wanted is None:
        if len(served) > 1:
            raise error("--model", expected=f"one of {', '.join(served)}", found="no choice")
        return served[0]
    if wanted not in served:
        expected = f"a model the server serves: {', '.join(served)}"
        raise error("--model", expected=expected, found=repr(wanted), remedy=nearest(wanted, served))
    return wanted


async def choose_engine(server: Server, wanted: Engine | None, planned: Engine) -> tuple[Engine, str]:
    """Return the engine to speak to, and a line that says how it was found.

    A server without any page that only one engine has, such as a router, counts as the engine for which the
    set was planned.
    """
    if isinstance(server, PairServer):
        if wanted is not None and wanted.name != server.engine.name:
            expected = f"{server.engine.name}, whose pairs are known"
            raise error("--engine", expected=expected, found=wanted.name)
        differs = "" if planned.name == server.engine.name else f"; the set was planned for {planned.name}"
        return server.engine, f"engine: {server.engine.name}, a prefill/decode pair{differs}"
    try:
        found = await server.detect()
    except RequestError as failure:
        raise unusable(server.url, failure, expected="a server") from failure
    if wanted is not None:
        doubt = f", though the server looks like {found.name}" if found and found != wanted else ""
        return wanted, f"engine: {wanted.name}, as --engine says{doubt}"
    if found is None:
        shows = "the server has no page by which to tell its engine"
        return planned, f"engine: {planned.name}, the set's own; {shows}"
    differs = "" if found == planned else f"; the set was planned for {planned.name}"
    return found, f"engine: {found.name}, by its own pages{differs}"


async def preflight(
    server: Server, workload: Workload, encoding: Encoding, ranks: Sequence[int]
) -> Preflight:
    """Find out what the server does; WlgenError if it could not keep a promise of the set."""
    manifest = workload.manifest
    rows = workload.rows(BEFORE, ranks)
    row = next(rows, None)
    if row is None and workload.files(BEFORE):
        raise error(str(workload.folder), expected="a seed or check row", found="none on the ranks asked for")
    try:
        framing = await _tokenized(server, row, encoding) if row else ""
        # Pins come before any other prompt: a pin that a pair does not keep hangs each prompt for 300 s.
        pins = await _pinned(server, encoding, manifest.dp_ranks, manifest.cache.hit_quantum)
        reply, omits_zero = await _reported(server, encoding, manifest.cache.hit_quantum)
        framing = framing or reply
    except RequestError as failure:
        raise unusable(server.url, failure, expected="an answer to a throw-away prompt") from failure
    reported = "cached tokens: reported" + (", and left out if they are 0" if omits_zero else "")
    pinned, pinning = pins
    unproved = [] if pinned or manifest.dp_ranks == 1 else ["pins"]
    if not framing.startswith(_PROVED):
        unproved.append("the framing beyond its length")
    return Preflight(
        omits_zero=omits_zero, pinned=pinned, proofs=(framing, reported, pinning), unproved=tuple(unproved)
    )


def row_prompt(row: Row, encoding: Encoding) -> AskedPrompt:
    """Return the prompt of a row: its messages, or its text if the encoding is no chat."""
    return _prompt(row.messages, encoding)


def throwaway(encoding: Encoding, words: int) -> tuple[AskedPrompt, list[int]]:
    """Return a prompt of about `words` words that no server has seen, and its ids in this encoding."""
    text = f"Throw-away prompt {uuid.uuid4().hex}:" + " one two three four five six seven eight" * (
        words // 8
    )
    messages = (Message("user", text),)
    return _prompt(messages, encoding), encoding.prompt_ids(messages)


def _prompt(messages: tuple[Message, ...], encoding: Encoding) -> AskedPrompt:
    if encoding.chat:
        return AskedPrompt(messages=messages, template_kwargs=encoding.server_kwargs)
    special = encoding.frame(("user",)).tokens > 0
    return AskedPrompt(text=messages[-1].content, add_special_tokens=special)


async def _tokenized(server: Server, row: Row, encoding: Encoding) -> str:
    """Return the proof of the framing by the server's own tokenizer, '' if it has no page for that."""
    if not encoding.chat:
        return ""
    ids = await server.tokenize(row_prompt(row, encoding))
    if ids is None:
        return ""
    if hashlib.sha256(np.array(ids, dtype="<u4").tobytes()).hexdigest() == row.prompt_sha256:
        return f"{_PROVED}, the server encodes {row.id} to exactly its {row.prompt_len} ids"
    raise _other_framing(f"{server.url}/tokenize {row.id}", row.prompt_len, len(ids))


async def _reported(server: Server, encoding: Encoding, quantum: int) -> tuple[str, bool]:
    """Return the proof of the framing by the server's count, and whether it omits cached tokens of 0."""
    place = f"{server.url} throw-away prompt"
    prompt, ids = throwaway(encoding, _SHORT)
    reply = await _ask(server, prompt)
    proof = _counted(place, ids, reply)
    if reply.cached_tokens is not None:
        return proof, False
    # The server may leave out a 0. So send a prompt again that is long enough to hit: then a count must come.
    prompt, _ = throwaway(encoding, max(_SHORT, 3 * quantum))
    for _ in range(3):
        reply = await _ask(server, prompt)
        if reply.cached_tokens:
            return proof, True
    found = "none, for a prompt that was sent three times"
    raise error(place, expected="cached tokens in usage", found=found, remedy=server.engine.report_flag)


def _counted(place: str, ids: Sequence[int], reply: Reply) -> str:
    if reply.prompt_tokens is None:
        remedy = "The server must report usage: nothing can be proved without it."
        raise error(place, expected="usage with prompt_tokens", found="no usage", remedy=remedy)
    if reply.prompt_tokens != len(ids):
        raise _other_framing(place, len(ids), reply.prompt_tokens)
    if reply.prompt_ids is None:
        return f"framing: counted, {len(ids)} tokens as planned; the server does not return ids"
    if list(reply.prompt_ids) != list(ids):
        first = next(n for n, (a, b) in enumerate(zip(ids, reply.prompt_ids, strict=True)) if a != b)
        expected = f"id {ids[first]} at token {first}"
        raise error(place, expected=expected, found=str(reply.prompt_ids[first]), remedy="Another tokenizer?")
    return f"{_PROVED}, the server returns the {len(ids)} ids of a throw-away prompt as planned"


def _other_framing(place: str, planned: int, found: int) -> WlgenError:
    cause = FRAMINGS.get(found - planned, OTHER_FRAMING)
    told = f"{found}, {found - planned:+d}" if found != planned else "as many tokens, but other ids"
    return error(place, expected=f"{planned} prompt tokens", found=told, remedy=f"Cause: {cause}.")


async def _pinned(server: Server, encoding: Encoding, dp_ranks: int, quantum: int) -> tuple[bool, str]:
    last = dp_ranks - 1
    if isinstance(server, PairServer):
        words = max(_SHORT, 3 * quantum)
        return True, await prove_pair(server, lambda: throwaway(encoding, words)[0], IMPOSSIBLE_RANK, last)
    try:
        await _ask(server, throwaway(encoding, _SHORT)[0], last)
    except RequestError as failure:
        if failure.trouble != "http":
            raise
        expected = f"rank {last} of {dp_ranks} to be served"
        remedy = f"The set has {dp_ranks} ranks: start the server with as many (DP), or build for fewer."
        raise error(server.url, expected=expected, found=failure.message, remedy=remedy) from failure
    if not await _refuses(server, encoding, IMPOSSIBLE_RANK):
        seen = f"the server serves rank {IMPOSSIBLE_RANK}, which cannot exist"
        return False, f"pinning: UNPROVED, {seen}: a router in front may drop the rank"
    if not await _refuses(server, encoding, dp_ranks):
        seen = f"the server has more ranks than the {dp_ranks} of the set"
        return True, f"pinning: accepted; {seen}: pin each formal row"
    return True, f"pinning: proved, ranks 0 to {last} are served and rank {dp_ranks} is refused"


async def _refuses(server: Server, encoding: Encoding, rank: int) -> bool:
    try:
        await _ask(server, throwaway(encoding, _SHORT)[0], rank)
    except RequestError as failure:
        if HTTPStatus.BAD_REQUEST <= failure.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return True
        raise
    return False


async def _ask(server: Server, prompt: AskedPrompt, dp_rank: int = 0) -> Reply:
    # Not streamed, since SGLang returns ids only in a whole answer.
    return await server.ask(prompt, max_tokens=1, dp_rank=dp_rank, stream=False, return_ids=True)
