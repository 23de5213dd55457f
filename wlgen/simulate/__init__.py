"""Simulation: requests replayed through a cache rule, and prefill rounds of SGLang's scheduler.

What other rooms import of it:
replay   a replay from its input to its report
faulted  a set replayed with a fault in it
input    what is replayed: a set, or a JSONL file of requests
hits     hit ratios by split, by rank and against the bound
infer    which rules explain what a server reported
fitting  which rules of the server's engine explain a probe
telling  the prompt on which two rules differ
rounds   the prefill rounds of SGLang's scheduler
"""
