"""Whether an earlier run's rows still tell what the cache holds: proved by counts, or on a person's word."""

from __future__ import annotations

from collections.abc import Sequence

from wlgen.server.counters import Look, fell, idle, moved
from wlgen.server.outcome import Wanted


def doubt_of(wanted: Wanted, seen: Look | None, counts: Look | None, *, closed: bool) -> str:
    """Return why the rows of the journal no longer tell what the cache holds; "" if they do.

    seen: the server's counts when the last run ended in order (closed), else when it began. counts: its
    counts now. For a server that counts nothing the rows count only under --resume: a default SGLang server
    of 2025 looks the same after 640 formal rows as before them.
    """
    if wanted.fresh or wanted.flush:
        return "--fresh" if wanted.fresh else "--flush"
    if fell(seen, counts):
        return "the server restarted since the last run"
    if closed and moved(seen, counts):
        return "the server did other work since the last run, perhaps the formal rows"
    if not closed and not wanted.resume:
        return "the last run did not end; --resume goes on with it, if you know that nothing else was sent"
    if not wanted.resume and not idle(seen, counts):
        return (
            "the server shows no count of its work, so the formal rows may have been sent since; "
            "--resume goes on, if you know that nothing was"
        )
    return ""


def spans(ranks: Sequence[int]) -> str:
    """Return ranks in ascending order as a person writes them: 0-2,5."""
    found: list[list[int]] = []
    for rank in ranks:
        if found and rank == found[-1][1] + 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
