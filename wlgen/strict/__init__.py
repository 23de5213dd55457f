"""What people write, read strictly: YAML and JSONL against models, each problem with its file and line.

What other rooms import of it:
yaml      YAML text into plain values with the line of each key
problems  where each key of an input stands, and what is wrong there
validate  values against models, each error at its line
model     the base class of every model of what a person writes
jsonl     JSONL that people hand in
"""
