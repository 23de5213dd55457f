"""The table: the integers of the formal rows, drawn one by one, so that growth adds rows and changes none."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.shaped import UNIFORM, plan_of

from wlgen.plan.rows import RowPlan
from wlgen.plan.table import running

EQUAL = {"body_len": UNIFORM, "output_len": 8, "cached": {"min_ratio": 0.3}}


def formal(**changes: Any) -> list[RowPlan]:
    plan = plan_of(**changes)
    return [row for rank in range(plan.spec.dp_ranks) for row in plan.rows("formal", rank)]


@given(st.lists(st.integers(0, 4), max_size=30))
def test_running_counts_those_before_with_the_same_key(keys):
    assert running(np.array(keys, dtype=np.int64)).tolist() == [
        keys[:i].count(key) for i, key in enumerate(keys)
    ]


def test_rows_are_given_to_the_ranks_in_turn_and_to_the_groups_alike():
    rows = formal(prefix={"shared_by": "group", "groups": 3}, formal={"total": 12})
    assert Counter(row.group for row in rows) == {"g0000": 4, "g0001": 4, "g0002": 4}
    assert Counter(row.dp_rank for row in rows) == {0: 6, 1: 6}


def test_a_group_bound_to_one_rank_is_on_no_other():
    rows = formal(prefix={"shared_by": "group", "groups": 5, "ranks": "one"}, formal={"total": 20})
    assert all(row.dp_rank == int(row.group[1:]) % 2 for row in rows)


@pytest.mark.parametrize("popularity", [{"zipf": 1.0}, {"weights": [60, 30, 20]}])
def test_popular_groups_have_their_share_of_rows(popularity):
    rows = formal(
        prefix={"shared_by": "group", "groups": 3, "popularity": popularity}, formal={"total": 3000}
    )
    counts = Counter(row.group for row in rows)
    for group, share in enumerate((6 / 11, 3 / 11, 2 / 11)):
        assert abs(counts[f"g{group:04d}"] / 3000 - share) < 0.03


def test_classes_by_count_are_exact_and_by_weight_about_so():
    counted = [EQUAL | {"name": "a", "count": 3}, EQUAL | {"name": "b", "count": 7}]
    assert Counter(r.request_class for r in formal(requests=counted, formal={"total": 10})) == {
        "a": 3,
        "b": 7,
    }
    weighed = [EQUAL | {"name": "a", "weight": 3}, EQUAL | {"name": "b", "weight": 1}]
    found = Counter(r.request_class for r in formal(requests=weighed, formal={"total": 2000}))
    assert abs(found["a"] / 2000 - 0.75) < 0.03


def test_levels_nest_in_turn():
    levels = {
        "levels": [{"shared_by": "group", "groups": 2, "tokens": 64}, {"shared_by": "group", "groups": 2}]
    }
    rows = formal(prefix=levels, formal={"total": 16})
    assert Counter(row.group for row in rows) == {f"g000{a}/g000{b}": 4 for a in range(2) for b in range(2)}
