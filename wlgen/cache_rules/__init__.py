"""Cache rules: how the engine under test reuses prefixes, by name.

A named rule is one module here with `Options` (a strict pydantic model of what a spec may set) and
`rule(options, place) -> CacheRule`. All quantities are tokens.
"""
