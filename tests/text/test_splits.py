"""A pre-tokenizer is trusted to split between words where its structure shows it, never because texts do."""

from __future__ import annotations

import pytest
from kit.families import GPT4
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from wlgen.text.splits import GPT2, JOINS, joins_split_by, splits_between_words

CL100K = GPT4.replace(r"\p{N}", r"\p{N}{1,3}", 1)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
HAN = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{L}&&[^\p{Han}]]+| ?[^\s\p{L}\p{N}]+|\s+"


@pytest.mark.parametrize("pattern", [GPT2, GPT4, CL100K, O200K, DEEPSEEK, HAN, r"\w+|[^\w\s]+"])
def test_patterns_of_models_split_every_join(pattern):
    assert joins_split_by(pattern) == JOINS


@pytest.mark.parametrize("pattern", [r"\p{N}{1,3}", r"[\u4e00-\u9fa5]+", r"[0-9][0-9]"])
def test_patterns_without_letters_split_none_and_harm_none(pattern):
    assert joins_split_by(pattern) == frozenset()


@pytest.mark.parametrize(
    "pattern",
    [
        " river lamp|" + GPT2,  # one rare pair
        r"(?: river){2}|" + GPT2,
        r" ?\p{L}+(?: of the)?|\s+",
        r" ?\p{L}+(?= lamp)|" + GPT2,  # what follows decides
        r"(?<= river) lamp|" + GPT2,
        r" ?\p{L}+(?! lamp)|\s+",
        r" ri(?!ver lamp)|" + GPT2,
        r"\b\w+|\s+",
        r"( ?\w)\1|" + GPT2,
        r" ?\S+|\s+",  # "river." stays together
        r"[^.]+|\.",  # a sentence stays together
        r".+",
        r"\p{L}*",  # an empty match
        r"(unclosed",
        r"[unclosed",
        r"(?>atomic)|" + GPT2,
        r"(?x) a b",
    ],
)
def test_patterns_that_may_keep_words_together_are_not_trusted(pattern):
    assert joins_split_by(pattern) is None


@pytest.mark.parametrize("pattern", [r"\p{L}{2,}|[.,:]+|[^\p{L}.,:\s]", r"[a-z]+|[.,:]"])
def test_a_pattern_that_leaves_letters_out_does_not_split_at_all_of_them(pattern):
    """Two one-letter words, or two capitals, would be one gap between its matches."""
    assert ("letter", " ") not in (joins_split_by(pattern) or ())


def tokenizer_of(
    pre: pre_tokenizers.PreTokenizer, normalizer: normalizers.Normalizer | None = None
) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return tokenizer


SPLIT = pre_tokenizers.Split
BYTES = pre_tokenizers.ByteLevel(use_regex=False)


@pytest.mark.parametrize(
    ("tokenizer", "expected"),
    [
        (tokenizer_of(pre_tokenizers.ByteLevel()), True),
        (tokenizer_of(pre_tokenizers.Sequence([SPLIT(Regex(GPT4), "isolated"), BYTES])), True),
        (tokenizer_of(SPLIT(Regex(GPT4), "removed", invert=True)), True),
        (tokenizer_of(SPLIT(Regex(GPT4), "removed")), False),
        (tokenizer_of(SPLIT(Regex(GPT4), "merged_with_previous")), False),
        (tokenizer_of(SPLIT("river lamp", "isolated")), False),
        (tokenizer_of(BYTES), False),
        (tokenizer_of(pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer()), True),
        (tokenizer_of(pre_tokenizers.WhitespaceSplit()), False),
        (
            tokenizer_of(
                pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
            ),
            True,
        ),
        (tokenizer_of(pre_tokenizers.Metaspace()), False),
        (tokenizer_of(pre_tokenizers.ByteLevel(), normalizers.Replace(" ", "▁")), False),
        (
            tokenizer_of(
                pre_tokenizers.Sequence([pre_tokenizers.FixedLength(5), pre_tokenizers.ByteLevel()])
            ),
            False,
        ),
    ],
)
def test_only_pre_tokenizers_of_known_kinds_are_trusted(tokenizer, expected):
    assert splits_between_words(tokenizer) is expected


def test_a_tokenizer_without_a_pre_tokenizer_is_not_trusted():
    assert not splits_between_words(Tokenizer(models.BPE()))
