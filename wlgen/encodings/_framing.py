"""The framing of a chat: found by rendering marked bodies, and proved on many other bodies.

    gap 0 | body 0 | gap 1 | body 1 | ... | last gap

A token at a seam may hold text of both sides: "[INST] " + "Word" is "[INST]", "▁Word". A gap's ids are the
tokens that no body changes; the tokens between two gaps are the body's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from wlgen.encodings import Framing, Message, Render
from wlgen.errors import WlgenError, error

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCABULARY_PROBES = 256

# Bodies begin with a letter, a digit or an ideograph. Some of these change a token of a gap: the ":" of
# "### User:" stays alone before a word but not before a quotation mark, and the "\n" of a tail stays alone
# after a word but joins a full stop (".\n").
PROBES = (
    "The river",
    "the quiet garden near the old bridge.",
    "I",
    "a",
    "Zebra crossings, lamps and doors!",
    "x-ray pictures?",
    "HTTP headers are read first",
    "42 apples fell, and 7 stayed on the tree: 1,000 more grew in 2025",
    "Élan vital, naïve café.",
    "Привет, мир.",
    "春眠不觉晓，处处闻啼鸟。",  # noqa: RUF001 (Chinese writes this comma)
    "日本語の文章",
    'She said "no"',
    "a list (with brackets)",
    "First line\nsecond line\n\nA new paragraph, with  two spaces and a\ttab.",
    "Copy the passage below word for word: it starts here, and it ends here; nothing is left out.",
    "The quiet farmer painted the old bridge near the market. The river reached the harbor. " * 40
    + "The end.",
)
NEIGHBOURS = ("The river", "the quiet lamps", "Some 42")  # no full stop at the end
LONG = "The quiet farmer painted the old bridge. " * 25_000 + "The end."  # finds a template that cuts at 1 MB


def find_framing(render: Render, tokenizer: Tokenizer, roles: Sequence[str], *, place: str) -> Framing:
    """Return the gaps around the contents of a conversation with these roles.

    The gaps are proved for bodies such as messages have: no white space at either end, no special token
    inside, and a letter, a digit or an ideograph first. WlgenError says why there are no fixed gaps: the
    template leaves out, changes, repeats or moves a body, or writes other text around another body.
    """
    texts = _gap_texts(render, roles, place)
    _prove_texts(render, roles, texts, place)
    return Framing(texts=texts, ids=_gap_ids(tokenizer, roles, texts, place))


def marked_bodies(roles: Sequence[str]) -> list[str]:
    """Return a body for each role; no body holds another one."""
    return [f"Message number {number} stands here." for number in range(1, len(roles) + 1)]


def conversation(roles: Sequence[str], bodies: Sequence[str]) -> list[Message]:
    """Return the conversation with these bodies."""
    return [Message(role, body) for role, body in zip(roles, bodies, strict=True)]


def vocabulary_probes(tokenizer: Tokenizer) -> list[str]:
    """Return bodies that begin and end with pieces from all over the vocabulary."""
    size = tokenizer.get_vocab_size(with_added_tokens=False)
    pieces = [tokenizer.decode([i]).strip() for i in range(0, size, max(1, size // VOCABULARY_PROBES))]
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    whole = [p for p in pieces if p and "\ufffd" not in p and not any(a in p for a in added)]
    return [f"{p} stays near {p}" if p[0].isalnum() else f"Stay near {p}" for p in whole]


def _gap_texts(render: Render, roles: Sequence[str], place: str) -> tuple[str, ...]:
    bodies = marked_bodies(roles)
    text = render(conversation(roles, bodies))
    gaps = []
    done = 0
    for number, body in enumerate(bodies):
        count, start = text.count(body), text.find(body)
        if count == 0:
            raise _refused(place, f"one that leaves out or changes the text of {_named(roles, number)}")
        if count > 1:
            raise _refused(place, f"one that writes the text of {_named(roles, number)} {count} times")
        if start < done:
            raise _refused(
                place, f"one that writes {_named(roles, number)} before {_named(roles, number - 1)}"
            )
        gaps.append(text[done:start])
        done = start + len(body)
    return (*gaps, text[done:])


def _prove_texts(render: Render, roles: Sequence[str], gaps: Sequence[str], place: str) -> None:
    """Render other bodies, of one message at a time, and compare with the gaps."""
    for number in range(len(roles)):
        bodies = marked_bodies(roles)
        for probe in (*PROBES, LONG):
            bodies[number] = probe
            text = render(conversation(roles, bodies))
            if text != _joined(gaps, bodies):
                what = "writes other text around" if probe in text else "cuts or changes the text of"
                start = f"{probe[:24]!r}, {len(probe)} characters"
                raise _refused(place, f"one that {what} {_named(roles, number)} where that is {start}")


def _gap_ids(
    tokenizer: Tokenizer, roles: Sequence[str], gaps: Sequence[str], place: str
) -> tuple[tuple[int, ...], ...]:
    """Return the ids of each gap: the tokens that stay the same whatever the bodies are."""
    probes = [*PROBES, *vocabulary_probes(tokenizer)]
    conversations = [marked_bodies(roles)]
    if len(roles) > 1:  # a body's full stop may hide that its last word merges with the next body
        conversations += [[NEIGHBOURS[(n + k) % len(NEIGHBOURS)] for n in range(len(roles))] for k in (0, 1)]
    found = [
        _kept_ids(tokenizer, roles, gaps, bodies, probes=probes, place=place) for bodies in conversations
    ]
    if found.count(found[0]) < len(found):
        raise _refused(place, "one that joins messages, so that their tokens merge")
    return found[0]


def _kept_ids(
    tokenizer: Tokenizer,
    roles: Sequence[str],
    gaps: Sequence[str],
    bodies: list[str],
    *,
    probes: list[str],
    place: str,
) -> tuple[tuple[int, ...], ...]:
    """Put each probe into each message in turn; return the tokens of each gap that stay the same."""
    ids = tokenizer.encode(_joined(gaps, bodies), add_special_tokens=False).ids
    starts, stops = [0], []
    for number in range(len(roles)):
        texts = [_joined(gaps, [*bodies[:number], body, *bodies[number + 1 :]]) for body in probes]
        found = [ids, *(e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False))]
        stops.append(_common(found))
        starts.append(len(ids) - _common([run[::-1] for run in found]))
        if stops[number] > starts[number + 1]:
            raise _refused(place, "a tokenizer that gives different texts the same tokens")
        if starts[number] > stops[number]:
            pair = f"{_named(roles, number - 1)} and {_named(roles, number)}"
            raise _refused(place, f"one that joins {pair}, so that their tokens merge")
    stops.append(len(ids))
    return tuple(tuple(ids[start:stop]) for start, stop in zip(starts, stops, strict=True))


def _common(found: Sequence[list[int]]) -> int:
    """Return how many first tokens all lists share: as many as the lexically first and last list do."""
    first, last = min(found), max(found)
    return next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))


def _joined(gaps: Sequence[str], bodies: Sequence[str]) -> str:
    return "".join(chain.from_iterable(zip_longest(gaps, bodies, fillvalue="")))


def _named(roles: Sequence[str], number: int) -> str:
    return f"message {number + 1} of {len(roles)} ({roles[number]})"


def _refused(place: str, found: str) -> WlgenError:
    return error(
        place,
        expected="a chat template with fixed text around each message",
        found=found,
        remedy="Use another template or other roles, or send prompts without one: {name: raw, path: ...}.",
    )
