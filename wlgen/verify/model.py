"""What a verification found."""

from __future__ import annotations

from dataclasses import dataclass, field

from wlgen.plan.rows import Plan
from wlgen.workload.opened import Workload
from wlgen.workload.rows import Finding, row_file


@dataclass(slots=True, kw_only=True)
class Verification:
    """Every finding, and how much was read.

    rows, tokens: how many rows were read, and how many ids their prompts have. composed: how many of the rows
    have the bytes that the spec composes to; None if nothing was composed. missing_ranks, missing_rounds:
    those of the spec that are not in this folder, for example the ranks that another machine builds.
    """

    findings: list[Finding] = field(default_factory=list)
    rows: int = 0
    tokens: int = 0
    composed: int | None = None
    missing_ranks: list[int] = field(default_factory=list)
    missing_rounds: list[int] = field(default_factory=list)

    def note_missing(self, workload: Workload, plan: Plan) -> None:
        """Note the ranks and rounds of the plan that the set does not hold."""
        listed = {proof.path for proof in workload.manifest.files}
        there = [file for file in plan.files() if row_file(*file) in listed]
        ranks, rounds = {rank for _, rank, _ in there}, {k for split, _, k in there if split.each_round}
        self.missing_ranks = [rank for rank in range(plan.spec.dp_ranks) if rank not in ranks]
        self.missing_rounds = [round_ for round_ in range(plan.spec.rounds) if round_ not in rounds]
