"""What a rehearsal simulates: the cache rule, the ranks, the faults and the time that work takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from wlgen.cache.rule import CacheRule
from wlgen.engines import CHUNK
from wlgen.errors import counted
from wlgen.rehearse.acting import Acting
from wlgen.rehearse.faults import Faults

Ids: TypeAlias = NDArray[np.uint32]

SIMULATION = "wlgen-rehearse-simulation"  # the mark on each answer, stream event and page
NOTICE = "This is a simulation by wlgen rehearse: no model runs, and its times are not a measurement."


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeModel:
    """How long simulated work takes.

    A rank prefills one request at a time, at prefill_rate uncached tokens a second. It runs at most `running`
    requests at once, each of which decodes decode_rate tokens a second whatever the others do.
    """

    prefill_rate: float = 20_000.0
    decode_rate: float = 50.0
    running: int = 16

    def __str__(self) -> str:
        return (
            f"a rank prefills one request at a time at {self.prefill_rate:g} uncached tokens/s "
            f"and runs at most {self.running}; each decodes {self.decode_rate:g} tokens/s"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is simulated. capacity: tokens that a rank's cache holds; None: no limit.

    chunk: tokens of a prefill chunk. max_model_len: the most tokens of a prompt with its output.
    enable_metrics: whether the server was started with the flag that some engines need to serve /metrics.
    api_key: the bearer token that a request must carry, None for none; never shown.
    """

    model: str
    ranks: int
    rule: CacheRule
    times: TimeModel
    faults: Faults
    acting: Acting | None = None
    capacity: int | None = None
    chunk: int = CHUNK
    enable_metrics: bool = False
    max_model_len: int = 1 << 20
    api_key: str | None = field(default=None, repr=False)

    def lines(self) -> list[str]:
        """Return lines that say what is simulated."""
        rule = self.rule
        numbers = f"page {rule.page_size}, hit quantum {rule.hit_quantum}"
        numbers += ", speculative" if rule.speculative else ""
        numbers += f", sliding window {rule.sliding_window}" if rule.sliding_window else ""
        held = "without limit" if self.capacity is None else f"of {counted(self.capacity, 'token')} each"
        return [
            f"model: {self.model}",
            f"cache rule: {rule.name} ({rule.engine}; {numbers}); {counted(self.ranks, 'cache')} {held}",
            f"time model: {self.times}",
            f"faults: {self.faults}" + (f"; {self.acting.words}" if self.acting else ""),
        ]

    @property
    def mark(self) -> str:
        """The text in place of a server's version."""
        return SIMULATION
