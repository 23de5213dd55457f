"""The plan: each row of a workload in integers, before any text exists."""
