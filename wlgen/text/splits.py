"""Where a pre-tokenizer splits, known from its structure and not from trying texts.

wlgen encodes each word once, and may then write words side by side without encoding them again only if the
pre-tokenizer splits between them whatever stands around. Trying texts cannot show that: a pattern such as
" river lamp| ?[a-z]+" keeps one rare pair together. So this module reads the pattern, and trusts it if no
match can run across a join, if no look at the surroundings decides a match, and if every letter is in some
match.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LETTERS, MARKS, SPACE = frozenset(string.ascii_letters), frozenset(".,:"), frozenset(" ")
ALPHABET = LETTERS | MARKS | SPACE | {"\n"}  # every character that atoms and fixed texts are made of
JOINS = frozenset({("letter", " "), ("letter", "mark"), ("mark", " ")})
"""The characters on both sides of a join of two atoms: "river| lamp", "river|.", ".| The"."""

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # ByteLevel's own
_SAME_IN_ASCII = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "BertNormalizer"}
_ONE_CHARACTER = re.compile(
    r"\\[pP]\{\^?\w+\}|\\x[0-9a-fA-F]{2}|\\x\{\w+\}|\\u[0-9a-fA-F]{4}|\\[^\w]|\\[sSdDwWrntfv]"
)
_TIMES = re.compile(r"(?:[?*+]|\{\d*,?\d*\})[?+]?")
_OPEN = re.compile(r"\((?:\?(i?):)?(?!\?)")
_WHITE_AHEAD = re.compile(r"\(\?[!=]\\S\)")  # looks at one character ahead, which belongs to the same atom


class _UnknownFormError(Exception):
    """The pattern has a form that this module does not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What a part of a pattern may match, over the ALPHABET.

    holds: characters that a match may hold. pairs: (a, b) if a match may hold a before b, next to each other
    or not. alone: characters that the part matches alone, whatever stands around. empty: whether it matches
    the empty text, whatever stands around.
    """

    holds: frozenset[str] = frozenset()
    pairs: frozenset[tuple[str, str]] = frozenset()
    alone: frozenset[str] = frozenset()
    empty: bool = False

    def then(self, other: _Part) -> _Part:
        """Return the part that matches as this one and then the other does."""
        alone = (self.alone if other.empty else frozenset()) | (other.alone if self.empty else frozenset())
        crossing = frozenset(product(self._kinds(), other._kinds()))
        return _Part(
            holds=self.holds | other.holds,
            pairs=self.pairs | other.pairs | crossing,
            alone=alone,
            empty=self.empty and other.empty,
        )

    def or_else(self, other: _Part) -> _Part:
        """Return the part that matches as this one or the other does."""
        return _Part(
            holds=self.holds | other.holds,
            pairs=self.pairs | other.pairs,
            alone=self.alone | other.alone,
            empty=self.empty or other.empty,
        )

    def times(self, quantifier: str) -> _Part:
        """Return the part repeated."""
        once = quantifier.startswith("?")
        least_none = quantifier[0] in "?*" or quantifier.startswith(("{0", "{,"))
        repeated = self if once else self.then(self)
        alone = frozenset() if quantifier[0] == "{" and not _takes_one(quantifier) else self.alone
        return _Part(holds=self.holds, pairs=repeated.pairs, alone=alone, empty=self.empty or least_none)

    def _kinds(self) -> set[str]:
        found = {"letter" if self.holds & LETTERS else "", "mark" if self.holds & MARKS else ""}
        return (found | (self.holds & SPACE)) - {""}


def _takes_one(quantifier: str) -> bool:
    least, _, most = quantifier.strip("{}?+").partition(",")
    return int(least or 0) <= 1 and (most == "" or int(most) >= 1)


@dataclass(slots=True)
class _Reader:
    """Reads a pattern; _UnknownFormError if its form is not known to be safe."""

    pattern: str
    at: int = 0
    fold: list[bool] = field(default_factory=lambda: [False])

    def read(self) -> _Part:
        found = self._either()
        if self.at < len(self.pattern):
            raise _UnknownFormError
        return found

    def _either(self) -> _Part:
        found = self._sequence()
        while self.pattern.startswith("|", self.at):
            self.at += 1
            found = found.or_else(self._sequence())
        return found

    def _sequence(self) -> _Part:
        found, looks = _Part(empty=True), False
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            ahead = _WHITE_AHEAD.match(self.pattern, self.at)
            if ahead:
                self.at, looks = ahead.end(), True
                continue
            part = self._one()
            times = _TIMES.match(self.pattern, self.at)
            if times:
                self.at = times.end()
                part = part.times(times[0])
            found = found.then(part)
        if not looks:
            return found
        if found.holds & (LETTERS | MARKS):
            raise _UnknownFormError
        return _Part(holds=found.holds, pairs=found.pairs)

    def _one(self) -> _Part:
        """Read a group or the pattern of one character."""
        opened = _OPEN.match(self.pattern, self.at)
        if opened:
            self.at = opened.end()
            self.fold.append(bool(opened[1]) or self.fold[-1])
            found = self._either()
            self.fold.pop()
            if not self.pattern.startswith(")", self.at):
                raise _UnknownFormError
            self.at += 1
            return found
        start = self.at
        self.at = self._end_of_character()
        matched = _matched(self.pattern[start : self.at], fold=self.fold[-1])
        return _Part(holds=matched, alone=matched)

    def _end_of_character(self) -> int:
        first = self.pattern[self.at]
        if first == "[":
            return self._end_of_class()
        if first == "\\":
            found = _ONE_CHARACTER.match(self.pattern, self.at)
            if found is None:
                raise _UnknownFormError  # \b, \G or a reference to a group
            return found.end()
        if first in "()^$*+?{":
            raise _UnknownFormError
        return self.at + 1

    def _end_of_class(self) -> int:
        depth, at = 0, self.at
        while at < len(self.pattern):
            if self.pattern[at] == "\\":
                at += 1
            elif self.pattern[at] == "[":
                depth += 1
                if self.pattern.startswith(("[^]", "[]"), at):
                    raise _UnknownFormError
            elif self.pattern[at] == "]":
                depth -= 1
                if depth == 0:
                    return at + 1
            at += 1
        raise _UnknownFormError


@cache
def _matched(character: str, *, fold: bool) -> frozenset[str]:
    """Return the characters that a pattern of one character matches in the tokenizer's own regex engine."""
    from tokenizers import Regex, pre_tokenizers  # noqa: PLC0415 (not every import of this room needs it)

    try:
        split = pre_tokenizers.Split(Regex(f"(?i:{character})" if fold else character), "removed")
    except Exception as failure:  # tokenizers raises bare Exception for what its engine does not take
        raise _UnknownFormError from failure
    return frozenset(c for c in ALPHABET if not split.pre_tokenize_str(c))


@cache
def joins_split_by(pattern: str) -> frozenset[tuple[str, str]] | None:
    """Return the joins at which a pattern always splits; None if that may depend on what stands around.

    A pattern of digits alone splits none of the joins, and GPT-2's splits all of them.
    """
    try:
        part = _Reader(pattern).read()
    except (_UnknownFormError, RecursionError, ValueError):
        return None
    if part.empty or part.pairs & JOINS:
        return None
    # No match runs across a join, so the pattern splits a join if one of its sides is always in a match.
    sure = {"letter": part.alone >= LETTERS, "mark": part.alone >= MARKS, " ": part.alone >= SPACE}
    return frozenset(join for join in JOINS if any(sure[side] for side in join))


def splits_between_words(tokenizer: Tokenizer) -> bool:
    """Return whether the structure of a tokenizer shows that it splits every join of atoms."""
    fields = json.loads(_without_model(tokenizer))
    normalizers = [n["type"] for n in _steps(fields["normalizer"], "normalizers")]
    if not set(normalizers) <= _SAME_IN_ASCII:
        return False  # Gemma's normalizer writes "▁" for spaces before the pre-tokenizer sees them
    split: frozenset[tuple[str, str]] = frozenset()
    for step in _steps(fields["pre_tokenizer"], "pretokenizers"):
        found = _joins_of(step)
        if found is None:
            return False
        split |= found
    return split == JOINS


def _without_model(tokenizer: Tokenizer) -> str:
    """Return the tokenizer's steps as JSON, without its vocabulary, which takes 0.1 s to write."""
    states = {
        "normalizer": tokenizer.normalizer,
        "pre_tokenizer": tokenizer.pre_tokenizer,
    }
    written = (
        f'"{key}": {value.__getstate__().decode() if value else "null"}' for key, value in states.items()
    )
    return "{" + ", ".join(written) + "}"


def _steps(part: dict[str, Any] | None, key: str) -> Iterator[dict[str, Any]]:
    if part is not None and part["type"] == "Sequence":
        for each in part[key]:
            yield from _steps(each, key)
    elif part is not None:
        yield part


def _joins_of(step: dict[str, Any]) -> frozenset[tuple[str, str]] | None:
    """Return the joins that one pre-tokenizer splits, or None for a kind that this module does not know."""
    kind = step["type"]
    if kind == "ByteLevel":
        return joins_split_by(GPT2) if step.get("use_regex", True) else frozenset()
    if kind in ("BertPreTokenizer", "Whitespace"):
        return JOINS
    if kind in ("WhitespaceSplit", "Digits", "Punctuation"):
        marks = step.get("behavior") in ("Isolated", "Removed", "Contiguous")
        by_marks = frozenset({("letter", "mark"), ("mark", " ")}) if marks else None
        by_white = frozenset({("letter", " "), ("mark", " ")})
        return {"WhitespaceSplit": by_white, "Digits": frozenset(), "Punctuation": by_marks}[kind]
    if kind == "Split":
        plain = (step["behavior"], step["invert"]) in (("Isolated", False), ("Removed", True))
        pattern = step["pattern"]
        return joins_split_by(pattern.get("Regex") or re.escape(pattern["String"])) if plain else None
    return None
