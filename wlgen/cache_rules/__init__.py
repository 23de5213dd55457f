"""Cache rules: how the engine under test reuses prefixes, by name.

A named rule is one module here with `Options` (a strict pydantic model of what a spec may set),
`rule(options, place) -> CacheRule`, and `CHECKED`, which `wlgen list` prints: how the rule was compared with
its engine. All quantities are tokens.
"""
