"""Run by the engines' own Python: replay workloads through SGLang's unified radix cache.

In, a JSON list on stdin: {"page_size", "hit_quantum", "sliding_window", "speculative", "chunk", "tree",
"requests": [{"rank", "ids", "outputs", "salt"}]}, tree being "python" or "rust", the engine's two trees. Out:
each one's hits. The allocator is a fake that never runs out; requests, components and trees are the engine's.
"""

from __future__ import annotations

import json
import sys
from array import array
from types import SimpleNamespace
from typing import Any

import sglang_stubbed  # noqa: F401 (first of all)
import torch
from sglang.srt.hardware_backend.npu.dsv4.c128_sidecar_component import C128SidecarComponent
from sglang.srt.managers.schedule_batch import FINISH_LENGTH, Req, ScheduleBatch
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.common import checkpoint_kv_cache, release_kv_cache
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.sampling.sampling_params import SamplingParams

LONGEST = 1 << 18
SLOTS = 1 << 22


class Allocator(SWATokenToKVPoolAllocator):
    """Hands out indices that were never used; a slot of the window has the index of its full slot."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.device = torch.device("cpu")
        self.next = page_size
        self.c128_attn_allocator = SimpleNamespace(page_size=16, free_pages=torch.arange(1))

    def take(self, count):
        start, self.next = (
            self.next,
            self.next + -(-count // self.page_size) * self.page_size + self.page_size,
        )
        return torch.arange(start, start + count)

    def translate_swa_indices_for_transfer(self, indices):
        return indices

    def translate_loc_from_full_to_swa(self, indices):
        return indices

    def nothing(self, *_args: Any, **_kwargs: Any) -> None:
        """Free, retain or map nothing: no slot is used twice."""

    free = free_swa = free_swa_segment = free_segment = free_full = free_group_begin = free_group_end = (
        nothing
    )
    clear_full_to_swa_mapping = set_full_to_swa_mapping = free_full_only = free_kv_row = free_full_segment = (
        nothing
    )
    retain_c128_pages = release_c128_pages = nothing

    def available_size(self):
        return SLOTS

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the fake allocator has no {name}")


class Rows:
    """One request's row of slots."""

    def __init__(self) -> None:
        self.req_to_token = torch.zeros((2, LONGEST), dtype=torch.int64)
        self.req_to_c128_sidecar = torch.arange(2 * LONGEST).reshape(2, LONGEST)

    def write(self, where, values):
        self.req_to_token[where] = values

    def free(self, req):
        req.kv.req_pool_idx = None

    def set_c128_prefix_pages(self, *_args: Any) -> None:
        """Note nothing: the tree's pages are the tree's own."""


def cache(rule, allocator=None):
    """Return an empty cache of one rank."""
    components = [ComponentType.FULL]
    override = None
    if rule["sliding_window"]:
        components.append(ComponentType.SWA)
    if rule["hit_quantum"] != rule["page_size"]:
        components.append(ComponentType.C128)
        override = {ComponentType.C128: C128SidecarComponent}
    params = CacheInitParams(
        disable=False,
        req_to_token_pool=Rows(),
        token_to_kv_pool_allocator=allocator or Allocator(rule["page_size"]),
        page_size=rule["page_size"],
        is_eagle=rule["speculative"],
        sliding_window_size=rule["sliding_window"] or None,
        tree_components=tuple(components),
        component_registry_override=override,
        tree_core_backend=rule["tree"],
    )
    return UnifiedRadixCache(params)


def chunks(rule, start, length):
    """Yield where each prefill chunk ends, as PrefillAdder cuts them for a request alone."""
    page, chunk = rule["page_size"], rule["chunk"]
    whole = -(-(length - start) // page) * page <= chunk
    end = length if whole else start + chunk // page * page
    yield end
    while end < length:
        end = min(length, end + chunk)
        yield end


def hold(req, tree, end):
    """Give a request slots for its tokens up to `end`."""
    row, start = tree.req_to_token_pool.req_to_token, req.kv.kv_allocated_len
    row[1, start:end] = tree.token_to_kv_pool_allocator.take(end - start)
    req.kv.kv_allocated_len = req.kv.kv_committed_len = end


def decode(req, tree, outputs):
    """Compute all outputs but the last, one by one."""
    batch = ScheduleBatch.__new__(ScheduleBatch)
    batch.reqs, batch.tree_cache = [req], tree
    batch.token_to_kv_pool_allocator = tree.token_to_kv_pool_allocator
    batch.forward_mode, batch.enable_overlap, batch.forward_iter = ForwardMode.DECODE, False, 0
    for token in outputs[1:]:
        batch.maybe_evict_swa()
        req.decode_batch_idx += 1
        hold(req, tree, req.kv.kv_allocated_len + 1)
        req.output_ids.append(token)


def replay(tree, number, request, rule):
    """Prefill, decode and release one request as the scheduler does; return its hit."""
    outputs = request["outputs"]
    req = Req(
        str(number),
        "",
        array("q", request["ids"]),
        SamplingParams(max_new_tokens=len(outputs)),
        extra_key=request.get("salt") or None,
    )
    req.init_next_round_input(tree)
    hit = req.prefix_len
    req.lock = tree.lock(req.last_node)
    req.kv.req_pool_idx = 1
    if hit:
        tree.req_to_token_pool.req_to_token[1, :hit] = tree.prefix_device_indices(req)[:hit]
    req.kv.kv_allocated_len = hit
    for end in chunks(rule, hit, len(request["ids"])):
        hold(req, tree, end)
        req.extend_end = end
        if end < len(request["ids"]):
            checkpoint_kv_cache(req, tree)
            req.init_next_round_input()
    req.output_ids.append(outputs[0])
    if len(outputs) > 1:
        checkpoint_kv_cache(req, tree)
        decode(req, tree, outputs)
    req.finished_reason = FINISH_LENGTH(len(outputs))
    release_kv_cache(req, tree, checkpoint=True)
    return hit


def hits_of(rule):
    """Return the hits of a workload's requests, each rank with a cache of its own."""
    ranks = {}
    hits = []
    for number, request in enumerate(rule["requests"]):
        if request["rank"] not in ranks:
            ranks[request["rank"]] = cache(rule)
        hits.append(replay(ranks[request["rank"]], number, request, rule))
    return hits


if __name__ == "__main__":
    json.dump([hits_of(rule) for rule in json.load(sys.stdin)], sys.stdout)
