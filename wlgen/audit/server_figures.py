"""What servers say of a whole run: sums against the plan, acceptance of drafts, tiers of hits."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wlgen.audit.ceiling import Ceiling
from wlgen.audit.findings import Promised
from wlgen.audit.given import Given, RequestFiles
from wlgen.audit.moved import movement
from wlgen.errors import Problem
from wlgen.witnesses import TIERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """The sums of one witness, and the plan's sums for the same requests.

    of: the rows with which they are compared. fits: whether the cached tokens are as planned; None if the
    witness does not count exactly these requests.
    """

    witness: str
    of: str
    prompt_tokens: int
    planned_prompt_tokens: int
    cached_tokens: int | None
    planned_cached_tokens: int
    fits: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Speculative decoding over the whole run. None: not observed.

    length: output tokens / verify steps, bonus tokens included. by_slots: accepted drafts / draft slots of a
    fixed width. by_proposals: accepted drafts / drafts that were proposed. tasks: what the rows'
    texts ask for, and what an acceptance length is like on such texts.
    """

    witness: str
    output_tokens: int
    verify_steps: int
    length: float
    by_slots: float | None = None
    by_proposals: float | None = None
    tasks: Mapping[str, str] = field(default_factory=dict)


def sums_of(
    rows: Sequence[Promised],
    asked: Sequence[Promised],
    given: Given,
    found: Ceiling | None,
    files: RequestFiles,
) -> tuple[list[Sums], list[Problem]]:
    """Return the sums of each witness, with the plan's sums for the rows that it may have counted."""
    problems: list[Problem] = []
    rounds = {row.round for row in asked}
    whole = [row for row in rows if row.split.within(row.round, rounds)]
    lots = (("the rows under audit", asked), ("the whole set", whole))
    told = []
    if found is not None and found.observed is not None:
        told.append(_held("counters", found.moved.total.get("prompt_tokens", 0), found.observed, lots))
    if files.read:
        known = files.sums["cached_told"] == files.sums["requests"]
        cached = files.sums["cached_tokens"] if known else None
        told.append(_held("request file", files.sums["prompt_tokens"], cached, lots))
    batches = [0, 0]
    for _, lines in given.logs:
        for line in lines:
            if isinstance(line, Problem):
                problems.append(line)
            else:
                batches[0] += line.computed
                batches[1] += line.cached
    if any(batches):
        told.append(_held("log", sum(batches), batches[1], lots))
    return told, problems


def _held(
    witness: str, prompt: int, cached: int | None, options: Sequence[tuple[str, Sequence[Promised]]]
) -> Sums:
    """Compare a witness's sums with the first lot of rows whose prompts have the same number of tokens."""
    lots = [(of, sum(r.prompt_len for r in rows), sum(r.cached_len for r in rows)) for of, rows in options]
    of, planned_prompt, planned = next((lot for lot in lots if lot[1] == prompt), lots[0])
    return Sums(
        witness=witness,
        of=of,
        prompt_tokens=prompt,
        planned_prompt_tokens=planned_prompt,
        cached_tokens=cached,
        planned_cached_tokens=planned,
        fits=(cached == planned) if prompt == planned_prompt and cached is not None else None,
    )


def acceptance(
    given: Given, files: RequestFiles, tasks: Callable[[], Mapping[str, str]]
) -> Acceptance | None:
    """Return the acceptance of the whole run, from counters, else from request files, else None."""
    found = _acceptance(given, files)
    return None if found is None else dataclasses.replace(found, tasks=tasks())


def _acceptance(given: Given, files: RequestFiles) -> Acceptance | None:
    if given.before is not None and given.after is not None:
        # In a pair the decode side runs the drafts, so the figures come from the servers that count steps.
        total: Counter[str] = Counter()
        for role in ("plain", "prefill", "decode"):
            old = [s for s in given.before.servers if s.role == role]
            new = [s for s in given.after.servers if s.role == role]
            if old and new:
                plain = [dataclasses.replace(s, role="plain") for s in old]
                moved = movement(plain, [dataclasses.replace(s, role="plain") for s in new])
                if role != "prefill":
                    total.update(moved.total)
        if total["drafts"]:
            accepted, drafts = total["accepted_tokens"], total["drafts"]
            proposed = total["proposed_tokens"]
            return Acceptance(
                witness="counters",
                output_tokens=accepted + drafts,
                verify_steps=drafts,
                length=(accepted + drafts) / drafts,
                by_proposals=accepted / proposed if proposed else None,
            )
        if total["verify_steps"]:
            steps, output = total["verify_steps"], total["output_tokens"]
            return Acceptance(
                witness="counters", output_tokens=output, verify_steps=steps, length=output / steps
            )
    records = [record for of_row in files.by_row.values() for record in of_row if record.verify_steps]
    steps = sum(record.verify_steps or 0 for record in records)
    if not steps:
        return None
    output = sum(record.output_tokens or 0 for record in records)
    rated = [r for r in records if r.accept_rate is not None]
    slots = sum((r.accept_rate or 0.0) * (r.verify_steps or 0) for r in rated) / steps
    return Acceptance(
        witness="request file",
        output_tokens=output,
        verify_steps=steps,
        length=output / steps,
        by_slots=slots if len(rated) == len(records) else None,
    )


def tiers_of(found: Ceiling | None, files: RequestFiles) -> dict[str, int]:
    """Return the cached tokens of each tier that a server counts: device, host, storage, external."""
    total: dict[str, int] = defaultdict(int)
    for records in files.by_row.values():
        for tier, count in (records[-1].tiers or {}).items():
            total[tier] += count
    if not total and found is not None:
        for tier in TIERS:
            counted = found.moved.total.get(f"cached_{tier}", found.moved.total.get(f"hit_{tier}"))
            if counted:
                total[tier] = counted
    return dict(total)
