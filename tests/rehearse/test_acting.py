"""A rehearsal with a fault of runs: each row finds what the replay of that fault predicts."""

from __future__ import annotations

from itertools import zip_longest

import pytest
from kit.rehearsals import ZERO, rehearsal, small_set

from wlgen.errors import WlgenError
from wlgen.faults._asked import parse_fault, told
from wlgen.faults._replay import replay
from wlgen.rehearse.acting import Acting
from wlgen.rehearse.faults import of_runs
from wlgen.simulate.faulted import planned_run
from wlgen.workload.splits import SPLITS

FAULTS = (
    "lost_cache:ranks=1",
    "lost_cache:from=formal-r00-000001",
    "rank_not_seeded:ranks=0+2",
    "flushed:before=formal-r01-000001,rank=1",
    "sent_twice",
    "row_sent_before:rows=formal-r02-000001",
    "unpinned:in_turn_from=1",
    "hit_quantum:hit_quantum=128",
    "speculative:speculative=true",
    "doubled_figure",
    "decode_figure",
    "preamble:in_front=320",
    "preamble:tokens=64",
    "full_length_seed",
    "lost_cache:group=all,from=formal-r00-000001",
)
SETS = {  # a fault that shows in such a set alone; the others take a set with one prefix
    "preamble:tokens=64": {"name": "zero", "cached": ZERO},
    "full_length_seed": {"name": "window", "engine": "vllm", "window": 128},
}


def in_turn(workload):
    for split in SPLITS:
        by_rank = [list(workload.rows((split,), (rank,))) for rank in workload.manifest.ranks]
        yield from (row for turn in zip_longest(*by_rank) for row in turn if row is not None)


@pytest.mark.parametrize("asked", FAULTS)
def test_each_row_finds_what_simulate_predicts(asked):
    workload = small_set(**SETS.get(asked, {}))
    planned, _ = planned_run(workload, workload.manifest.cache)
    acting = Acting(parse_fault(asked), planned)
    acted = parse_fault(asked).act(planned)
    predicted = {a.id: told(acted, a, cached) for a, cached in replay(acted) if a.row is not None}
    found = {}
    with rehearsal(workload, rule=acting.rule, acting=acting) as running:
        for row in in_turn(workload):
            how = {"max_tokens": row.output_len, "chat_template_kwargs": {"thinking": False}}
            answer = running.chat(row.messages[0].content, routed_dp_rank=row.dp_rank, **how)
            found[row.id] = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert {row_id: found[row_id] for row_id in predicted} == predicted
    changed = predicted != {row.id: row.cached_len for row in in_turn(workload) if row.id in predicted}
    assert changed or asked.startswith("unpinned")  # each rank has the one prefix


def test_what_the_client_does_is_left_to_simulate():
    planned, _ = planned_run(small_set(), small_set().manifest.cache)
    with pytest.raises(WlgenError, match="wlgen simulate DIR --fault in_flight"):
        Acting(parse_fault("in_flight:in_flight=4"), planned)


def test_one_option_names_both_kinds():
    assert of_runs(["lose-cache=1", "lost_cache:ranks=1"])[0] == ["lose-cache=1"]
    with pytest.raises(WlgenError, match="one fault of runs at a time"):
        of_runs(["sent_twice", "lost_cache:ranks=1"])
