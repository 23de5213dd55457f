"""Findings: one row beside one result, promise by promise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wlgen.readers import Result
from wlgen.workload.bounds import UNBOUNDED, Bound
from wlgen.workload.rows import Finding, OptionalKeys, Row
from wlgen.workload.splits import Split

NOT_OBSERVED = "NOT_OBSERVED"
ERROR_SHOWN = 300  # characters of a client's error
MEANING: dict[str, str] = {
    "of_the_set": "results of no row of the set",
    "sent_once": "rows not sent exactly once",
    "success": "requests failed",
    "garbled": "values that are not what their key asks for",
    "one_attempt": "requests were retried",
    "on_time": "requests were not sent at their planned time",
    "text": "the text that was sent is not the row's",
    "dp_rank": "another rank than planned served the row",
    "observed": "the server's counts are missing",
    "prompt_len": "the server counts another number of prompt tokens than prompt_len",
    "output_len": "the server returned another number of tokens than output_len",
    "cached_within_prompt": "more cached tokens than the prompt has (a double count)",
    "cached_of_prefill": "cached tokens of another server than the one that holds the prefix cache",
    "witnesses": "client and server contradict one another",
    "cached_bound": "cached tokens miss the spec's bound",
    "cached_len": "cached tokens differ from the plan",
    "cached_sum": "cached tokens of all rows together differ from the plan, by the server's counters",
    "aggregate": "cached tokens of a class's formal rows together miss its aggregate",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised(OptionalKeys):
    """What one row promises, without its text. Fields as in Row; lengths are tokens.

    bound: of a check or formal row's cached tokens, by its class.
    """

    id: str
    split: Split
    dp_rank: int
    group: str
    prompt_len: int
    shared_len: int
    cached_len: int
    output_len: int
    text_sha256: str
    round: int = 0
    prompt_sha256: str = ""
    bound: Bound = UNBOUNDED

    @property
    def is_bounded(self) -> bool:
        """Whether the spec bounds what this row may find cached; a seed only has to find its plan."""
        return not self.split.primes and self.bound != UNBOUNDED

    @classmethod
    def of(cls, row: Row, bound: Bound | None = None) -> Promised:
        """Return the promises of a row."""
        names = (name for name in cls.__dataclass_fields__ if name != "bound")
        return cls(bound=bound or UNBOUNDED, **{name: getattr(row, name) for name in names})

    def equals(self, cached: int) -> bool:
        """Return whether cached tokens are as planned.

        A turn whose server reused its own answers finds cached_len_recorded. Where a class is bounded from
        above, its rows share a framing head only, which the first row on a rank that nothing has primed
        does not find.
        """
        if self.bound.max_tokens is not None:
            return cached <= self.cached_len
        return cached in (self.cached_len, self.cached_len_recorded)


def findings_of(row: Promised, result: Result) -> list[Finding]:
    """Return each promise of the row that the result breaks, at most one about cached tokens.

    The bound is that of check and formal rows; a seed only has to find its cached_len. A failed request
    breaks `success` and is asked nothing else.
    """
    if not result.success:
        got = result.error[:ERROR_SHOWN] or "failure"
        return [Finding(id=row.id, promise="success", expected="success", got=got)]
    found = list(_of_equals(row, result))
    if result.cached_tokens is not None:
        found += _of_cached(row, result.cached_tokens, result.prompt_tokens)
    return found


def _of_equals(row: Promised, result: Result) -> Iterator[Finding]:
    if result.attempts > 1:
        yield Finding(id=row.id, promise="one_attempt", expected=1, got=result.attempts)
    counts = ("prompt_tokens", "cached_tokens", "output_tokens")
    for garbled in result.garbled:
        asked = f"{garbled.key or 'record'}: {garbled.expected}"
        found = f"{garbled.found} at {result.place}"
        yield Finding(id=row.id, promise="garbled", expected=asked, got=found)
    missing = [name for name in counts if getattr(result, name) is None]
    if missing:  # one finding, whatever is missing: a response without usage misses all three
        yield Finding(id=row.id, promise="observed", expected=", ".join(missing), got=NOT_OBSERVED)
    equals: tuple[tuple[str, int | str, int | str | None], ...] = (
        ("text", row.text_sha256, result.text_sha256),
        ("dp_rank", row.dp_rank, result.dp_rank),
        ("prompt_len", row.prompt_len, result.prompt_tokens),
        ("output_len", row.output_len, result.output_tokens),
    )
    for promise, expected, got in equals:
        if got is not None and got != expected:
            yield Finding(id=row.id, promise=promise, expected=expected, got=got)


def _of_cached(row: Promised, cached: int, prompt: int | None) -> Iterator[Finding]:
    # The first that applies: a row a quantum short of the bound is also unequal to cached_len, and saying
    # both would count one fault twice. The bound is that of the planned prompt; another prompt length is a
    # finding of its own.
    prompt = row.prompt_len if prompt is None else prompt
    bound, bounded = row.bound, not row.split.primes
    if cached > prompt:
        yield Finding(id=row.id, promise="cached_within_prompt", expected=prompt, got=cached)
    elif bounded and cached < (least := bound.least(row.prompt_len)):
        yield Finding(id=row.id, promise="cached_bound", expected=least, got=cached)
    elif bounded and cached > (most := bound.most(row.prompt_len)):
        yield Finding(id=row.id, promise="cached_bound", expected=most, got=cached)
    elif not row.equals(cached):
        yield Finding(id=row.id, promise="cached_len", expected=row.cached_len, got=cached)
