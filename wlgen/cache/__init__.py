"""Prefix caches that replay requests one by one: the rule of an engine, and one cache for each DP rank."""
