"""SGLang's log: a line each prefill batch, with the tokens it computed and the tokens it found cached.

[2026-11-30 11:56:24 DP3 TP3] Prefill batch, #new-seq: 2, #new-token: 8192, #cached-token: 14848, ...
Source: SGLang 0.5.23, srt/managers/scheduler (log of prefill statistics).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from wlgen.errors import Problem
from wlgen.witnesses import PrefillBatch

OPTION = "log"
_BATCH = re.compile(rb"Prefill batch[^#]*#new-seq: \d+, +#new-token: (\d+), +#cached-token: (\d+)")
_RANK = re.compile(rb"\bDP(\d+)\b")


def claims(opening: bytes) -> bool:
    """Return whether the first bytes look like SGLang's log: its arguments, or a line of a batch."""
    return b"server_args=" in opening or b"ServerArgs(" in opening or b"Prefill batch" in opening


def read(name: str, content: BinaryIO) -> Iterator[PrefillBatch | Problem]:
    """Yield each prefill batch; other lines say nothing of the cache."""
    for number, line in enumerate(content, 1):
        at = line.find(b"Prefill batch")
        if at < 0:
            continue
        if (batch := _BATCH.match(line, at)) is None:
            expected = "#new-seq, #new-token and #cached-token of a prefill batch"
            yield Problem(place=f"{name}:{number}", expected=expected, found=repr(line[at : at + 80]))
            continue
        rank = _RANK.search(line, 0, at)
        yield PrefillBatch(
            place=f"{name}:{number}",
            dp_rank=int(rank[1]) if rank else None,
            computed=int(batch[1]),
            cached=int(batch[2]),
        )
