"""Token-exact, cache-exact workload datasets for LLM-serving benchmarks."""

__version__ = "0.1.0"
