"""What a preparation must do, and what it found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from wlgen.audit.model import Diagnosis
from wlgen.workload.rows import Finding
from wlgen.workload.splits import BEFORE, Split

Only: TypeAlias = Literal["seed", "check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to do.

    ranks: the ranks of the set to prepare. concurrency: how many ranks at a time. patience: seconds to wait
    for a flush. round: send only the checks of this round, to a server that holds the seeds; None: prepare
    for the first round that is built. flush: True: empty the cache and start over; False: never empty it;
    None: empty it unless an earlier run's seeds still count. fresh: start over, whatever the journal says.
    resume: go on where the journal ends, even if nothing proves that no other request was sent since.
    """

    ranks: tuple[int, ...]
    only: Only | None = None
    round: int | None = None
    flush: bool | None = None
    fresh: bool = False
    resume: bool = False
    concurrency: int = 16
    patience: float = 60.0


@dataclass(kw_only=True, slots=True)
class Cost:
    """What one step cost: requests, seconds of clock time, and prompt tokens computed and reused."""

    requests: int = 0
    seconds: float = 0.0
    computed: int = 0
    reused: int = 0


@dataclass(kw_only=True, slots=True)
class Outcome:
    """What a preparation found, and what it cost apart from any measurement.

    prepared: whether every seed and check asked for was sent and kept its promises. omits_zero: whether the
    server leaves cached tokens out if they are 0. proofs: what the preflight found. unproved: what PREPARED
    does not promise, such as "pins". refused: why nothing was sent; "" if rows were sent. nothing: whether
    the set has neither seeds nor checks. counters: the file with the server's counters after the checks,
    which `wlgen audit --counters` reads as BEFORE; "" if there is none. steps: what each split cost that is
    sent before the formal rows.
    """

    prepared: bool = False
    nothing: bool = False
    omits_zero: bool = False
    proofs: tuple[str, ...] = ()
    unproved: list[str] = field(default_factory=list)
    refused: str = ""
    counters: str = ""
    findings: list[Finding] = field(default_factory=list)
    diagnosis: list[Diagnosis] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    flush: Cost = field(default_factory=Cost)
    steps: dict[Split, Cost] = field(default_factory=lambda: {split: Cost() for split in BEFORE})
