"""Simulation: requests replayed through a cache rule, and prefill rounds of SGLang's scheduler."""
