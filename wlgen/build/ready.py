"""The blueprint: a spec ready to be built, with everything loaded on which its text depends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from wlgen import encodings, registry, tasks
from wlgen.build.compose import Composer
from wlgen.build.openings import crowded_rows, surely_crowded
from wlgen.encodings import Encoding
from wlgen.errors import WlgenError
from wlgen.plan.rows import LEAD, Plan
from wlgen.plan.solve import solve
from wlgen.spec.model import Spec
from wlgen.tasks import Task
from wlgen.text.lexicon import Lexicon


class Crowding(NamedTuple):
    """How a plan is numbered, and how many rows share a lead: what a walk over all its rows finds."""

    dense: bool
    crowded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """A spec with its encoding, lexicon and plan, and the task of each class.

    crowded: how many rows begin their own part with the same token as an earlier row of their group.
    """

    spec: Spec
    encoding: Encoding
    lexicon: Lexicon
    tasks: tuple[Task, ...]
    plan: Plan
    crowded: int

    @property
    def content_sha256(self) -> str | None:
        """The hash of the text that the tasks read from files or data sets; None if they read none."""
        return _together(task.content_sha256 for task in self.tasks)

    @property
    def crowding(self) -> Crowding:
        """What another process needs not find again."""
        return Crowding(self.plan.source.numbering.dense, self.crowded)

    def composer(self) -> Composer:
        """Return a composer of the plan's rows."""
        return Composer(self.lexicon, self.tasks, self.spec.random_seed)


def blueprint(spec: Spec, encoding: Encoding | None = None, *, crowding: Crowding | None = None) -> Blueprint:
    """Load what a spec names, and solve its plan; WlgenError if one of the two is impossible.

    crowding: what another process found of the same spec. To find it takes 13 s if 1,000,000 rows crowd.
    """
    encoding = encoding or load_encoding(spec)
    lexicon = Lexicon(encoding, spec.random_seed)
    made = tuple(_task(spec, number, lexicon) for number in range(len(spec.requests)))
    plan = solve(spec, encoding, lambda number, output_len: LEAD + made[number].least_own(output_len))
    if crowding is None:
        plan, crowded = _numbered(plan, lexicon)
    else:
        crowded = crowding.crowded
        plan = replace(plan, source=plan.source.densely()) if crowding.dense else plan
    return Blueprint(spec=spec, encoding=encoding, lexicon=lexicon, tasks=made, plan=plan, crowded=crowded)


def _numbered(plan: Plan, lexicon: Lexicon) -> tuple[Plan, int]:
    """Return the plan, and how many of its rows share a lead with another row.

    The plan is numbered densely only if its lanes run out of first tokens. WlgenError if even then two rows
    have the same first tokens.
    """
    failure = None
    try:
        crowded = crowded_rows(plan, lexicon)
    except WlgenError as found:
        crowded, failure = 1, found
    if not crowded:
        return plan, 0
    if failure is None and surely_crowded(plan, lexicon):
        return plan, crowded
    closer = replace(plan, source=plan.source.densely())
    try:
        left = crowded_rows(closer, lexicon)
    except WlgenError:
        left = crowded
    if left == 0 or (failure and left < crowded):
        return closer, left
    if failure:
        raise failure
    return plan, crowded


def _task(spec: Spec, number: int, lexicon: Lexicon) -> Task:
    kind, place = spec.requests[number].task, _task_place(spec, number)
    module = registry.load(tasks, kind.name, place=place)
    task: Task = module.make(kind.options, lexicon, place=place, folder=spec.folder)
    return task


def _task_place(spec: Spec, number: int) -> str:
    named = [number] if spec.requests[number].name else []
    return spec.at("requests", *named, "task")


def load_encoding(spec: Spec) -> Encoding:
    """Load the spec's encoding."""
    place = spec.at("encoding")
    module = registry.load(encodings, spec.encoding.name, place=place)
    encoding: Encoding = module.load(spec.encoding.options, place=place)
    return encoding


def content_sha256(spec: Spec) -> str | None:
    """Return the hash of the text that the spec's tasks read from files or data sets, as it is now."""
    hashes = []
    for number, kind in enumerate(of.task for of in spec.requests):
        place = _task_place(spec, number)
        module = registry.load(tasks, kind.name, place=place)
        if hasattr(module, "content_sha256"):
            hashes.append(module.content_sha256(kind.options, place=place, folder=spec.folder))
    return _together(hashes)


def _together(hashes: Iterable[str | None]) -> str | None:
    return ",".join(h for h in hashes if h) or None
