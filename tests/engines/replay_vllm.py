"""Run by the engines' own Python: replay workloads through vLLM's KVCacheManager.

In, a JSON list on stdin: {"page_size", "hit_quantum", "sliding_window", "speculative", "window_page",
"retention", "capacity", "chunk", "requests": [{"rank", "ids", "outputs", "salt"}]}. Out: each one's hits.
"""

from __future__ import annotations

import json
import math
import sys

import stubs

stubs.stub("aiohttp", "openai_harmony", "uvloop", "xgrammar", "partial_json_parser", "llguidance")

import torch  # noqa: E402 (after the stubs)
from vllm.sampling_params import SamplingParams  # noqa: E402 (after the stubs)
from vllm.utils.hashing import sha256  # noqa: E402 (after the stubs)
from vllm.v1.core.kv_cache_manager import KVCacheManager  # noqa: E402 (after the stubs)
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # noqa: E402 (after the stubs)
from vllm.v1.kv_cache_interface import (  # noqa: E402 (after the stubs)
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request  # noqa: E402 (after the stubs)

PLENTY = 1 << 21  # tokens
HEAD = {"num_kv_heads": 1, "head_size": 1, "dtype": torch.float16}


def groups(rule):
    """Return the KV-cache groups of the model that a rule stands for."""
    if rule["window_page"]:  # DeepSeek-V4: attention, window, and the states of two compressors
        sparse = [(rule["window_page"], rule["sliding_window"]), (4, 8), (8, 128)]
        specs = [MLAAttentionSpec(block_size=rule["page_size"], **HEAD)]
        specs += [SlidingWindowMLASpec(block_size=b, sliding_window=w, **HEAD) for b, w in sparse]
        return [
            KVCacheGroupSpec([str(i)], spec, is_eagle_group=rule["speculative"] and i == 1)
            for i, spec in enumerate(specs)
        ]
    specs = [FullAttentionSpec(block_size=rule["hit_quantum"], **HEAD)]
    if rule["sliding_window"]:
        window = {"sliding_window": rule["sliding_window"]}
        specs.append(SlidingWindowSpec(block_size=rule["page_size"], **window, **HEAD))
    return [KVCacheGroupSpec([str(i)], spec) for i, spec in enumerate(specs)]


def manager(rule):
    """Return an empty KVCacheManager of one rank."""
    kv_groups = groups(rule)
    sizes = [group.kv_cache_spec.block_size for group in kv_groups]
    tokens = rule["capacity"] or PLENTY
    config = KVCacheConfig(
        num_blocks=tokens // min(sizes) + 1,  # and the null block
        kv_cache_tensors=[],
        kv_cache_groups=kv_groups,
        prefix_cache_retention_interval=rule["retention"] if len(kv_groups) > 1 else None,
    )
    hash_size = math.gcd(*sizes)
    made = KVCacheManager(
        config,
        max_model_len=PLENTY,
        scheduler_block_size=math.lcm(*sizes),
        hash_block_size=hash_size,
        use_eagle=rule["speculative"],
        num_prefill_lookahead=int(rule["speculative"]),
    )
    return made, get_request_block_hasher(hash_size, sha256)


def replay(cache, hasher, number, request, chunk):
    """Prefill, decode and free one request as the scheduler does; return its hit."""
    params = SamplingParams(max_tokens=len(request["outputs"]), ignore_eos=True)
    running = Request(
        request_id=str(number),
        prompt_token_ids=request["ids"],
        sampling_params=params,
        pooling_params=None,
        cache_salt=request.get("salt") or None,
        block_hasher=hasher,
    )
    cache.new_step_starts()
    blocks, hit, running.shared_prefix_boundary = cache.get_computed_blocks(running)
    computed = hit
    while computed < running.num_prompt_tokens:
        new = min(chunk, running.num_prompt_tokens - computed)
        first = computed == hit
        made = cache.allocate_slots(
            running,
            new,
            num_new_computed_tokens=hit if first else 0,
            new_computed_blocks=blocks if first else None,
        )
        assert made is not None, "the pool is too small for the request"
        computed += new
        running.num_computed_tokens = computed
    for token in request["outputs"][:-1]:
        running.append_output_token_ids(token)
        assert cache.allocate_slots(running, 1) is not None
        running.num_computed_tokens += 1
    running.append_output_token_ids(request["outputs"][-1])
    cache.free(running)
    return hit


def hits_of(workload):
    """Return the hits of a workload's requests, each rank with a cache of its own."""
    ranks = {}
    hits = []
    for number, request in enumerate(workload["requests"]):
        if request["rank"] not in ranks:
            ranks[request["rank"]] = manager(workload)
        cache, hasher = ranks[request["rank"]]
        hits.append(replay(cache, hasher, number, request, workload["chunk"]))
    return hits


init_none_hash(sha256)
json.dump([hits_of(workload) for workload in json.load(sys.stdin)], sys.stdout)
