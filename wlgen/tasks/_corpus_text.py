"""Corpus text made safe to send and to cut, and its tokens: a circle of blocks, encoded as rows need them."""

from __future__ import annotations

import copy
import dataclasses
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wlgen.encodings import Encoding
from wlgen.text.lexicon import Ids
from wlgen.workload.safe_text import Hygiene

if TYPE_CHECKING:
    from tokenizers import Encoding as Encoded

BLOCK = 16_384  # characters of a block, which is encoded when a row first needs it
CONTEXT = 512  # characters on each side that are encoded with a block, so that its end tokens are right
BATCH = 16  # blocks that are encoded together
MOST_RUN = 200  # the longest word or run of white space that is kept, so that CONTEXT reaches beyond it
FEW = 20  # characters of several tokens are left out if they are fewer than one in 20

_LINE_END = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_LONG = re.compile(rf"(\w{{{MOST_RUN}}})(?=\w)|([^\w\s]{{{MOST_RUN}}})(?=[^\w\s])")
# White space that a tokenizer may merge with the space of a word behind it, where a text is cut.
_SPACE = re.compile(r"(?<=\S)(?: (?![A-Za-z\s])|[^\S ]\s*| \s+)(?=\S)")
_CUT = re.compile(r"[^\W_](?=\s)|[^\W_](?=[^\w\s'’])")  # noqa: RUF001 (an apostrophe as texts have it)
_HAN = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")
# Two ideographs that no vocabulary has. If both get the same ids, these are the ids of an unknown character.
_RARE = ("\U00020001", "\U0002a6d6")

Ends: TypeAlias = NDArray[np.int64]


class Follow(NamedTuple):
    """The text that stands beside a cut, and its ids, which the cut must not change."""

    text: str
    ids: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """A run of tokens: ids and ends, shape (tokens,). Token i's text ends before character ends[i]."""

    ids: Ids
    ends: Ends

    def moved(self, characters: int) -> Tokens:
        """Return the run with `characters` added to each end."""
        return Tokens(ids=self.ids, ends=self.ends + characters)

    def until(self, end: int) -> Tokens:
        """Return the tokens that end at or before `end`."""
        count = int(np.searchsorted(self.ends, end, "right"))
        return Tokens(ids=self.ids[:count], ends=self.ends[:count])


class Circle:
    """A text without end: behind its last character stands its first, one position further."""

    def __init__(self, text: str, encoding: Encoding) -> None:
        self.characters = len(text)
        self._text = text
        self._tokenizer = encoding.tokenizer
        self._blocks: dict[int, Tokens] = {}
        self._count = max(1, len(text) // BLOCK)
        self._first_cut = cache(self._find_cut)

    def text(self, start: int, end: int) -> str:
        """Return the characters from `start` to `end`."""
        lap, start = divmod(start, self.characters)
        laps, end = divmod(end - lap * self.characters, self.characters)
        if laps == 0:
            return self._text[start:end]
        return self._text[start:] + self._text * (laps - 1) + self._text[:end]

    def after(self, position: int, count: int) -> Tokens:
        """Return the first `count` tokens that end behind `position`, or fewer: at most about one lap."""
        number = self._block_at(position)
        parts: list[Tokens] = []
        missing, last = count, number + self._count
        while missing > 0 and number <= last:
            # A token has about four characters. A block encoded too many is one that another row will use.
            wanted = range(number, number + min(BATCH, 1 + missing * 4 // BLOCK))
            self._encode(wanted)
            for part in map(self._block, wanted):
                first = int(np.searchsorted(part.ends, position, "right"))
                parts.append(Tokens(ids=part.ids[first:][:missing], ends=part.ends[first:][:missing]))
                missing -= len(parts[-1].ids)
            number = wanted.stop
        return Tokens(
            ids=np.concatenate([p.ids for p in parts]), ends=np.concatenate([p.ends for p in parts])
        )

    def count_tokens(self) -> int:
        """Return the number of tokens of the whole circle, and encode what is not encoded yet."""
        for start in range(0, self._count, BATCH):
            self._encode(range(start, min(start + BATCH, self._count)))
        return sum(len(block.ids) for block in self._blocks.values())

    def _block(self, number: int) -> Tokens:
        lap, number = divmod(number, self._count)
        return self._blocks[number].moved(lap * self.characters)

    def _block_at(self, position: int) -> int:
        lap, within = divmod(position, self.characters)
        number = lap * self._count + min(within // BLOCK, self._count - 1)
        return number - (position < self._cut(number))

    def _encode(self, numbers: Iterable[int]) -> None:
        new = sorted({n % self._count for n in numbers} - self._blocks.keys())
        spans = [(self._cut(n), self._cut(n + 1)) for n in new]
        texts = [self.text(start - CONTEXT, stop + CONTEXT) for start, stop in spans]
        found = self._tokenizer.encode_batch(texts, add_special_tokens=False) if texts else []
        for number, (start, stop), encoded in zip(new, spans, found, strict=True):
            ends = spans_of(encoded)[:, 1] + (start - CONTEXT)
            first, last = np.searchsorted(ends, (start, stop), "right")
            ids = np.array(encoded.ids, dtype=np.uint32)
            self._blocks[number] = Tokens(ids=ids[first:last], ends=ends[first:last])

    def _cut(self, number: int) -> int:
        """Return where a block begins."""
        lap, number = divmod(number, self._count)
        return self._first_cut(number) + lap * self.characters

    def _find_cut(self, number: int) -> int:
        """Return the first place behind a multiple of BLOCK where both a word and a token end."""
        start = number * BLOCK - CONTEXT
        text = self.text(start, start + 4 * CONTEXT)
        ends = whole_ends(self._tokenizer.encode(text, add_special_tokens=False))
        places = (m.end() for m in _CUT.finditer(text, CONTEXT, 3 * CONTEXT))
        place = next((p for p in places if p in ends), None)
        return start + (place or min((e for e in ends if e >= CONTEXT), default=CONTEXT))


def with_offsets(encoding: Encoding) -> Encoding:
    """Return the encoding with a tokenizer whose offsets include all white space.

    A post-processor such as GPT-2's trims white space off the offsets; without it the tokens are the same.
    """
    after = encoding.tokenizer.post_processor
    if after is None or b'"trim_offsets":true' not in after.__getstate__():
        return encoding
    tokenizer = copy.deepcopy(encoding.tokenizer)
    tokenizer.post_processor = None
    return dataclasses.replace(encoding, tokenizer=tokenizer)


def spans_of(encoded: Encoded) -> NDArray[np.int64]:
    """Return where each token's text starts and ends, shape (tokens, 2)."""
    return np.array(encoded.offsets, dtype=np.int64).reshape(-1, 2)


def whole_ends(encoded: Encoded) -> dict[int, int]:
    """Return each position at which a token and a whole character end, with the tokens up to it."""
    spans = encoded.offsets
    starts = [start for start, _ in spans[1:]] + [spans[-1][1]] if spans else []
    return {end: n for n, ((_, end), start) in enumerate(zip(spans, starts, strict=True), 1) if end <= start}


def safe_text(texts: Sequence[str], encoding: Encoding, follow: Follow) -> str:
    """Return the texts as one text, safe to send, whose tokens stay the same if it is cut before `follow`.

    encoding: made by `with_offsets`. If a cut there is safe, white space ends the text, whose start follows.
    Braces become parentheses. Control characters, characters that the tokenizer does not know and special
    tokens are left out; so are, if they are few, characters of several tokens, inside which no cut can be.
    """
    text = _LINE_END.sub("\n", "\n\n".join(text.strip() for text in texts))
    text = unicodedata.normalize("NFC", text)
    text = text.translate(_replacements(set(text), encoding))
    text = _without_special(_without_split(text, encoding), encoding)
    text = _LONG.sub(r"\g<0>\n", text).strip()
    text = _Spaces(encoding, follow).made_safe(f"{text}\n\n{text[:1]}")[:-1] if text else ""
    return _without_special(text, encoding)


def _without_special(text: str, encoding: Encoding) -> str:
    added = (token.content for token in encoding.tokenizer.get_added_tokens_decoder().values())
    special = re.compile("|".join(re.escape(token) for token in added if token.strip()) or "(?!)")
    # The text on both sides of a removed token may make another special token.
    while (left := unicodedata.normalize("NFC", special.sub("", text))) != text:
        text = left
    return text


def _replacements(characters: set[str], encoding: Encoding) -> Mapping[int, str | None]:
    """Return the table for str.translate: unsafe and unknown characters removed, braces made parentheses."""
    ordered = sorted(characters)
    hygiene = Hygiene(encoding)
    found: dict[int, str | None] = {ord(c): None for c in ordered if hygiene.fault(f".\n{c}.")}
    plain, *rare = (encoding.encode(text) for text in ("The", *(f"The{c}" for c in _RARE)))
    unknown = rare[0][-1] if rare[0] == rare[1] != plain else None
    encoded = encoding.tokenizer.encode_batch_fast([f"The{c}" for c in ordered], add_special_tokens=False)
    for character, ids in zip(ordered, (e.ids for e in encoded), strict=True):
        if unknown in ids or (ids == plain and not character.isspace()):
            found[ord(character)] = None
    return found | {ord("{"): "(", ord("}"): ")", 0xFEFF: None}


def _without_split(text: str, encoding: Encoding) -> str:
    """Return the text without characters of several tokens, if they are few."""
    tokenizer = encoding.tokenizer
    characters = sorted(c for c in set(text) if not c.isascii())
    suspected: set[str] = set()
    for before in ("The", "The ", "The \u6625"):
        found = tokenizer.encode_batch([before + c for c in characters], add_special_tokens=False)
        suspected |= {c for c, e in zip(characters, found, strict=True) if _split(e, len(before))}
    if not suspected:
        return text
    pattern = re.compile(f"[{''.join(map(re.escape, sorted(suspected)))}]")
    if sum(1 for _ in pattern.finditer(text)) > len(text) // FEW:
        return text

    @cache
    def is_split(before: str, character: str, after: str) -> bool:
        # A character that is several tokens alone may be part of one longer token here.
        encoded = tokenizer.encode(before + character + after, add_special_tokens=False)
        return _split(encoded, len(before))

    def kept(found: re.Match[str]) -> str:
        at = found.start()
        return "" if is_split(text[max(0, at - 6) : at], found[0], text[at + 1 : at + 7]) else found[0]

    return pattern.sub(kept, text)


def _split(encoded: Encoded, position: int) -> bool:
    """Return whether the character at a position belongs to more than one token."""
    spans = spans_of(encoded)
    return int(((spans[:, 0] <= position) & (spans[:, 1] > position)).sum()) > 1


class _Spaces:
    """Keeps a run of white space, or makes it simpler until the text can be cut at each of its tokens."""

    def __init__(self, encoding: Encoding, follow: Follow) -> None:
        self._encoding = encoding
        self._follow = follow
        self._safe = cache(self._made_safe)

    def made_safe(self, text: str) -> str:
        """Return the text with each run of white space made safe."""
        return _SPACE.sub(self._replaced, text)

    def _replaced(self, found: re.Match[str]) -> str:
        text, start, end = found.string, found.start(), found.end()
        return self._safe(_word_like(text[start - 1]), found[0], _word_like(text[end]))

    def _made_safe(self, before: str, run: str, after: str) -> str:
        before = f"The {before}" if before[-1].isalnum() else f"The stone{before}"
        after = after if after[0].isalnum() else f"{after} the"
        lines = run.count("\n")
        simpler = [run] * (len(run) <= MOST_RUN) + ["\n\n"] * (lines > 1) + ["\n"] * (lines > 0) + [" "]
        return next((s for s in simpler if self._survives(before, s, after)), "")

    def _survives(self, before: str, run: str, after: str) -> bool:
        text = before + run + after
        encoded = self._encoding.tokenizer.encode(text, add_special_tokens=False)
        cuts = (c for c in whole_ends(encoded).items() if len(before) <= c[0] <= len(before) + len(run))
        return all(
            self._encoding.encode(text[:end] + self._follow.text) == [*encoded.ids[:count], *self._follow.ids]
            for end, count in cuts
        )


def _word_like(character: str) -> str:
    """Return what stands for a character beside white space: one word for all letters, to try few cases."""
    if character.isascii() and character.isalnum():
        return "stone" if character.isalpha() else "42"
    return "\u6625" if _HAN.match(character) else character
