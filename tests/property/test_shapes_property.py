"""Whatever shape a spec asks for, every row and every two rows keep their promises, or it is refused."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from kit.sets import chat, raw
from kit.shaped import RULES, broken, broken_pairs, built, bytes_of, clashes, plan_of, rows_of
from kit.verified import verify

from wlgen.errors import WlgenError

pytestmark = pytest.mark.usefixtures("small_bank")

lengths = st.one_of(
    st.integers(150, 400),
    st.just({"uniform": [180, 400]}),
    st.just({"choice": [200, 390], "weights": [1, 2]}),
    st.just({"normal": {"mean": 300, "stddev": 60, "min": 200, "max": 400}}),
    st.just({"histogram": [{"low": 200, "high": 210, "count": 1}, {"low": 380, "high": 400, "count": 2}]}),
    st.lists(st.integers(150, 400), min_size=1, max_size=3).map(lambda values: {"values": values}),
)
bounds = st.one_of(
    st.integers(5, 80).map(lambda n: {"min_ratio": n / 100}),
    st.integers(1, 8).map(lambda n: {"aggregate": n / 10, "tolerance": 0.08}),
    st.just({"cold": True}),
)
popularity = st.sampled_from([None, {"zipf": 1.1}, {"weights": [1, 4]}])


@st.composite
def groups(draw: st.DrawFn) -> dict[str, Any]:
    level = {"shared_by": "group", "groups": 2, "ranks": draw(st.sampled_from(["all", "one"]))}
    chosen = draw(popularity)
    return level | ({"popularity": chosen} if chosen else {})


@st.composite
def prefixes(draw: st.DrawFn, *, cold: bool) -> dict[str, Any]:
    last = draw(st.one_of(groups(), st.sampled_from([{"shared_by": "all"}, {"shared_by": "rank"}])))
    if cold or draw(st.booleans()):
        last = last | draw(st.sampled_from([{"tokens": 96}, {"pages": 6}, {"ratio": 0.3}]))
    if last["shared_by"] == "all" or draw(st.booleans()):
        return last | ({"message": "system"} if draw(st.booleans()) else {})
    return {"levels": [{"shared_by": "all", "tokens": draw(st.sampled_from([20, 64, 200]))}, last]}


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, Any]:
    """Specs of at most 24 formal rows of at most 500 tokens."""
    cached = draw(bounds)
    cold = "cold" in cached
    asked: dict[str, Any] = {
        "encoding": draw(st.sampled_from([chat(), chat("llama3"), chat("mistral")])),
        "cache_rule": RULES[draw(st.sampled_from(sorted(RULES)))],
        "dp_ranks": draw(st.integers(1, 3)),
        "body_len": draw(lengths),
        "cached": cached,
        "prefix": draw(prefixes(cold=cold)),
        "task": "words",
        "formal": {"total": draw(st.sampled_from([6, 12]))},
        "check": {"per_rank": 0 if cold else draw(st.integers(0, 2))},
        "order": draw(st.sampled_from(["generated", "group", "interleaved", "short_to_long"])),
        "rounds": 1 if cold else draw(st.sampled_from([1, 1, 2])),
    }
    if "message" not in asked["prefix"] and draw(st.booleans()):
        asked["encoding"] = raw()
    elif isinstance(asked["body_len"], int) and draw(st.booleans()):
        asked["requests"] = {"session": {"turns": 2, "user_len": 30, "assistant_len": 20}}
    if draw(st.booleans()):
        asked["arrivals"] = draw(st.sampled_from([{"rate": 5}, {"rate": 5, "process": "poisson"}]))
    return asked


def kept(asked: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as place:
        try:
            workload = built(Path(place), **asked)
        except WlgenError as failure:
            event(f"refused: {str(failure).partition('expected')[2][:30]}")
            return
        event("built")
        assert verify(workload, full=True).findings == []
        assert broken(workload) == []
        if "requests" not in asked:
            system = "message" in asked["prefix"]
            assert broken_pairs(workload, gap=gap_of(asked) if system else 0) == []
        plan = plan_of(**asked)
        assert clashes(plan) == []
        planned = [row for file in plan.files() for row in plan.rows(*file)]
        found = rows_of(workload)
        assert [row["cached_len"] for row in found] == [row.cached_len for row in planned]
        assert len({str(row["messages"]) for row in found}) == len(found)
        rank = asked["dp_ranks"] - 1
        alone = bytes_of(built(Path(place) / "alone", only=([rank], []), **asked))
        assert alone.items() <= bytes_of(workload).items()


def gap_of(asked: dict[str, Any]) -> int:
    """Return the framing behind a system message."""
    frame = plan_of(**asked).frame(("system", "user"))
    return len(frame.ids[1])


@settings(max_examples=12, deadline=None)
@given(shapes())
def test_a_shape_keeps_every_promise_or_is_refused(asked):
    kept(asked)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(shapes())
def test_many_shapes_keep_every_promise_or_are_refused(asked):
    kept(asked)
