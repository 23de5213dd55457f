"""Run by the engines' own Python: schedule prompts with SGLang's PrefillAdder.

In, a JSON list on stdin: {"chunk", "page_size", "max_requests", "max_prefill_tokens", "prompts":
[[prompt_len, cached_len]]}. Out: the rounds of each, every round the tokens of its requests.
"""

from __future__ import annotations

import json
import sys
from array import array

import replay_sglang
import torch
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.managers.schedule_policy import AddReqResult, PrefillAdder
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.sampling.sampling_params import SamplingParams


def rounds(case):
    """Return the rounds of one case, as the scheduler's loop over its waiting queue makes them."""
    rule = {"page_size": case["page_size"], "hit_quantum": case["page_size"], "sliding_window": 0}
    size = case["page_size"] * 1_000_000
    allocator = PagedTokenToKVPoolAllocator(size, case["page_size"], torch.int8, "cpu", None, False)
    tree = replay_sglang.cache(rule | {"speculative": False, "tree": "python"}, allocator)
    waiting = [_request(tree, *prompt) for prompt in case["prompts"]]
    carried, found = None, []
    while carried or waiting:
        adder = PrefillAdder(
            page_size=case["page_size"],
            tree_cache=tree,
            token_to_kv_pool_allocator=tree.token_to_kv_pool_allocator,
            running_batch=None,
            new_token_ratio=1.0,
            rem_input_tokens=case["max_prefill_tokens"],
            rem_chunk_tokens=case["chunk"],
            prefill_max_requests=case["max_requests"],
        )
        if carried:
            carried = adder.add_chunked_req(carried)
        for req in list(waiting):
            if adder.budget_state() == AddReqResult.OTHER:
                break
            result = adder.add_one_req(req, has_chunked_req=carried is not None, truncation_align_size=None)
            if adder.can_run_list and adder.can_run_list[-1] is req:
                waiting.remove(req)
            if result != AddReqResult.CONTINUE:
                break
        carried = adder.new_chunked_req or carried
        found.append([req.extend_end - req.prefix_len for req in adder.can_run_list])
        for req in adder.can_run_list:
            req.prefix_len = req.extend_end
    return found


def _request(tree, prompt_len, cached_len):
    req = Req("0", "", array("q", [1] * prompt_len), SamplingParams(max_new_tokens=1))
    req.init_next_round_input(tree)
    req.prefix_len = cached_len  # the tree is empty; only the figure counts here
    return req


json.dump([rounds(case) for case in json.load(sys.stdin)], sys.stdout)
