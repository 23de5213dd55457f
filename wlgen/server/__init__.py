"""A live server, or a prefill/decode pair: it is asked what it is, primed with seeds, proved with checks.

What other rooms import of it:
prepare  primes a server with a set's seeds and proves it with checks
outcome  what a preparation is asked, and what came of it
probe    finds out how a server reuses prefixes
scrape   one look at the counters of all servers of a run
routing  starts the small router of a pair
door     the one door for what a server answers
"""
