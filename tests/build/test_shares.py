"""The files of a build are shared out by whole ranks, evenly, and not at all where there is little to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from kit.sets import spec_of

from wlgen.build.build import build
from wlgen.build.compose import Composed, Composer, Piece
from wlgen.build.evidence import method_of
from wlgen.build.ready import Blueprint, blueprint
from wlgen.build.shares import Share, share_out
from wlgen.errors import Problem, WlgenError
from wlgen.plan.predict import gate
from wlgen.plan.rows import Plan, RowPlan
from wlgen.text.lexicon import Chunk

SPEC = spec_of(dp_ranks=3, formal={"total": 40})


def shares_of(ready: Blueprint, folder: Path, jobs: int | None) -> list[Share]:
    method = method_of(ready.lexicon, ready.tasks)
    return share_out(ready.plan, folder, list(ready.plan.files()), method, jobs)


def test_a_share_is_whole_ranks_and_shares_weigh_about_the_same(tmp_path):
    ready = blueprint(spec_of(dp_ranks=7, formal={"total": 70}))
    shares = shares_of(ready, tmp_path, 3)
    assert sorted(rank for share in shares for rank in share.ranks) == list(range(7))
    assert sorted(len(share.ranks) for share in shares) == [2, 2, 3]
    assert sum(len(share.files) for share in shares) == len(list(ready.plan.files()))


@pytest.mark.parametrize(("jobs", "shares"), [(1, 1), (2, 2), (50, 3), (None, 1)])
def test_there_are_no_more_shares_than_ranks_and_one_of_little_work(tmp_path, jobs, shares):
    assert len(shares_of(blueprint(SPEC), tmp_path, jobs)) == shares


def test_work_of_minutes_is_shared_by_as_many_as_there_are_cores(tmp_path, monkeypatch):
    ready = blueprint(SPEC)
    monkeypatch.setattr("wlgen.build.shares.SECONDS_A_ROW", 10.0)
    monkeypatch.setattr("wlgen.build.shares._cores", lambda: 2)
    assert len(shares_of(ready, tmp_path, None)) == 2


def test_the_rows_that_are_chosen_are_encoded_whole(tmp_path, monkeypatch):
    """A drift in the middle of a row that no seam shows."""
    ready = blueprint(SPEC)
    (share,) = shares_of(ready, tmp_path, 1)
    chosen = "formal-r00-000003"  # one that is not chosen by itself
    compose = Composer.compose

    def drifting(self: Composer, plan: RowPlan) -> Composed:
        row = compose(self, plan)
        if plan.id != chosen:
            return row
        own = row.pieces[0][-1]
        middle = own.text.index(" the ", len(own.text) // 4)
        text = own.text[:middle] + " thee " + own.text[middle + 5 :]
        piece = Piece(own.segment, Chunk(ids=own.ids, text=text))
        return replace(row, pieces=((*row.pieces[0][:-1], piece),))

    monkeypatch.setattr(Composer, "compose", drifting)
    share.write(ready, lambda _row: False, lambda _rows: None)
    with pytest.raises(WlgenError, match=f"row {chosen}: expected a text that the tokenizer"):
        share.write(ready, lambda row: row.id == chosen, lambda _rows: None)


def test_a_plan_that_its_caches_do_not_keep_is_refused():
    plan = blueprint(SPEC).plan

    class Wrong:
        count, rows = (
            plan.source.count,
            staticmethod(lambda *file: (_more(row) for row in plan.source.rows(*file))),
        )

    def _more(row: RowPlan) -> RowPlan:
        return replace(row, cached_len=row.cached_len + 16) if row.id == "formal-r01-000002" else row

    wrong = replace(plan, source=Wrong())
    gate(plan, range(3))
    gate(wrong, [0, 2])
    with pytest.raises(
        WlgenError, match="row formal-r01-000002 to find 192 of its 341 tokens cached, found 176"
    ):
        gate(wrong, [1])


def test_a_build_gates_what_it_writes(tmp_path, monkeypatch):
    def refuse(_plan: Plan, ranks: Sequence[int]) -> None:
        raise WlgenError(Problem(place="gate", expected="", found=str(list(ranks))))

    monkeypatch.setattr("wlgen.build.build.gate", refuse)
    with pytest.raises(WlgenError, match=r"\[0, 2\]"):
        build(SPEC, tmp_path, ranks=[0, 2])
    assert not (tmp_path / "small").exists()
