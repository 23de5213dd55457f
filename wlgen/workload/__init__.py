"""The set on disk: rows, the manifest that proves them, how files are written, and which text is safe.

What other rooms import of it:
rows       one request, one JSONL line
manifest   what a set promises, its files, and how exactness was proved
card       the README.md of a set, by which Hugging Face loads it
opened     a built set: opened, read row by row, its files proved
splits     seed, check and formal, each a value with its facts
bounds     what a request must find cached
exchange   a folder written beside its place, which it takes in one step
writer     files hashed while they are written
safe_text  what a body must not hold
"""
