"""Prefix caches that replay requests one by one: the rule of an engine, and one cache for each DP rank.

What other rooms import of it:
rule           how one engine reuses prefixes, as a value
made_up        ids of tokens whose text does not matter, shared exactly as far as their streams are
ranks          requests replayed through one cache a DP rank
radix          SGLang's tree over one kind of attention
radix_window   SGLang's tree over full and sliding-window attention
blocks         vLLM's blocks over one kind of attention
blocks_window  vLLM's blocks over full and sliding-window attention
"""
