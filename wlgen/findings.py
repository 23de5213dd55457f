"""Findings: one row beside one result, promise by promise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from wlgen.readers import Result
from wlgen.workload import Bound, Row, Split

NOT_OBSERVED = "NOT_OBSERVED"
ERROR_SHOWN = 300  # characters of a client's error
Promise: TypeAlias = Literal[
    "of_the_set",
    "sent_once",
    "success",
    "one_attempt",
    "text",
    "dp_rank",
    "observed",
    "prompt_len",
    "output_len",
    "cached_within_prompt",
    "cached_bound",
    "cached_len",
]
MEANING: dict[Promise, str] = {
    "of_the_set": "every result is of a row of the set",
    "sent_once": "every row is sent exactly once",
    "success": "every request succeeds",
    "one_attempt": "no request is retried",
    "text": "the text is sent unchanged",
    "dp_rank": "the planned rank serves the row",
    "observed": "the server's counts are reported",
    "prompt_len": "the server counts prompt_len prompt tokens",
    "output_len": "the server returns output_len tokens",
    "cached_within_prompt": "cached tokens are at most the prompt (more is a double count)",
    "cached_bound": "cached tokens meet the spec's bound",
    "cached_len": "cached tokens equal cached_len",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken promise: the row's id (a result's place where it is of no row), expected and got."""

    id: str
    promise: Promise
    expected: int | str
    got: int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    """What one row promises, without its text. Fields as in Row; lengths are tokens."""

    id: str
    split: Split
    dp_rank: int
    group: str
    prompt_len: int
    shared_len: int
    cached_len: int
    output_len: int
    text_sha256: str

    @classmethod
    def of(cls, row: Row) -> Promised:
        """Return the promises of a row."""
        return cls(**{name: getattr(row, name) for name in cls.__dataclass_fields__})


def findings_of(row: Promised, result: Result, bound: Bound) -> list[Finding]:
    """Return each promise of the row that the result breaks, at most one about cached tokens.

    The bound is that of check and formal rows; a seed only has to find its cached_len. A failed request
    breaks `success` and is asked nothing else.
    """
    if not result.success:
        got = result.error[:ERROR_SHOWN] or "failure"
        return [Finding(id=row.id, promise="success", expected="success", got=got)]
    found = list(_of_equals(row, result))
    if result.cached_tokens is not None:
        found += _of_cached(row, result.cached_tokens, result.prompt_tokens, bound)
    return found


def _of_equals(row: Promised, result: Result) -> Iterator[Finding]:
    if result.attempts > 1:
        yield Finding(id=row.id, promise="one_attempt", expected=1, got=result.attempts)
    counts = ("prompt_tokens", "cached_tokens", "output_tokens")
    missing = [name for name in counts if getattr(result, name) is None]
    if missing:  # one finding, whatever is missing: a response without usage misses all three
        yield Finding(id=row.id, promise="observed", expected=", ".join(missing), got=NOT_OBSERVED)
    equals: tuple[tuple[Promise, int | str, int | str | None], ...] = (
        ("text", row.text_sha256, result.text_sha256),
        ("dp_rank", row.dp_rank, result.dp_rank),
        ("prompt_len", row.prompt_len, result.prompt_tokens),
        ("output_len", row.output_len, result.output_tokens),
    )
    for promise, expected, got in equals:
        if got is not None and got != expected:
            yield Finding(id=row.id, promise=promise, expected=expected, got=got)


def _of_cached(row: Promised, cached: int, prompt: int | None, bound: Bound) -> Iterator[Finding]:
    # The first that applies: a row a quantum short of the bound is also unequal to cached_len, and saying
    # both would count one fault twice. The bound is that of the planned prompt; another prompt length is a
    # finding of its own.
    prompt = row.prompt_len if prompt is None else prompt
    bounded = row.split != "seed"
    if cached > prompt:
        yield Finding(id=row.id, promise="cached_within_prompt", expected=prompt, got=cached)
    elif bounded and cached < (least := bound.least(row.prompt_len)):
        yield Finding(id=row.id, promise="cached_bound", expected=least, got=cached)
    elif bounded and cached > (most := bound.most(row.prompt_len)):
        yield Finding(id=row.id, promise="cached_bound", expected=most, got=cached)
    elif cached != row.cached_len:
        yield Finding(id=row.id, promise="cached_len", expected=row.cached_len, got=cached)
