"""The plan: each row of a workload in integers, before any text exists.

What other rooms import of it:
solve     from a spec to its plan
rows      the plan of one row, in integers
refusals  why a spec has no plan, and the nearest spec that has one
predict   what each planned row finds cached, replayed
ordinals  which first token each stream takes
tree      the prefix tree of a set's rows, and the hit ratio along them
"""
