"""The spec: the YAML that a person writes, read into one validated `Spec`.

What other rooms import of it:
model        what a person asks for: the models that validate it, which the plan and the manifest read too
file         from YAML, or from a manifest, to a Spec
reference    every key with its meaning, and the JSON Schema
starter      the text of a new spec
rule_choice  a cache rule that a command's options choose
kinds        an encoding, a task or a cache rule chosen by name
inputs       the files that a spec names
lengths      a number, or a distribution drawn for each row
arrivals     when each row is sent
popularity   how often each of several groups, lengths or bins is drawn
prefix       which rows share a prefix, and its levels
splits       how many rows each split has
"""
