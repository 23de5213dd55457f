"""The rehearsal: an OpenAI-compatible server on loopback whose prefix caches follow a cache rule.

The server runs no model: it matches and inserts prompts as the rule says, answers with filler, and takes the
time that a stated formula gives. With it a person tries a whole pipeline before booking an accelerator.

What other rooms import of it:
run       a rehearsal from its options to its end
settings  what a rehearsal simulates
faults    what goes wrong on demand
"""
