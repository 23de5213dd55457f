"""Mooncake trace: no text, the prompts as prefix-chained hash_ids of blocks, for simulators and replayers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

import xxhash

from wlgen.exporters import File, FileUnit, Form, Portion, Prompt, RunCard, Target
from wlgen.exporters._requests import grouped
from wlgen.exporters._run_card import commands
from wlgen.pages import ceil_to

CLIENT = "the public Mooncake traces"
CHECKED = False
FORMS = (
    Form(name="blocks", about="hash_ids of 512-token blocks, as in the public traces", ids=True),
    Form(name="pages", about="hash_ids of the set's pages, with their block_size", ids=True),
)
ONE_FILE_A: FileUnit = "split"
TAKES_TIMES = True
BLOCK = 512  # of the public Mooncake traces; the last block of a prompt may be partial


def files(prompts: Iterable[Prompt], target: Target) -> Iterator[File]:
    """Yield <part>.jsonl: rows at their times, or one second apart; one chain of ids for all parts."""
    size = BLOCK if target.form == "blocks" else target.manifest.cache.page_size
    kind = {} if target.form == "blocks" else {"block_size": size}
    head_len, second = len(target.manifest.encoding["head_ids"]), count()
    chain = Chain(size, head_len, own_shared=_shares_own_parts(target))

    def line(prompt: Prompt) -> dict[str, Any]:
        hashes = chain.hash_ids(prompt)
        lengths = {"input_length": prompt.prompt_len, "output_length": prompt.output_len}
        time = next(second) * 1000 if prompt.timestamp_ms is None else prompt.timestamp_ms
        return {"timestamp": time, **lengths, "hash_ids": hashes, **kind}

    return grouped(prompts, line, apart=target.apart(ONE_FILE_A))


def _shares_own_parts(target: Target) -> bool:
    """Return whether the set has conversations, or rows of a trace."""
    asked = target.manifest.spec["requests"]
    classes = asked if isinstance(asked, list) else [asked]
    return any("trace" in of or of.get("session") for of in classes)


class Chain:
    """Numbers blocks by what stands in them and before them: equal ids, equal prefixes, as in the traces.

    A block that a later row may share is remembered. Of a plain set these are the blocks of the shared
    prefix: a row's own blocks are numbered and forgotten, so memory grows with what is shared and not with
    the rows.
    A turn of a conversation repeats all of the turn before it, and a row of a trace shares what its trace
    shares, beyond its own shared_len: of those every whole block is remembered. All quantities are tokens.
    """

    def __init__(self, size: int, head_len: int, *, own_shared: bool = False) -> None:
        self._size = size
        self._head_len = head_len  # rows of different groups share the framing head: a block at size 1
        self._own_shared = own_shared  # whether later rows may share a row's own part
        self._known: dict[tuple[int, bytes], int] = {}
        self._next = 0

    def hash_ids(self, prompt: Prompt) -> list[int]:
        """Return the ids of the row's blocks, ceil(prompt_len / size) of them; remembers the shared ones."""
        size, ids = self._size, prompt.ids
        if ids is None:
            raise TypeError("a trace is made from token ids")
        chained: list[int] = []
        before = -1
        shared_len = len(ids) if self._own_shared else max(prompt.shared_len, self._head_len)
        for block in range(shared_len // size):
            content = ids[block * size : (block + 1) * size].tobytes()
            before = self._known.setdefault((before, xxhash.xxh3_128_digest(content)), self._next)
            self._next = max(self._next, before + 1)
            chained.append(before)
        fresh = ceil_to(len(ids), size) // size - len(chained)
        chained.extend(range(self._next, self._next + fresh))
        self._next += fresh
        return chained


def run_card(target: Target, portions: Sequence[Portion]) -> RunCard:
    """Return the card: a trace has no text, so nothing of it can be audited."""
    size = BLOCK if target.form == "blocks" else target.manifest.cache.page_size

    def of(_part: str, file: str, _name: str) -> str:
        return f"your-simulator {file}"

    return RunCard(
        source=CLIENT,
        checked=CHECKED,
        setup="",
        commands=commands(portions, apart=target.apart(ONE_FILE_A), of=of),
        audit="",
        off=f"""
- hash_ids name blocks of {size} tokens, chained: rows with the same id share everything up to there. The
  last block of a prompt may be partial.
- Timestamps, in milliseconds, are the rows' own since their round began; rows without are one second apart,
  going on from seed to check to formal: scale them.""",
        limits="""
- Text, ranks and exact tokens are not in the format: a replayer makes up its own text, which drifts.""",
    )
