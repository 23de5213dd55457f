"""Seeds that were not sent, or that a hybrid model cannot use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from wlgen.faults import Asked, Fault, Parameters, Run, View
from wlgen.faults._words import PREPARE, ranks_in_words, short_ranks
from wlgen.workload.splits import PRIMING


def _ranks(view: View) -> Iterator[Parameters]:
    seeded = any(asked.split in PRIMING for asked in view.run.asked)
    short = [rank for rank in short_ranks(view) if seeded and rank not in view.answered]
    if short == list(view.ranks):
        yield {}
    elif short:
        yield {"ranks": short}
    if len(short) > 1:
        yield from ({"ranks": [rank]} for rank in short)


def _groups(view: View) -> Iterator[Parameters]:
    groups = sorted({row.group for row in view.short})
    if len({row.group for row in view.rows}) > 1:
        yield from ({"group": group} for group in groups[:16])


def _without_ranks(run: Run, parameters: Parameters) -> Run:
    ranks = parameters.get("ranks")
    return replace(
        run, asked=tuple(a for a in run.asked if a.row is not None or (ranks and a.rank not in ranks))
    )


def _without_group(run: Run, parameters: Parameters) -> Run:
    group = parameters["group"]
    return replace(run, asked=tuple(a for a in run.asked if a.row is not None or a.group != group))


def _with_long_seeds(run: Run, _: Parameters) -> Run:
    longest: dict[str, int] = {}
    for asked in run.asked:
        if asked.split not in PRIMING:
            longest[asked.group] = max(longest.get(asked.group, 0), asked.prompt_len)
    # A check after such a seed would have fallen short itself, and left what the rows need: none was sent.
    unchecked = (a for a in run.asked if a.row is not None or a.split in PRIMING)
    return replace(run, asked=tuple(_longer(a, longest.get(a.group, 0)) for a in unchecked))


def _longer(asked: Asked, length: int) -> Asked:
    if asked.split not in PRIMING or asked.prompt_len >= length:
        return asked
    (stream, tokens), more = asked.chain[-1], length - asked.prompt_len
    return asked._replace(chain=(*asked.chain[:-1], (stream, tokens + more)), prompt_len=length)


FAULTS = (
    Fault(
        name="rank_not_seeded",
        takes=("ranks",),
        propose=_ranks,
        act=_without_ranks,
        touches=lambda _, parameters: set(parameters["ranks"]) if parameters else None,
        words=lambda p: (
            f"{ranks_in_words(p['ranks']) if p else 'no rank'} got {'no' if p else 'a'} seed before its rows"
        ),
        remedy=lambda _: f"{PREPARE}: it seeds and checks each rank before the formal rows",
        scope=3,
        apart="later rows of the rank: under a dense rule they find the prefix that the first row computed",
    ),
    Fault(
        name="group_not_seeded",
        takes=("group",),
        propose=_groups,
        act=_without_group,
        words=lambda p: f"the prefix of group {p['group']} was not seeded",
        remedy=lambda _: f"{PREPARE}: it seeds each prefix on each rank",
        scope=3,
        apart="later rows of the group: under a dense rule they find the prefix that the first row computed",
    ),
    Fault(
        name="full_length_seed",
        looks_ahead=True,
        propose=lambda view: [{}] if view.run.rule.hybrid and view.short else [],
        act=_with_long_seeds,
        words=lambda _: (
            "the seeds were as long as the rows: a hybrid model (sliding window, Mamba, "
            "DeepSeek-V4) then keeps no state where the shared prefix ends"
        ),
        remedy=lambda _: "Seed with `seed: {shape: short}`, or send a second full-length seed",
    ),
)
