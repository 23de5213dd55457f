"""Classes: levels in tokens, pages or a ratio of the longest prompt, solved in whole pages and quanta."""

from __future__ import annotations

from typing import Any

import pytest
from kit.shaped import RULES, plan_of

from wlgen.plan.rows import RowPlan


def first(**changes: Any) -> RowPlan:
    return next(plan_of(**changes).rows("formal", 0))


def chain(row: RowPlan) -> list[int]:
    return [s.tokens for m in row.messages for s in m.segments if s.kept]


HEAD = 14  # tokens of the chat framing in front of the first level, of 21 in all


@pytest.mark.parametrize(
    ("level", "end"), [({"tokens": 64}, HEAD + 64), ({"pages": 4}, 64), ({"ratio": 0.25}, 80)]
)
def test_pages_and_ratios_say_where_a_level_ends_in_the_prompt_and_tokens_how_long_it_is(level, end):
    row = first(prefix={"levels": [{"shared_by": "all"} | level, {"shared_by": "rank"}]})
    assert row.prompt_len - row.body_len == 21
    assert HEAD + chain(row)[0] == end


def test_the_last_level_is_as_long_as_the_bound_of_each_row_asks():
    levels = {"levels": [{"shared_by": "all", "tokens": 64}, {"shared_by": "rank"}]}
    for rule in RULES.values():
        for row in plan_of(prefix=levels, body_len={"values": [200, 320]}, cache_rule=rule).rows("formal", 0):
            quantum = rule.get("hit_quantum", rule["page_size"])
            assert row.cached_len * 2 >= row.prompt_len > (row.cached_len - quantum) * 2
            assert sum(chain(row)) + HEAD == row.shared_len


def test_a_row_whose_bound_asks_for_less_leaves_within_a_level():
    levels = {"levels": [{"shared_by": "all", "tokens": 200}, {"shared_by": "rank"}]}
    short, long = (first(prefix=levels, body_len=n) for n in (300, 600))
    assert len(chain(short)) == 1
    assert len(chain(long)) == 2
    assert chain(short)[0] < 200 == chain(long)[0]


def test_a_level_of_fixed_length_caps_what_an_aggregate_takes():
    cached = {"aggregate": 0.25, "tolerance": 0.1}
    plan = plan_of(cached=cached, prefix={"shared_by": "all", "tokens": 100})
    assert all(sum(chain(row)) <= 100 for rank in range(2) for row in plan.rows("formal", rank))
