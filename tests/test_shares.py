"""The files of a build are shared out by whole ranks, evenly, and not at all where there is little to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from sets import spec_of

from wlgen.blueprint import Blueprint, blueprint
from wlgen.evidence import method_of
from wlgen.shares import Share, share_out

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
    monkeypatch.setattr("wlgen.shares.SECONDS_A_ROW", 10.0)
    monkeypatch.setattr("wlgen.shares._cores", lambda: 2)
    assert len(shares_of(ready, tmp_path, None)) == 2
