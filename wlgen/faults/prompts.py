"""Prompts that are not those of the set: another framing, something in front, another text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from wlgen.faults import After, Fault, Parameters, Run, Says, SeenRow, View, of_each
from wlgen.faults._words import FRAMINGS, OTHER_FRAMING

STEPS = 8  # lengths that are tried within one quantum
EDITED = 128  # tokens by which an edited text may change its length; another set's rows differ by more


def _framings(view: View) -> Iterator[Parameters]:
    off = Counter((row.prompt or 0) - row.prompt_len for row in view.deviating_in("prompt"))
    yield from ({"tokens": tokens} for tokens, _ in off.most_common(4))


def _says_framing(view: View, parameters: Parameters) -> Says:
    """Say of each row with the wrong framing that its prompt is off, and that its hits follow from that."""
    off = view.deviating_in("prompt")
    hit = (row for row in off if (row.prompt or 0) - row.prompt_len == parameters["tokens"])
    return of_each(hit, "prompt", "cached")


def _preambles(view: View) -> Iterator[Parameters]:
    """Propose a preamble in place of the prompts' first tokens; and one before them, if nobody counted them.

    A row that finds 512 tokens and should find 384 has a preamble of 128 tokens in front, or of a few more:
    hits come in whole quanta, so steps of an eighth of a quantum are tried.
    """
    levels = Counter(row.cached for row in view.above if "prompt" not in row.deviates)
    for level, _ in levels.most_common(4):
        if level is not None and 2 * level < min(row.prompt_len for row in view.above):
            yield {"tokens": level}
    more = [row.cached - row.planned for row in view.above if row.cached is not None]
    if more and all(row.prompt is None for row in view.seen):
        quantum = view.run.rule.hit_quantum
        for step in range(0, quantum, -(-quantum // STEPS)):
            yield {"in_front": min(more) + step}


def _with_preamble(run: Run, parameters: Parameters) -> Run:
    """Let every prompt begin with the same text, in front of its tokens or in place of the first of them."""
    if "in_front" in parameters:
        before = parameters["in_front"]
        longer = (
            a._replace(chain=(("preamble", before), *a.chain), prompt_len=a.prompt_len + before)
            for a in run.asked
        )
        return replace(run, asked=tuple(longer))
    tokens = parameters["tokens"] + run.rule.lookahead
    asked = []
    for a in run.asked:
        chain: list[tuple[object, int]] = [("preamble", tokens)]
        left = tokens
        for stream, length in a.chain:
            taken = min(left, length)
            left -= taken
            if length > taken:
                chain.append((After(stream), length - taken))
        asked.append(a._replace(chain=tuple(chain)) if a.prompt_len > tokens else a)
    return replace(run, asked=tuple(asked))


def _preamble_words(parameters: Parameters) -> str:
    if "in_front" in parameters:
        tokens = parameters["in_front"]
        return f"the same {tokens} tokens or a few more stand in front of every prompt, which nobody counted"
    return f"all prompts begin with the same {parameters['tokens']} tokens, which the set does not have"


def _of_another(view: View) -> list[SeenRow]:
    """Return the rows whose results are another set's: most rows have another text, or far other lengths.

    A client that edits texts changes their lengths by a few tokens, and a framing changes all of them alike.
    """
    seen = sum(row.results > 0 for row in view.rows)
    texts, lengths = view.deviating_in("text"), view.deviating_in("prompt")
    if len(texts) * 2 > seen:
        return texts
    off = {abs((row.prompt or 0) - row.prompt_len) for row in lengths}
    return lengths if len(lengths) * 2 > seen and len(off) > 1 and max(off) > EDITED else []


def _other_sets(view: View) -> Iterator[Parameters]:
    rows = _of_another(view)
    if rows or (view.foreign and view.deviating_in("missing")):
        yield {"results": view.foreign + len(rows)}


def _says_other_set(view: View, _: Parameters) -> Says:
    """Say that rows have another set's results, and that a row without one lost it to results of no row."""
    missing = view.deviating_in("missing") if view.foreign else []
    return of_each(_of_another(view), "text", "prompt", "cached", "output") | of_each(missing, "missing")


FAULTS = (
    Fault(
        name="framing",
        propose=_framings,
        says=_says_framing,
        words=lambda p: (
            f"every prompt is {p['tokens']:+d} tokens from its plan: "
            + FRAMINGS.get(p["tokens"], OTHER_FRAMING)
        ),
        remedy=lambda _: (
            "Compare what the server encodes (/tokenize, return_token_ids) with the set's framing"
        ),
    ),
    Fault(
        name="preamble",
        takes=("tokens", "in_front"),
        propose=_preambles,
        act=_with_preamble,
        words=_preamble_words,
        remedy=lambda _: (
            "Look for a preamble that the server adds (system block, thinking), or another set's prefix"
        ),
        apart="what the server encodes (/tokenize)",
    ),
    Fault(
        name="edited_text",
        propose=lambda view: [{}] if view.deviating_in("text") else [],
        says=lambda view, _: of_each(view.deviating_in("text"), "text", "prompt", "cached"),
        words=lambda _: "the client changed the text before it sent it",
        remedy=lambda _: "Send the text as it is exported: no template, no trimming, no rewriting",
        scope=4,
        apart="the first text that the client sent, beside the row of the same id",
    ),
    Fault(
        name="other_set",
        propose=_other_sets,
        says=_says_other_set,
        words=lambda p: f"{p['results']} results are of another set, or of an earlier build of this one",
        remedy=lambda _: "Give the folder of the set that was sent; or export this set again, and send that",
        scope=3,
        apart="the first text that the client sent, beside the row of the same id",
    ),
)
