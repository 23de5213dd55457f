"""The plan: each row of a workload in integers, before any text exists.

What other rooms import of it:
solve     from a spec to its plan
rows      the plan of one row, in integers
refusals  why a spec has no plan, and the nearest spec that has a plan
predict   what each planned row finds cached, from a replay
ordinals  which first token each stream takes
chains    each planned row as runs of tokens, for a replay without text
tree      the prefix tree of a set's rows, and the cached ratio from its first row to its last
"""
