"""Words that several faults use."""

from __future__ import annotations

from collections.abc import Sequence

from wlgen.faults import View

LISTED = 16
PREPARE = "Run `wlgen prepare --flush`"
AGAIN = (
    f"{PREPARE}, which empties the cache and seeds it again, and send the set once; or build another round"
)
NOT_THINKING = 'send "chat_template_kwargs": {"thinking": false} with every request'
FRAMINGS = {
    # Tokens more than DeepSeek-V4's chat mode, which adds 4: vLLM's default adds 83, at effort max 96.
    79: f"thinking is on, as vLLM's DeepSeek-V4 default is; {NOT_THINKING}",
    92: f"thinking is on at effort max; {NOT_THINKING}",
    7: "the client wraps the text as 'Question: ... Answer: ', as AISBench does with an `answer` column",
    -4: "DeepSeek-V4's chat framing is missing: the text went to a completions route",
}
OTHER_FRAMING = "the chat framing is not the spec's (template, system block, thinking, a second BOS)"


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Return "rank 3", or "ranks 3, 5 and 7", shortened where they are many."""
    shown = [str(rank) for rank in ranks[:LISTED]]
    if len(ranks) > LISTED:
        return f"ranks {', '.join(shown)} and {len(ranks) - LISTED} more"
    if len(shown) == 1:
        return f"rank {shown[0]}"
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}"


def short_ranks(view: View) -> list[int]:
    """Return the ranks with a row that found fewer tokens than planned."""
    return sorted({row.rank for row in view.short})
