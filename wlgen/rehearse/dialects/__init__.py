"""Dialects: how each engine's HTTP server reads requests and words its answers, for the rehearsal.

Each file holds one dialect as the value `DIALECT`; an engine names its dialect in `rehearsed_as`.
"""

from __future__ import annotations

import sys

from wlgen import registry
from wlgen.engines import engine
from wlgen.rehearse.dialects._dialect import Dialect as Dialect
from wlgen.rehearse.dialects._dialect import Kind as Kind
from wlgen.rehearse.dialects._dialect import RefusedError as RefusedError


def dialect(engine_name: str) -> Dialect:
    """Return the dialect in which an engine's server is rehearsed."""
    name = engine(engine_name).rehearsed_as
    found: Dialect = registry.load(sys.modules[__name__], name, place="engine").DIALECT
    return found
