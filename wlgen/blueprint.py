"""The blueprint: a spec made ready to be built, with all that its text depends on loaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wlgen import encodings, registry, tasks
from wlgen.compose import Composer
from wlgen.encodings import Encoding
from wlgen.lexicon import Lexicon
from wlgen.openings import crowded_rows
from wlgen.plan import LEAD, Plan
from wlgen.solve import solve
from wlgen.spec import Kind, Spec
from wlgen.tasks import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """A spec made ready: its encoding, lexicon, plan, and the task of each class.

    crowded: rows that share their first token.
    """

    spec: Spec
    encoding: Encoding
    lexicon: Lexicon
    tasks: tuple[Task, ...]
    plan: Plan
    crowded: int

    @property
    def content_sha256(self) -> str | None:
        """The hash of the text that the tasks read from outside of the spec, None where they read none."""
        return _together(task.content_sha256 for task in self.tasks)

    def composer(self) -> Composer:
        """Return a composer of the plan's rows."""
        return Composer(self.lexicon, self.tasks, self.spec.random_seed)


def blueprint(spec: Spec, encoding: Encoding | None = None) -> Blueprint:
    """Load what a spec names and solve its plan; WlgenError where either is impossible."""
    encoding = encoding or load_encoding(spec)
    lexicon = Lexicon(encoding, spec.random_seed)
    made = tuple(_task(of.task, lexicon, spec.place) for of in spec.requests)
    plan = solve(spec, encoding, lambda number, output_len: LEAD + made[number].least_own(output_len))
    crowded = crowded_rows(plan, lexicon)
    return Blueprint(spec=spec, encoding=encoding, lexicon=lexicon, tasks=made, plan=plan, crowded=crowded)


def _task(kind: Kind, lexicon: Lexicon, place: str) -> Task:
    task: Task = registry.load(tasks, kind.name, place=place).make(kind.options, lexicon, place=place)
    return task


def load_encoding(spec: Spec) -> Encoding:
    """Load the spec's encoding."""
    module = registry.load(encodings, spec.encoding.name, place=spec.place)
    encoding: Encoding = module.load(spec.encoding.options, place=spec.place)
    return encoding


def content_sha256(spec: Spec) -> str | None:
    """Return the hash of the text that the spec's tasks read from outside of the spec, as it is now."""
    kinds = [of.task for of in spec.requests]
    modules = [registry.load(tasks, kind.name, place=spec.place) for kind in kinds]
    return _together(
        module.content_sha256(kind.options, place=spec.place)
        for kind, module in zip(kinds, modules, strict=True)
        if hasattr(module, "content_sha256")
    )


def _together(hashes: Iterable[str | None]) -> str | None:
    return ",".join(h for h in hashes if h) or None
