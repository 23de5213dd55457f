"""What a preparation is asked to do, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from wlgen.audit.diagnosis import Diagnosis
from wlgen.workload.rows import Finding

Only: TypeAlias = Literal["seed", "check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to do. ranks: of the set. concurrency: ranks at a time. patience: seconds to wait for a flush.

    round: send the checks of this round alone, to a server that holds the seeds; None: prepare for the first
    round that is built. flush: True empties the cache and starts over, False never empties it, None empties
    it unless an earlier run's seeds count. fresh: start over, whatever the journal says. resume: go on
    where the journal ends, though nothing proves that no other request was sent since.
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
    """What one step cost: requests, seconds on the clock, and prompt tokens computed and reused."""

    requests: int = 0
    seconds: float = 0.0
    computed: int = 0
    reused: int = 0


@dataclass(kw_only=True, slots=True)
class Outcome:
    """What a preparation found, and what it cost apart from any measurement.

    prepared: every seed and check asked for was sent and kept its promises. omits_zero: the server leaves
    cached tokens out where they are 0. proofs: what the preflight found. unproved: what PREPARED does not
    vouch for, such as "pins". refused: why nothing was sent, though it was asked for; "" where it was.
    nothing: the set has neither seeds nor checks. counters: the file with the server's counters after the
    checks, which `wlgen audit --counters` reads as BEFORE; "" where there is none.
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
    seed: Cost = field(default_factory=Cost)
    check: Cost = field(default_factory=Cost)
