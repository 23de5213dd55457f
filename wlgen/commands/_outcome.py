"""The words of a preparation's outcome."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

from wlgen.audit.findings import MEANING
from wlgen.commands._answer import shape_of
from wlgen.pages import percent_of
from wlgen.server.outcome import Cost, Outcome, Wanted
from wlgen.workload.opened import Workload
from wlgen.workload.splits import BEFORE

_SHOWN = 16


def outcome_keys(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as the keys of the command's answer; each step has its own, such as "seed"."""
    fields = dataclasses.asdict(outcome)
    steps: dict[str, Any] = fields.pop("steps")
    return fields | steps


def outcome_shape() -> Any:
    """Return the model of what `wlgen prepare --json` prints."""
    return shape_of("prepare", Outcome, steps=None, **dict.fromkeys(BEFORE, Cost))


def outcome_text(outcome: Outcome, workload: Workload, wanted: Wanted) -> str:
    """Return the summary: what was proved, what it cost, what was found, and what comes next."""
    lines = [f"preflight  {proof}" for proof in outcome.proofs]
    lines += [f"note       {note}" for note in outcome.notes]
    if outcome.flush.requests:
        lines.append(f"flush      {outcome.flush.seconds:.2f} s")
    lines += [_cost(f"{split}s", cost) for split, cost in outcome.steps.items() if cost.requests]
    if outcome.counters:
        lines.append(f"counters   {outcome.counters}: BEFORE of `wlgen audit --counters BEFORE AFTER`")
    if outcome.findings:
        lines += ["", *_findings(outcome)]
    elif outcome.prepared and wanted.only is None:
        folder = shlex.quote(str(workload.folder))
        built = workload.manifest.rounds
        of_round = f" --round {min(built) if wanted.round is None else wanted.round}" if built else ""
        lines += [
            (
                f"next       wlgen export {folder} --to {_client(workload)} "
                f"--split formal{of_round} --output formal"
            ),
            "           and send the rows once, as its RUN.md says; nothing above is a measurement",
        ]
        if outcome.omits_zero:
            lines.append("note       this server leaves out cached tokens of 0: audit with --absent-is-zero")
    return "\n".join([*lines, "", verdict(outcome, workload, wanted)])


def verdict(outcome: Outcome, workload: Workload, wanted: Wanted) -> str:
    """Return the last line: whether the server is prepared, and what that does not prove."""
    if outcome.refused:
        return f"NOT PREPARED: {outcome.refused}. Nothing was sent."
    if outcome.findings:
        return "STOPPED: nothing formal was sent."
    unproved = f", {' and '.join(outcome.unproved)} unproved" if outcome.unproved else ""
    if outcome.nothing:
        emptied = "the cache was emptied" if outcome.flush.requests else "nothing was sent"
        return f"NOTHING TO PREPARE{unproved}: the set has no seeds and no checks; {emptied}."
    if wanted.only is not None:
        return f"Only {wanted.only}s were sent{unproved}, as --only says: nothing formal was sent."
    promises = workload.manifest.promises
    ratio = f"at least {percent_of(promises.per_request_min, promises.configured)} of each prompt cached"
    return f"PREPARED{unproved}: every check kept its promises ({ratio}). Nothing formal was sent."


def _cost(name: str, cost: Cost) -> str:
    tokens = f"{cost.computed:,} prompt tokens computed, {cost.reused:,} reused"
    return f"{name:10} {cost.requests} in {cost.seconds:.2f} s: {tokens}"


def _findings(outcome: Outcome) -> list[str]:
    lines = [
        f"FINDING    {f.id}: {MEANING[f.promise]}: expected {f.expected}, got {f.got}"
        for f in outcome.findings[:_SHOWN]
    ]
    if len(outcome.findings) > _SHOWN:
        lines.append(f"           and {len(outcome.findings) - _SHOWN} more")
    lines += [f"CAUSE      {d.cause}: {d.evidence}. {d.remedy}" for d in outcome.diagnosis]
    return lines


def _client(workload: Workload) -> str:
    # Both clients pin each row and keep cached tokens, but AISBench sends only a single user message.
    classes = workload.manifest.classes
    several = any(of.get("session") or of.get("prefix", {}).get("message") == "system" for of in classes)
    return "aiperf" if several else "aisbench"
