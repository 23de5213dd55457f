"""Both levels of verification, called alike."""

from __future__ import annotations

from collections.abc import Callable

from wlgen.build.recompose import Recomposed
from wlgen.verify import Verification, verify_composed, verify_encoded
from wlgen.workload.opened import Workload


def verify(
    workload: Workload, *, full: bool, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> Verification:
    if full:
        return verify_encoded(workload, progress=progress)
    return verify_composed(workload, Recomposed(workload), progress=progress)
