"""One row of a set compared with its plan, and the promises of all formal rows together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wlgen.errors import Problem, printable
from wlgen.plan.rows import Plan, RowPlan
from wlgen.workload.manifest import MANIFEST
from wlgen.workload.opened import Workload
from wlgen.workload.rows import KEYS, Finding, Row, row_file
from wlgen.workload.splits import MEASURED


def differences(planned: RowPlan, row: Row) -> Iterator[Finding]:
    """Yield each key in which a row differs from the row that the spec plans in its place."""
    for name in (key for key in KEYS if key not in ("messages", "prompt_sha256")):
        expected, got = getattr(planned, name), getattr(row, name)
        if expected != got:
            yield Finding(id=row.id, promise=name, expected=expected, got=got)
    roles = [m.role for m in planned.messages], [m.role for m in row.messages]
    if roles[0] != roles[1]:
        yield Finding(id=row.id, promise="messages", expected=str(roles[0]), got=str(roles[1]))


def unreadable(problem: Problem) -> Finding:
    """Return the finding for a line that is not a row."""
    return Finding(id=problem.place, promise="row", expected=problem.expected, got=printable(problem.found))


def other_bytes(name: str) -> Finding:
    """Return the finding for a file or line whose values are right and whose bytes are not."""
    got = "other bytes, such as a key that stands twice"
    return Finding(id=name, promise="bytes", expected="the bytes that `wlgen build` writes", got=got)


def check_promises(workload: Workload, plan: Plan) -> Iterator[Finding]:
    """Yield a finding if the manifest's three promises are not those of the plan's formal rows in round 0.

    A set that holds only some ranks states the promises of the whole plan.
    """
    ranks, listed = range(plan.spec.dp_ranks), {proof.path for proof in workload.manifest.files}
    expected = plan.promises
    if all(row_file(s, r, 0) in listed or not plan.count(s, r) for s in MEASURED for r in ranks):
        cached = prompt = 0
        least = 1.0
        for row in (row for s in MEASURED for rank in ranks for row in plan.rows(s, rank)):
            cached, prompt = cached + row.cached_len, prompt + row.prompt_len
            least = min(least, row.cached_len / row.prompt_len)
        expected = replace(expected, aggregate=cached / max(1, prompt), per_request_min=least)
    if workload.manifest.promises != expected:
        got = str(workload.manifest.promises)
        yield Finding(id=MANIFEST, promise="promises", expected=str(expected), got=got)
