"""corpus: the person's own text, from files or a data set, cut only where the cut changes no token.

Each stream is a stretch of the corpus that begins with a sentence; behind the last text stands the first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from wlgen.errors import WlgenError, error
from wlgen.streams import Coordinates, below, part, words
from wlgen.strict.model import Strict, key, refusal
from wlgen.tasks._corpus_files import MOST_CHARACTERS, CorpusSource, read_dataset, read_files
from wlgen.tasks._corpus_text import CONTEXT, Circle, Ends, Follow, Tokens, safe_text, spans_of, with_offsets
from wlgen.text.lexicon import Chunk, Ids, Lexicon

ACCEPTANCE = "the text is your own, so it is that of a model that goes on with your text"
_SEAM = 256  # characters beside a seam that are encoded to test the seam
_AGREED = 16  # tokens beside the seam that must then be the same
_DRAWS = 16  # places tried for the start of a stream
_TRIED = 4  # starts of sentences, and then of words, tried behind each place
_MOST_ADDED = 64  # words tried in place of a corpus's last tokens
_SECONDS = 3  # how many second tokens of a stream are tried before its text
_SENTENCE = re.compile(r"(?:[。！？\n]|[.!?]\s)\s*(?=[^\W_])")  # noqa: RUF001 (as Chinese writes them)
_WORD = re.compile(r"\W(?=[^\W_])")

_Text = Annotated[str, Field(min_length=1)]


class Options(Strict):
    """Where the text comes from: files, or a data set of the hub."""

    files: _Text | list[_Text] | None = key(
        "Paths or globs of text, .jsonl or .parquet files, relative to the spec. ~ and $VARIABLES are "
        "expanded.",
        example="corpus/*.jsonl",
        default=None,
    )
    dataset: _Text | None = key(
        "A data set of the hub, in place of files.", example="wikimedia/wikipedia", default=None
    )
    config: _Text | None = key("The data set's configuration.", example="20231101.en", default=None)
    split: _Text | None = key("The data set's split. Left out, it is train.", example="test", default=None)
    revision: _Text | None = key("The branch, tag or commit of the data set.", example="main", default=None)
    column: _Text = key("The column that holds the text.", example="content", default="text")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.files is None) == (self.dataset is None):
            found = "neither" if self.files is None else "both"
            remedy = (
                "Write files: corpus/*.jsonl, for example." if self.files is None else "Delete one of them."
            )
            raise refusal(expected="files or dataset", found=found, remedy=remedy)
        if self.files == []:
            raise refusal(expected="at least one file", found="an empty list", key="files")
        for name in ("config", "split", "revision"):
            if self.files is not None and getattr(self, name) is not None:
                raise refusal(
                    expected=f"{name} only with dataset",
                    found=f"{name} with files",
                    remedy="Delete it.",
                    key=name,
                )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """The start of a stream's text.

    opener: " " or "", written before the text. start: the position of its first character in the circle.
    tokens: its first tokens, up to where the circle's own tokens are the same.
    """

    opener: str
    start: int
    tokens: Tokens


class Corpus:
    """Streams are stretches of one circle of text.

    A text cannot be cut inside a character of several tokens: a stretch that would end there ends in words
    of the lexicon instead. Then a shorter stretch is not the start of a longer one, and `shared` raises. If
    such characters are few, `safe_text` has left them out.
    """

    proved = False

    def __init__(self, source: CorpusSource, lexicon: Lexicon, place: str) -> None:
        self.content_sha256 = source.sha256
        self._source = source
        self._lexicon = lexicon
        self._place = place
        self._encoding = with_offsets(lexicon.encoding)
        self._asked: defaultdict[Coordinates, set[int]] = defaultdict(set)
        self._ended_by_words: set[Coordinates] = set()

    def least_own(self, output_len: int) -> int:
        """Return 0: this task has no least length."""
        del output_len
        return 0

    def shared(self, stream: Coordinates, tokens: int) -> Chunk:
        """Return text of the corpus; WlgenError if it has too little, or cannot be cut at each length."""
        chunk, added = self._stretch(stream, tokens, self._lead, ends_body=False)
        self._asked[stream].add(tokens)
        if added:
            self._ended_by_words.add(stream)
        if stream in self._ended_by_words and len(self._asked[stream]) > 1:
            raise self._unstable(stream)
        return chunk

    def own(self, stream: Coordinates, tokens: int, output_len: int) -> Chunk:
        """Return text of the corpus; WlgenError if it has too little."""
        del output_len
        return self._stretch(stream, tokens, self._tail, ends_body=True)[0]

    def _stretch(
        self, stream: Coordinates, tokens: int, follow: Follow, *, ends_body: bool
    ) -> tuple[Chunk, int]:
        """Return a stream's first tokens, and how many of the last are words in place of the corpus's own."""
        # count_tokens encodes the whole circle, so it is asked only if there are under 8 characters a token.
        if 8 * tokens > self._circle.characters and tokens > self._circle.count_tokens():
            raise self._too_little(tokens)
        begun = self._begun(stream)
        first = begun.tokens
        ids, ends = first.ids[:tokens], first.ends[:tokens]
        if tokens > len(first.ids):
            rest = self._circle.after(int(first.ends[-1]), tokens - len(first.ids))
            ids, ends = np.concatenate([ids, rest.ids]), np.concatenate([ends, rest.ends])
        if len(ids) < tokens or ends[-1] - begun.start > self._circle.characters:
            raise self._too_little(tokens)
        tried = (
            (self._ended(begun, ids[: tokens - added], ends, part(stream, "end"), added), added)
            for added in (*range(min(tokens, _MOST_ADDED + 1)), tokens)
        )
        return next(
            (chunk, added)
            for chunk, added in tried
            if added == tokens
            or (self._survives(chunk, follow) and not (ends_body and chunk.text[-1].isspace()))
        )

    def _ended(self, begun: _Stretch, ids: Ids, ends: Ends, stream: Coordinates, added: int) -> Chunk:
        """Return a stretch of these ids with `added` random words behind it."""
        text = begun.opener + self._circle.text(begun.start, int(ends[len(ids) - 1])) if len(ids) else ""
        if not added:
            return Chunk(ids=ids, text=text)
        fill = self._lexicon.random_words(stream, added)
        return Chunk(ids=ids, text=text).append(fill)

    def _survives(self, chunk: Chunk, follow: Follow) -> bool:
        """Return whether the last tokens of a chunk are the same with `follow` behind them."""
        encode = self._encoding.encode
        before = self._before[0]
        if len(chunk.text) <= _SEAM:
            whole = [*before.ids, *chunk.ids.tolist(), *follow.ids]
            return encode(before.text + chunk.text + follow.text) == whole
        expected = [*chunk.ids[-_AGREED:].tolist(), *follow.ids]
        # A run of one character that begins before the short window may have other tokens in it.
        ends = (chunk.text[-characters:] for characters in (_SEAM, 2 * CONTEXT))
        return any(encode(end + follow.text)[-len(expected) :] == expected for end in ends)

    def _begun(self, stream: Coordinates) -> _Stretch:
        """Return the first stretch that the stream draws whose tokens do not merge with those before it."""
        starts = below(words(part(stream, "start"), _DRAWS), self._circle.characters).tolist()
        tried = (self._tried(at) for draw in starts for at in self._sentences(draw))
        begun = next(filter(None, tried), None)
        if begun is None:
            raise error(
                self._place,
                expected="text whose tokens stay the same behind the first words of a row",
                found=f"no such text, with the tokenizer of {self._encoding.name}",
                remedy="Use the task copy or words with this tokenizer.",
            )
        return begun

    def _sentences(self, position: int) -> Iterator[int]:
        """Yield where sentences begin behind a position, then where words begin, then the position itself."""
        text = self._circle.text(position, position + 4 * CONTEXT)
        for pattern in (_SENTENCE, _WORD):
            yield from (position + m.end() for m in islice(pattern.finditer(text), _TRIED))
        yield position

    def _tried(self, start: int) -> _Stretch | None:
        """Return the stretch from `start`, or None if its tokens merge with those before it."""
        ascii_first = self._circle.text(start, start + 1).isascii()
        for opener in (" ", "") if ascii_first else ("", " "):
            for characters in (_SEAM, 2 * CONTEXT):
                tokens = self._joined(opener, start, characters)
                if tokens is not None:
                    return _Stretch(opener=opener, start=start, tokens=tokens)
        return None

    def _joined(self, opener: str, start: int, characters: int) -> Tokens | None:
        """Return a stretch's tokens up to where the circle's own have been the same for _AGREED tokens."""
        text = opener + self._circle.text(start, start + 2 * characters)
        tokens = self._behind(self._before[0], text)
        others = [self._behind(before, text[:_SEAM]) for before in self._before[1:]]
        if tokens is None or not all(
            o and np.array_equal(o.ids[:_AGREED], tokens.ids[:_AGREED]) for o in others
        ):
            return None
        tokens = tokens.moved(start - len(opener)).until(start + characters)
        own = self._circle.after(start, len(tokens.ids) + _AGREED).until(start + characters)
        same = len(own.ids) >= _AGREED and own.ends[-1] == tokens.ends[-1]
        return tokens if same and np.array_equal(own.ids[-_AGREED:], tokens.ids[-_AGREED:]) else None

    def _behind(self, before: Follow, text: str) -> Tokens | None:
        """Return the tokens of `text` behind `before`, or None if a token holds text of both."""
        encoded = self._encoding.tokenizer.encode(before.text + text, add_special_tokens=False)
        first = len(before.ids)
        spans = spans_of(encoded) - len(before.text)
        if encoded.ids[:first] != before.ids or spans[first - 1, 1] > 0 or (spans[first:, 0] < 0).any():
            return None
        return Tokens(ids=np.array(encoded.ids[first:], dtype=np.uint32), ends=spans[first:, 1])

    @cached_property
    def _circle(self) -> Circle:
        text = safe_text(self._source.texts, self._encoding, self._lead)
        if not text:
            expected = f"text that the tokenizer of {self._encoding.name} knows"
            raise error(self._place, expected=expected, found="none in the corpus")
        return Circle(text, self._encoding)

    @cached_property
    def _lead(self) -> Follow:
        """What may stand behind a shared part: the first two tokens of another stream."""
        atoms = (self._lexicon.inner_leads.at(0)[0], self._lexicon.seconds[0])
        return Follow("".join(a.text for a in atoms), [a.id for a in atoms])

    @cached_property
    def _tail(self) -> Follow:
        framing = self._encoding.frame(("user",))
        return Follow(framing.texts[-1], list(framing.ids[-1]))

    @cached_property
    def _before(self) -> list[Follow]:
        """What may stand before a stream's text: a word and the stream's own first two tokens."""
        lead = self._lexicon.inner_leads.at(0)[0]
        texts = [f"The{lead.text}{second.text}" for second in self._lexicon.seconds[:_SECONDS]]
        return [Follow(text, self._encoding.encode(text)) for text in texts]

    def _too_little(self, tokens: int) -> WlgenError:
        cut = f" in the first {MOST_CHARACTERS} characters, which is all that is read" * self._source.cut
        return error(
            self._place,
            expected=f"a corpus of at least {tokens} tokens, so that no row repeats a part of itself",
            found=f"{self._circle.count_tokens()} tokens{cut}",
            remedy="Use shorter requests." if cut else "Add text, or use shorter requests.",
        )

    def _unstable(self, stream: Coordinates) -> WlgenError:
        lengths = ", ".join(map(str, sorted(self._asked[stream])))
        return error(
            self._place,
            expected=f"text that can be cut behind {lengths} tokens",
            found="a character of several tokens at the cut: rows would share less than planned",
            remedy="Use another random_seed, or a tokenizer that knows the characters of this text.",
        )


def make(options: Options, lexicon: Lexicon, *, place: str, folder: Path) -> Corpus:
    """Return the task for a lexicon. The corpus is read now, and encoded as far as rows need it."""
    return Corpus(_source(options, place, folder), lexicon, place)


def content_sha256(options: Options, *, place: str, folder: Path) -> str:
    """Return the sha256 of the corpus as it is now."""
    return _source(options, place, folder).sha256


def _source(options: Options, place: str, folder: Path) -> CorpusSource:
    if options.dataset is not None:
        return read_dataset(
            options.dataset,
            config=options.config,
            split=options.split or "train",
            revision=options.revision,
            column=options.column,
            place=f"{place}.dataset",
        )
    patterns = [options.files] if isinstance(options.files, str) else options.files or []
    return read_files(patterns, options.column, folder, f"{place}.files")
