"""Sessions: each turn is exact after framing, and what it finds cached is what a server finds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from kit.oracle import shared
from kit.shaped import (
    ANSWER,
    RULES,
    broken,
    built,
    ids_of,
    plan_of,
    promises,
    retold,
    rewrite,
    rows_of,
)
from kit.verified import verify

from wlgen.engines import new_cache
from wlgen.workload.opened import Workload

pytestmark = pytest.mark.usefixtures("small_bank")

SESSION = {"turns": 3, "user_len": 40, "assistant_len": 30, "think_ms": 500}
ASKED: dict[str, Any] = {"body_len": 320, "requests": {"session": SESSION}, "formal": {"total": 12}}
PREFIXES: dict[str, dict[str, Any]] = {
    "user": {"shared_by": "all"},
    "system": {"shared_by": "group", "groups": 2, "message": "system"},
}


@pytest.fixture(scope="module", params=PREFIXES)
def chat_set(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workload:
    return built(tmp_path_factory.mktemp("chat"), **ASKED, prefix=PREFIXES[request.param])


def test_each_turn_is_exact_and_finds_what_it_says(chat_set):
    assert verify(chat_set, full=True).findings == []
    assert broken(chat_set) == []


def turns_of(workload: Workload) -> dict[str, list[dict[str, Any]]]:
    sessions: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of(workload, "formal"):
        sessions.setdefault(row["session"], []).append(row)
    return sessions


def test_a_turn_sends_all_messages_before_it_again_and_shares_what_it_says(chat_set):
    for rows in turns_of(chat_set).values():
        assert [row["turn"] for row in rows] == [0, 1, 2]
        assert len({row["dp_rank"] for row in rows}) == 1
        for before, row in pairwise(rows):
            assert row["messages"][: len(before["messages"])] == before["messages"]
            assert [m["role"] for m in row["messages"][-2:]] == ["assistant", "user"]
            assert shared(ids_of(chat_set, before), ids_of(chat_set, row)) == row["shared_len"]
            assert row["timestamp_ms"] - before["timestamp_ms"] == 500


def test_two_sessions_share_the_prefix_alone(chat_set):
    first, *others = [rows[-1] for rows in turns_of(chat_set).values()]
    opening = next(iter(turns_of(chat_set).values()))[0]["shared_len"]
    for other in others:
        both = shared(ids_of(chat_set, first), ids_of(chat_set, other))
        assert both == opening if other["group"] == first["group"] else both < 16


def test_the_lengths_of_a_turn_are_those_asked_for(chat_set):
    for rows in turns_of(chat_set).values():
        assert [row["body_len"] for row in rows] == [320, 390, 460]


@pytest.mark.parametrize("rule", RULES)
def test_with_the_recorded_answers_each_turn_finds_cached_len_recorded(rule, tmp_path):
    """The server keeps its own answer behind the prompt, in the ids that the next turn sends again."""
    workload = built(tmp_path, **ASKED, prefix=PREFIXES["user"], cache_rule=RULES[rule], dp_ranks=1)
    cache = new_cache(workload.manifest.cache)
    rows = rows_of(workload, "seed", "formal")
    prompts = {(row.get("session"), row.get("turn")): ids_of(workload, row) for row in rows}
    for row in rows:
        ids = ids_of(workload, row)
        match = cache.match(np.array(ids, dtype=np.uint32))
        if row["split"] == "formal":
            assert match.cached_len == row["cached_len_recorded"], row["id"]
            assert row["cached_len_recorded"] >= row["cached_len"]
        following = prompts.get((row.get("session"), (row.get("turn") or 0) + 1), [])[len(ids) :][:30]
        answer = following if row["split"] == "formal" else []
        cache.insert(match, np.append(np.array(answer, dtype=np.uint32), ANSWER))
    more = any(row["cached_len_recorded"] > row["cached_len"] for row in rows if row["split"] == "formal")
    assert more == (rule != "hybrid")  # an answer of 30 tokens may fill no quantum of 64


def test_checks_and_seeds_are_of_no_session(chat_set):
    for row in rows_of(chat_set, "seed", "check"):
        assert not {"session", "turn", "timestamp_ms", "cached_len_recorded"} & set(row)


def test_sessions_are_interleaved():
    rows = list(plan_of(**ASKED).rows("formal", 0))
    assert [row.turn for row in rows] == [0, 0, 1, 1, 2, 2]


def test_a_later_round_has_other_conversations(tmp_path):
    workload = built(tmp_path, **ASKED, rounds=2)
    texts = [row["messages"][-1]["content"] for row in rows_of(workload, "check", "formal")]
    assert len(texts) == 2 * (12 + 2) == len(set(texts))
    assert verify(workload, full=True).findings == []


@pytest.mark.parametrize("message", [1, 2])
def test_another_turns_text_is_found(chat_set, copy_of, message):
    workload = copy_of(chat_set)
    rows = rows_of(workload, "formal")
    mine = [row for row in rows if row["dp_rank"] == 0]
    row = next(r for r in mine if r["turn"] == 2)
    other = next(r for r in mine if r["turn"] == 2 and r["session"] != row["session"])
    messages = [dict(m) for m in row["messages"]]
    messages[message] = other["messages"][message]
    mine[mine.index(row)] = retold(workload, row, messages)
    found = promises(verify(rewrite(workload, "formal/rank-00.jsonl", mine), full=True).findings)
    assert (row["id"], "shared_len") in found
