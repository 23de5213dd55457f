"""One module a command: it parses, calls one function, prints and exits. Heavy imports happen inside.

`wlgen --help` shows the commands in the groups and the order below, in which a person needs them. A command
that no group names stands under "More".
"""

from __future__ import annotations

GROUPS = {
    "Design a set": ("new", "plan", "schema", "explain", "list", "schedule"),
    "Build and prove it": ("build", "verify", "simulate", "export"),
    "Meet a server": ("probe", "infer-rule", "rehearse", "route", "prepare", "counters"),
    "Judge a run": ("audit", "compare"),
}
