"""The prefill rounds of SGLang's scheduler: which request gets how many tokens in which batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from wlgen.engines import engine
from wlgen.errors import Problem, WlgenError, error
from wlgen.pages import ceil_to, floor_to
from wlgen.workload.opened import Workload
from wlgen.workload.splits import MEASURED

MAX_PREFILL_TOKENS = 16384
WARNING = (
    "Rounds are batches of the scheduler, not device time: a round of 4 tokens is not a round of 8192, and "
    "decoding, waiting for pages and PD transfers are not counted."
)


class RoundPrompt(NamedTuple):
    """A request to be prefilled: tokens of its prompt, and those found cached."""

    prompt_len: int
    cached_len: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """What limits a round. Quantities are tokens.

    chunk: the most tokens of a round on one rank: --chunked-prefill-size, divided by the DP size under DP
    attention. max_requests: --prefill-max-requests; None: no limit. max_prefill_tokens: --max-prefill-tokens.
    """

    chunk: int
    page_size: int = 1
    max_requests: int | None = None
    max_prefill_tokens: int = MAX_PREFILL_TOKENS

    def rounds(self, prompts: Iterable[RoundPrompt]) -> Iterator[list[int]]:
        """Yield each round as the tokens of its requests, first come first served; all wait from the start.

        A request that one round leaves unfinished is the first of the next round, whatever max_requests says.
        Source: SGLang 0.5.23 managers/schedule_policy.PrefillAdder.
        """
        waiting = iter(prompts)
        candidate = next(waiting, None)
        carried = 0
        while carried or candidate:
            chunk, room = self.chunk, self.max_prefill_tokens
            batch: list[int] = []
            if carried:
                batch.append(min(carried, chunk))
                carried -= batch[0]
                billed = ceil_to(batch[0], self.page_size)
                chunk, room = chunk - billed, room - billed
            while candidate and chunk > 0 and room > 0 and not carried and self._admits(len(batch)):
                tokens = candidate.prompt_len - candidate.cached_len
                if ceil_to(tokens, self.page_size) > chunk:
                    end = floor_to(candidate.cached_len + floor_to(chunk, self.page_size), self.page_size)
                    taken = end - candidate.cached_len
                    if taken <= 0:
                        break
                    carried, tokens = tokens - taken, taken
                batch.append(tokens)
                billed = ceil_to(tokens, self.page_size)
                chunk, room = chunk - billed, room - billed
                candidate = next(waiting, None)
            yield batch

    def _admits(self, requests: int) -> bool:
        return self.max_requests is None or requests < self.max_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The rounds of one rank. chunks: how often a request gets each number of tokens in a round.

    lone_tails: rounds that hold only the end of one request, less than a page.
    """

    rounds: int
    first_rounds: tuple[tuple[int, ...], ...]
    chunks: dict[int, int]
    lone_tails: int
    tokens: int


def schedule(scheduler: Scheduler, prompts: Iterable[RoundPrompt], *, first: int = 8) -> Rounds:
    """Return the rounds of a rank's requests, with the first ones in full."""
    count = lone = 0
    shown: list[tuple[int, ...]] = []
    sizes: Counter[int] = Counter()
    for batch in scheduler.rounds(prompts):
        count += 1
        sizes.update(batch)
        lone += len(batch) == 1 and batch[0] < scheduler.page_size
        if len(shown) < first:
            shown.append(tuple(batch))
    return Rounds(
        rounds=count,
        first_rounds=tuple(shown),
        chunks=dict(sorted(sizes.items(), reverse=True)),
        lone_tails=lone,
        tokens=sum(size * times for size, times in sizes.items()),
    )


def prompts_of(workload: Workload) -> dict[int, list[RoundPrompt]]:
    """Return the formal prompts of a set for SGLang, by rank; each finds cached what the set promises."""
    if not engine(workload.manifest.cache.engine).prefill_adder:
        expected = "a set for SGLang, whose scheduler this is"
        remedy = "Give lengths instead: --prompt-len and --requests."
        found = f"the rule {workload.manifest.cache.name}"
        raise error(str(workload.folder), expected=expected, found=found, remedy=remedy)
    ranks = workload.manifest.ranks
    rows = {rank: workload.rows(MEASURED, (rank,)) for rank in ranks}
    return {rank: [RoundPrompt(row.prompt_len, row.cached_len) for row in rows[rank]] for rank in ranks}


def check_numbers(scheduler: Scheduler, prompt: RoundPrompt | None) -> None:
    """Raise WlgenError, with every problem, if the given numbers make no schedule."""
    problems = []
    page_size = scheduler.page_size
    if scheduler.chunk < page_size:
        expected = f"at least one page of {page_size} tokens a rank, or no prompt could start"
        problems.append(Problem(place="--chunk", expected=expected, found=str(scheduler.chunk)))
    if prompt and prompt.cached_len >= prompt.prompt_len:
        expected = f"less than the prompt's {prompt.prompt_len} tokens, the last of which is always computed"
        problems.append(Problem(place="--cached", expected=expected, found=str(prompt.cached_len)))
    if prompt and prompt.cached_len % page_size:
        expected = f"a multiple of the page size {page_size}"
        problems.append(Problem(place="--cached", expected=expected, found=str(prompt.cached_len)))
    if problems:
        raise WlgenError(*problems)
