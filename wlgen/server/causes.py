"""Why a check fell short. A preparation knows more than an audit, such as which seeds were answered."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from wlgen.audit.as_seen import RowSeen, Scene
from wlgen.audit.explain import explain
from wlgen.audit.findings import Promised
from wlgen.audit.model import Diagnosis
from wlgen.cache.rule import CacheRule
from wlgen.faults._words import PREPARE

_EMPTY = ("lost_cache", "flushed", "restarted")  # causes by which an answered seed is not found
_DROPPED = "pins are dropped on the way, so the seeds may have gone to other ranks"


def causes(
    rows: Sequence[RowSeen],
    rule: CacheRule,
    *,
    seeds: Sequence[Promised],
    answered: Collection[str],
    pinned: bool,
    restarted: bool,
) -> list[Diagnosis]:
    """Return the causes of rows that fell short, the surest first.

    rows: those that were sent, each with what came back. seeds: all seeds of the set. answered: the ids of
    those that the server answered. pinned: the preflight proved that ranks are pinned. restarted: a count of
    the server fell, so it began anew.
    """
    sent = {seen.row.id for seen in rows}
    scene = Scene(
        rule=rule,
        audited=rows,
        before=[row for row in seeds if row.id not in sent],
        answered=frozenset(row.dp_rank for row in seeds if row.id in answered),
    )
    found = list(explain(scene.view()).causes)
    if restarted:
        return [_restarted(len(rows)), *(each for each in found if each.cause not in _EMPTY)]
    if pinned:
        return found
    return [
        replace(each, explains=f"{each.explains}, or {_DROPPED}") if each.cause in _EMPTY else each
        for each in found
    ]


def _restarted(rows: int) -> Diagnosis:
    return Diagnosis(
        cause="restarted",
        parameters={},
        rows=rows,
        of=rows,
        explains="the server restarted: its own count of requests is below what it has answered",
        remedy=f"Find out why in its log. {PREPARE}: it seeds anew.",
    )
