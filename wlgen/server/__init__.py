"""A live server, or a prefill/decode pair: what it is, how seeds prime it, and how checks prove it.

What other rooms import of it:
prepare  primes a server with a set's seeds and proves it with checks
outcome  what a preparation must do, and what it found
probe    finds out how a server reuses prefixes
scrape   one look at the counters of all servers of a run
routing  starts the small router of a pair
door     the one door for what a server answers
"""
