"""The lexicon of one encoding: its atoms, words that are one token each and never merge with a neighbour.

    head | "Harbor" ":" " The" " quiet" ... "." | " granite" ":" " Near" ... | tail
           start lead                              inner lead

A lead is the first token of a stream and stands nowhere else, so that two streams with different leads
differ at once, whatever follows. Words fill the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from wlgen import streams
from wlgen.encodings import Encoding
from wlgen.errors import WlgenError, error
from wlgen.streams import Coordinates, below, permutation, words
from wlgen.text import english
from wlgen.text.splits import splits_between_words

MOST_WORDS = 2000
LEAST_LETTERS = 3  # shorter tokens, such as " re", are often fragments of words
BANK = 4096  # sentences of 16 tokens: eight of them fill a page of 128 in 4096**8 = 2**96 ways
BLOCK = 128  # candidates for leads that are encoded in one call
_MARKERS = "Ġ▁"  # how byte-level and SentencePiece vocabularies write a space
_WORD = re.compile(rf"[{_MARKERS}]?[A-Z]?[a-z]{{2,13}}")

Ids = NDArray[np.uint32]


class Atom(NamedTuple):
    """A text that is one token, whatever stands around it."""

    text: str
    id: int


class Chunk:
    """A run of tokens: ids, shape (tokens,), and text; both are kept in parts, and joined when first read."""

    __slots__ = ("id_parts", "texts")

    def __init__(self, *, ids: Ids, text: str) -> None:
        self.id_parts = [ids]
        self.texts = [text]

    def append(self, other: Chunk) -> Self:
        """Add the tokens of another chunk to this one, and return this one."""
        self.id_parts += other.id_parts
        self.texts += other.texts
        return self

    @property
    def ids(self) -> Ids:
        """The token ids, shape (tokens,)."""
        if len(self.id_parts) > 1:
            self.id_parts = [np.concatenate(self.id_parts)]
        return self.id_parts[0]

    @property
    def text(self) -> str:
        """The text that encodes to `ids`."""
        if len(self.texts) > 1:
            self.texts = ["".join(self.texts)]
        return self.texts[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The texts around a candidate that is tested for being an atom, and the ids that they must keep."""

    before: str
    after: str
    before_ids: list[int]
    after_ids: list[int]

    def between(self, ids: list[int]) -> list[int] | None:
        """Return the ids between `before` and `after`, or None if the candidate changed their ids."""
        start, stop = len(self.before_ids), len(ids) - len(self.after_ids)
        kept = start <= stop and ids[:start] == self.before_ids and ids[stop:] == self.after_ids
        return ids[start:stop] if kept else None


class Leads:
    """First tokens of streams, in a fixed order; a candidate is tested only when an ordinal reaches it.

    Ordinal 0 is the first lead and -1 the last, as in a list: leads counted from the front and from the back
    meet only when every lead is in use.
    """

    def __init__(self, candidates: list[str], check: Callable[[list[str]], list[Atom]]) -> None:
        self._candidates = candidates
        self._check = check
        self._blocks: dict[int, list[Atom]] = {}
        numbers = range(-(-len(candidates) // BLOCK))
        self._front: tuple[list[Atom], Iterator[int]] = ([], iter(numbers))
        self._back: tuple[list[Atom], Iterator[int]] = ([], reversed(numbers))

    def at(self, ordinal: int) -> tuple[Atom, int]:
        """Return an ordinal's lead, and how often all leads are used up before it.

        With 1000 leads, 2003 gets the lead of 3, and 2: the streams of 3 and 2003 differ at the second token.
        """
        place = ordinal if ordinal >= 0 else -1 - ordinal
        atoms = self._up_to(place, front=ordinal >= 0)
        if not atoms:
            raise _too_small("words that can start a stream", "none")
        return atoms[place % len(atoms)], place // len(atoms)

    def suffice(self, least: int, most: int) -> bool:
        """Return whether all ordinals from `least`, below 0, to `most` have different leads."""
        front, back = max(0, most + 1), max(0, -least)
        atoms = self._up_to(front - 1, front=True)[:front] + self._up_to(back - 1, front=False)[:back]
        return len({atom.id for atom in atoms}) == front + back

    def _up_to(self, place: int, *, front: bool) -> list[Atom]:
        """Return the leads of one side in order: at least up to `place`, or all if there are fewer."""
        atoms, numbers = self._front if front else self._back
        while len(atoms) <= place and (number := next(numbers, None)) is not None:
            block = self._block(number)
            atoms += block if front else reversed(block)
        return atoms

    def _block(self, number: int) -> list[Atom]:
        if number not in self._blocks:
            self._blocks[number] = self._check(self._candidates[number * BLOCK : (number + 1) * BLOCK])
        return self._blocks[number]


class Lexicon:
    """The atoms of an encoding, found by encoding words of its vocabulary between neighbours."""

    def __init__(self, encoding: Encoding, random_seed: int) -> None:
        self.encoding = encoding
        self._seed = random_seed
        self._head = encoding.frame(("user",)).texts[0]
        self._head_ids = list(encoding.frame(("user",)).ids[0])
        spaced, plain = _vocabulary(encoding)
        self._spaced, self._plain = spaced or plain, plain

    @cached_property
    def words(self) -> tuple[Atom, ...]:
        """The words that fill texts, each with its space: English, and at most half of the vocabulary."""
        wanted = dict.fromkeys(w for p in english.PATTERNS for slot in p for w in slot if w.isalpha())
        plain = set(self._plain)
        whole = sorted(
            self._spaced, key=lambda w: not (w.islower() and len(w) > LEAST_LETTERS and w in plain)
        )
        common = whole[: max(1, min(MOST_WORDS, len(whole) // 2))]
        found = self._check([f" {w}" for w in dict.fromkeys((*wanted, *common))], self._inner)
        if not found:
            raise _too_small("words that stay one token between their neighbours", "none")
        return tuple(found)

    @cached_property
    def seconds(self) -> tuple[Atom, ...]:
        """The second tokens that streams take in turn: ":" and "," if they are atoms, then the words."""
        atoms = (*(self.marks[m] for m in (":", ",") if m in self.marks), *self.words)
        # With a tokenizer that lower-cases, "The" and "the" are the same token.
        return tuple({atom.id: atom for atom in atoms}.values())

    @cached_property
    def marks(self) -> dict[str, Atom]:
        """The punctuation marks that are atoms between words. Two marks side by side may merge."""
        return {atom.text: atom for atom in self._check([".", ",", ":"], [self._between])}

    def leads(self, *, at_start: bool) -> Leads:
        """Return the leads at the start of a body, or those inside it."""
        return self.start_leads if at_start else self.inner_leads

    @cached_property
    def start_leads(self) -> Leads:
        """The leads at the start of a body."""
        return self._leads("", self._start)

    @cached_property
    def inner_leads(self) -> Leads:
        """The leads inside a body: words of the vocabulary that fill no text."""
        return self._leads(" ", self._inner)

    @cached_property
    def bank(self) -> tuple[Ids, tuple[tuple[str, ...], ...]]:
        """The BANK sentences: ids, shape (BANK, SENTENCE_TOKENS), and the texts of each one's tokens."""
        known = {atom.text.strip(): atom for atom in self.words} | self.marks
        draws = words(streams.bank(self._seed), BANK * (english.SENTENCE_TOKENS + 1)).reshape(BANK, -1)
        which = below(draws[:, 0], len(english.PATTERNS))
        ids = np.empty((BANK, english.SENTENCE_TOKENS), dtype=np.uint32)
        texts: list[tuple[str, ...]] = [()] * BANK
        for number, pattern in enumerate(english.PATTERNS):
            slots = [[known[w] for w in slot if w in known] or self.words for slot in pattern]
            rows = np.flatnonzero(which == number)
            chosen = below(draws[rows, 1:], np.array([len(slot) for slot in slots], dtype=np.uint64))
            for column, slot in enumerate(slots):
                ids[rows, column] = np.array([atom.id for atom in slot])[chosen[:, column]]
            for row, picks in zip(rows.tolist(), chosen.tolist(), strict=True):
                texts[row] = tuple(slot[pick].text for slot, pick in zip(slots, picks, strict=True))
        return ids, tuple(texts)

    @cached_property
    def _sentences(self) -> tuple[str, ...]:
        return tuple(map("".join, self.bank[1]))

    def prose(self, stream: Coordinates, tokens: int) -> Chunk:
        """Return the first `tokens` tokens of a stream of sentences, which begins with a space."""
        whole, rest = divmod(tokens, english.SENTENCE_TOKENS)
        ids, texts = self.bank
        chosen = below(words(stream, whole + 1), BANK)
        *full, last = chosen.tolist()
        return Chunk(
            ids=ids.take(chosen, axis=0).reshape(-1)[:tokens],
            text="".join([*_picked(self._sentences, full), *texts[last][:rest]]),
        )

    def prose_to_stop(self, stream: Coordinates, tokens: int) -> Chunk:
        """Return `tokens` tokens of sentences: the first may lack its start, the last its full stop."""
        cut, whole = -(tokens + 1) % english.SENTENCE_TOKENS, -(-(tokens + 1) // english.SENTENCE_TOKENS)
        bank, texts = self.bank
        chosen = below(words(stream, whole), BANK)
        ids = bank.take(chosen, axis=0).reshape(-1)[cut:-1]
        first, *between = chosen.tolist()
        last = between.pop() if between else first
        start, end = (texts[first][cut:], texts[last][:-1]) if whole > 1 else (texts[first][cut:-1], ())
        if start[0] in self.marks:  # a stream's second token may be ":", and ":," would be one token
            ids[0] = self.words[0].id
            start = (self.words[0].text, *start[1:])
        return Chunk(ids=ids, text="".join([*start, *_picked(self._sentences, between), *end]))

    def random_words(self, stream: Coordinates, tokens: int) -> Chunk:
        """Return the first `tokens` tokens of a stream of uniformly random words."""
        ids, texts = self._word_table
        chosen = below(words(stream, tokens), len(ids))
        return Chunk(ids=ids[chosen], text="".join(_picked(texts, chosen.tolist())))

    @cached_property
    def _word_table(self) -> tuple[Ids, tuple[str, ...]]:
        return np.array([a.id for a in self.words], dtype=np.uint32), tuple(a.text for a in self.words)

    def fixed(self, text: str) -> Chunk:
        """Encode a text that stands between two words, or at the end of a body."""
        context = self._between
        ids = context.between(self.encoding.encode(context.before + text + context.after))
        if ids is None:
            raise error(
                f"encoding {self.encoding.name}",
                expected=f"fixed tokens for the text {text[:40]!r}",
                found="tokens that merge with its neighbours",
                remedy="Use the task `words` with this tokenizer.",
            )
        return Chunk(ids=np.array(ids, dtype=np.uint32), text=text)

    @cached_property
    def _between(self) -> Context:
        """What stands around a word inside a text: words."""
        before = self._head + "The the"
        return self._context(before, " the", self.encoding.encode(before))

    @cached_property
    def _inner(self) -> list[Context]:
        """What stands around a word inside a text: words and, where the tokenizer may merge them, marks."""
        found, before = [self._between], self._between.before
        if self._merges and "." in self.marks:
            found.append(self._context(f"{before}.", " the", self.encoding.encode(f"{before}.")))
        return found + [self._context(before, mark, self._between.before_ids) for mark in self._marks_behind]

    @cached_property
    def _start(self) -> list[Context]:
        """What stands around the first word of a body."""
        return [self._context(self._head, after, self._head_ids) for after in (" the", *self._marks_behind)]

    @cached_property
    def _merges(self) -> bool:
        """Whether the tokenizer may merge a word with the mark behind it, into "river." or "river,"."""
        return not splits_between_words(self.encoding.tokenizer)

    @property
    def _marks_behind(self) -> list[str]:
        return list(self.marks) if self._merges else []

    def _context(self, before: str, after: str, before_ids: list[int]) -> Context:
        """Return a context, with the ids that `after` has behind a word."""
        alone = self.encoding.encode(self._head + "The")
        behind = self.encoding.encode(self._head + "The" + after)
        return Context(before=before, after=after, before_ids=before_ids, after_ids=behind[len(alone) :])

    def _leads(self, before: str, contexts: list[Context]) -> Leads:
        """Return the leads: whole words, known with and without a space, stand at the front and the back."""
        spaced, plain = set(self._spaced), set(self._plain)
        whole = self._shuffled([w for w in self._spaced if w in plain])
        rest = [w for w in self._spaced if w not in plain]
        rest += [w for w in self._plain if w not in spaced] if not before else []
        half = len(whole) // 2
        order = [*whole[:half], *self._shuffled(rest), *whole[half:]]
        used = {atom.id for atom in self.words}

        def check(block: list[str]) -> list[Atom]:
            found = self._check(block, contexts)
            return [a for a in found if a.id not in used and self._bare(a.id) == a.text.strip()]

        return Leads([before + word for word in order], check)

    def _check(self, candidates: list[str], contexts: list[Context]) -> list[Atom]:
        """Return the candidates that are a single token, and the same one, in every context."""
        left = [Atom(text, -1) for text in candidates]
        for number, context in enumerate(contexts):
            left = [
                Atom(atom.text, ids[0])
                for atom, ids in zip(left, self._encode_between(left, context), strict=True)
                if ids is not None and len(ids) == 1 and (number == 0 or ids[0] == atom.id)
            ]
        return [a for a in left if self._bare(a.id).casefold() == a.text.strip().casefold()]

    def _encode_between(self, atoms: list[Atom], context: Context) -> Iterator[list[int] | None]:
        texts = [context.before + atom.text + context.after for atom in atoms]
        found = self.encoding.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return (context.between(encoded.ids) for encoded in found)

    def _bare(self, token_id: int) -> str:
        # A word that the tokenizer does not know is one token too: "<unk>". Its own text gives it away.
        return (self.encoding.tokenizer.id_to_token(token_id) or "").lstrip(_MARKERS)

    def _shuffled(self, candidates: list[str]) -> list[str]:
        order = permutation(streams.leads(self._seed), len(candidates))
        return [candidates[i] for i in order.tolist()]


def _picked(texts: tuple[str, ...], numbers: list[int]) -> tuple[str, ...]:
    """Return the texts of these numbers; an itemgetter takes 64 of them in 0.9 us, a loop in 1.9 us."""
    return itemgetter(*numbers)(texts) if len(numbers) > 1 else tuple(texts[n] for n in numbers)


def _vocabulary(encoding: Encoding) -> tuple[list[str], list[str]]:
    """Return the vocabulary's words in id order: those written with a space, and those without."""
    vocabulary = encoding.tokenizer.get_vocab(with_added_tokens=False)
    tokens = sorted(filter(_WORD.fullmatch, vocabulary), key=vocabulary.__getitem__)
    spaced = [token[1:] for token in tokens if token[0] in _MARKERS]
    return spaced, [token for token in tokens if token[0] not in _MARKERS]


def _too_small(expected: str, found: str) -> WlgenError:
    remedy = "Use a tokenizer with more whole words, or fewer rows that share one prefix."
    return error("tokenizer vocabulary", expected=expected, found=found, remedy=remedy)
