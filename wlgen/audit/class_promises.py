"""The promises of each class of requests: the bound of each row, and the aggregate of all rows together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction

from wlgen.audit.model import CachedRatio, ClassPromise, RowOutcome, mean, ratios_of
from wlgen.pages import percent
from wlgen.workload.rows import Finding


def of_classes(outcomes: Sequence[RowOutcome]) -> Iterator[ClassPromise]:
    """Yield what each class promised and what was observed of it; seeds promise no ratio."""
    classes: dict[str | None, list[RowOutcome]] = defaultdict(list)
    for outcome in outcomes:
        if not outcome.row.split.primes:
            classes[outcome.row.request_class].append(outcome)
    for name, group in classes.items():
        planned = sorted(_planned(group), key=lambda ratio: ratio.value)
        observed = ratios_of(group)
        whole = mean(planned)
        if whole is None:
            continue
        yield ClassPromise(
            name=name,
            bound=group[0].row.bound,
            rows=len(group),
            planned=whole,
            planned_min=planned[0],
            observed=mean(observed),
            observed_min=observed[0] if observed else None,
            recorded=sum(map(_is_recorded, group)),
        )


def of_aggregates(outcomes: Sequence[RowOutcome], set_name: str) -> Iterator[Finding]:
    """Yield each class and round whose formal rows together miss the aggregate of their spec.

    A row without a figure is a finding itself, and then nothing is said of the aggregate.
    """
    asked: dict[tuple[str | None, int], list[RowOutcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.row.split.measured and outcome.row.bound.aggregate is not None:
            asked[outcome.row.request_class, outcome.row.round].append(outcome)
    rounds = {round_ for _, round_ in asked}
    for (name, round_), group in asked.items():
        bound, ratios = group[0].row.bound, ratios_of(group)
        whole = mean(ratios)
        if whole is None or bound.aggregate is None or len(ratios) < len(group):
            continue
        if abs(Fraction(*whole) - bound.aggregate) > bound.tolerance:
            place = f"{set_name} class {name}" if name is not None else set_name
            yield Finding(
                id=f"{place} round {round_}" if len(rounds) > 1 else place,
                promise="aggregate",
                expected=f"{_percent(bound.aggregate - bound.tolerance)} to "
                f"{_percent(bound.aggregate + bound.tolerance)}",
                got=f"{percent(*whole)} ({whole.cached} of {whole.prompt} tokens)",
            )


def _planned(group: Sequence[RowOutcome]) -> Iterator[CachedRatio]:
    return (CachedRatio(o.row.cached_len, o.row.prompt_len) for o in group)


def _is_recorded(outcome: RowOutcome) -> bool:
    """Return whether a turn found its recorded answers, and would have found less without them."""
    row, result = outcome.row, outcome.result
    if result is None or result.cached_tokens is None or row.cached_len_recorded is None:
        return False
    return result.cached_tokens == row.cached_len_recorded != row.cached_len


def _percent(ratio: Fraction) -> str:
    return percent(max(0, ratio.numerator), ratio.denominator)
