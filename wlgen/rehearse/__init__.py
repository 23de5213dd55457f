"""The rehearsal: an OpenAI-compatible server on loopback whose prefix caches follow a cache rule.

It computes nothing: prompts are matched and inserted as the rule says, answers are filler, and time follows
a stated model. It exists so that a whole pipeline can be walked before an accelerator is booked.

What other rooms import of it:
run       a rehearsal from its options to its end
settings  what a rehearsal may be asked to be
faults    what goes wrong on demand
"""
