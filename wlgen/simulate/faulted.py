"""A built set replayed with a fault in it, by the same code with which an audit explains a run."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from wlgen.audit.as_seen import RowSeen, Scene
from wlgen.audit.findings import Promised
from wlgen.build.outline import planned_chains
from wlgen.cache.ranks import Replayed
from wlgen.cache.rule import CacheRule
from wlgen.errors import error
from wlgen.faults import Run
from wlgen.faults._asked import parse_fault, told
from wlgen.faults._replay import replay
from wlgen.simulate.hits import Pass
from wlgen.simulate.input import limits, promised
from wlgen.simulate.replay import Report, hits_file, pass_report
from wlgen.spec.rule_choice import RuleChoice
from wlgen.workload.opened import Workload, open_workload, prove_files
from wlgen.workload.writer import check_output


def planned_run(workload: Workload, rule: CacheRule) -> tuple[Run, list[Promised]]:
    """Return the run of a built set's first round as planned, and its measured rows by their number."""
    round_ = min(workload.manifest.rounds or (0,))
    bound_of = cache(workload.manifest.bound_of)
    rows = [
        Promised.of(row, bound_of(row.request_class))
        for row in workload.rows()
        if row.split.within(row.round, (round_,))
    ]
    measured = [row for row in rows if row.split.measured]
    scene = Scene(
        rule=rule,
        audited=[RowSeen(row=row, results=(), cached=None) for row in measured],
        before=[row for row in rows if not row.split.measured],
        chains=lambda: planned_chains(workload),
        ranks=tuple(workload.manifest.ranks),
    )
    return scene.view().run, measured


def replay_fault(source: Path, choice: RuleChoice, text: str, *, out: Path | None) -> Report:
    """Replay the first round of a built set with a fault, NAME[:KEY=VALUE,...]; `out` gets a line a row."""
    if not source.is_dir():
        raise error(str(source), expected="a built set beside --fault", found="no folder")
    wanted = parse_fault(text)
    workload = open_workload(source)
    if out is not None:
        check_output(out, source)
    prove_files(workload)
    own = workload.manifest.cache
    rule = choice.resolve(own)
    run, rows = planned_run(workload, rule)
    acted, figures = wanted.act(run), Pass()
    with hits_file(out) as write:
        for asked, cached in replay(acted):
            figure = told(acted, asked, cached)
            if figure is None:
                continue
            row = None if asked.row is None else rows[asked.row]
            hit = Replayed(
                id=asked.id,
                dp_rank=asked.rank,
                split=asked.split,
                prompt_len=asked.prompt_len,
                cached_len=figure,
                promised=None if row is None else promised(row, row.bound),
                bound=None if row is None else limits(row, row.bound),
            )
            figures.add(hit)
            write(hit)
    return Report(
        rule=acted.rule,
        own_rule=acted.rule == own,
        capacity=None,
        passes=(pass_report(figures),),
        working_set={},
        evictions=(),
        reading=(f"the fault {wanted.text}: {wanted.words}",),
        in_flight=acted.in_flight,
    )
