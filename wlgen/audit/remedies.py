"""The words of each known cause, in one place: what to do about it, and what each framing costs in tokens."""

from __future__ import annotations

PIN = "Pin each row to its rank: body routed_dp_rank (SGLang), header X-data-parallel-rank (vLLM)."
REMEDIES = {
    "framing": "Compare what the server encodes (/tokenize, return_token_ids) with the set's framing.",
    "double_count": "Take the figure from the prefill server alone.",
    "not_observed": "SGLang: --enable-cache-report. vLLM: --enable-prompt-tokens-details, and "
    "stream_options.include_usage when streaming. Use a client that keeps the figure. Where the server "
    "leaves it out when it is 0 (older SGLang and vLLM), `wlgen audit --absent-is-zero` takes your word.",
    "other_rank": PIN,
    "unpinned": PIN,
    "warmup_row_0": "Switch the client's warm-up off (warm-ups 0, no ready check), flush, seed, run again.",
    "common_prefix": "Look for a preamble the server adds (system block, thinking), or another set's prefix.",
    "sent_twice": "Run `wlgen prepare --flush`, which empties the cache and seeds it again, and send the set "
    "once; or build another round.",
    "rank_not_seeded": "Run `wlgen prepare --flush`: it seeds and checks each rank before the formal rows.",
    "no_reuse": "Look at the server's flags and the way to it: prefix caching on, each row on its rank.",
    "other_order": "Send each rank's rows in their order and pinned: rows in flight together share nothing "
    "(`wlgen plan --in-flight N` says what is left then), and evicted prefixes need more memory.",
    "short_by_constant": "Start the server as the spec's cache rule says, or set `cache` in the spec to what "
    "it does (`wlgen probe` finds out) and build again.",
    "first_of_rank": "Seed with `seed: {shape: short}`, or send a second full-length seed.",
    "falling_tail": "Give the cache more memory, fewer running requests, or fewer prefixes a rank.",
}
NOT_THINKING = 'send "chat_template_kwargs": {"thinking": false} with every request'
FRAMINGS = {
    # Tokens more than DeepSeek-V4's chat mode, which adds 4: vLLM's default adds 83, at effort max 96.
    79: f"thinking is on, as vLLM's DeepSeek-V4 default is; {NOT_THINKING}",
    92: f"thinking is on at effort max; {NOT_THINKING}",
    7: "the client wraps the text as 'Question: ... Answer: ', as AISBench does with an `answer` column",
    -4: "DeepSeek-V4's chat framing is missing: the text went to a completions route",
}
OTHER_FRAMING = "the chat framing is not the spec's (template, system block, thinking, a second BOS)"
