"""A body holds nothing that a client, a template or a tokenizer would change."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers

from wlgen.encodings import Encoding, Framing
from wlgen.workload.safe_text import Hygiene

SPECIAL = ["<|end|>", "STOP", " ", "(pad)"]


def hygiene_of(*special: str | AddedToken, normalizer: normalizers.Normalizer | None = None) -> Hygiene:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, "a"))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokens = [AddedToken(token, normalized=False) if isinstance(token, str) else token for token in special]
    tokenizer.add_tokens(tokens)
    framing = Framing(texts=("", ""), ids=((), ()))
    return Hygiene(
        Encoding(
            name="test",
            tokenizer=tokenizer,
            tokenizer_sha256="",
            render=lambda messages: messages[0].content,
            frame=lambda _roles: framing,
        )
    )


HYGIENE = hygiene_of(*SPECIAL)


@pytest.mark.parametrize(
    "text", ["a", "The river.\n\nIt is late, isn't it? (No!)", "Déjà vu", "春眠不觉晓", "a\tb"]
)
def test_safe_text_has_no_fault(text):
    assert HYGIENE.fault(text) is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "an empty text"),
        (" a", "white space at the start or the end, which templates trim"),
        ("a\n", "white space at the start or the end, which templates trim"),
        ("a\u3000", "white space at the start or the end, which templates trim"),
        ("a {x} b", "the character '{' at 2"),
        ("a }", "the character '}' at 2"),
        ("a\rb", "the character '\\r' at 1"),
        ("a\x00b", "the character '\\x00' at 1"),
        ("a\x7fb", "the character '\\x7f' at 1"),
        ("ä\x85b", "the character '\\x85' at 1"),
        ("a \ufffd b", "the character '\ufffd' at 2"),
        ("a \u2028 b", "the character '\\u2028' at 2"),
        ("so <|end|> it", "the special token '<|end|>' at 3"),
        ("full STOP here", "the special token 'STOP'"),
        ("full STOP; now é", "the special token 'STOP' at 5"),
        ("a (pad) b", "the special token '(pad)'"),
        ("cafe\u0301", "text that is not NFC"),
        ("\u212b is a unit", "text that is not NFC"),
    ],
)
def test_each_fault_is_named(text, fault):
    assert HYGIENE.fault(text) == fault


def test_a_tokenizer_without_special_tokens_forbids_none():
    assert hygiene_of().fault("<|end|> STOP") is None


@given(st.text(st.characters(codec="utf-8"), max_size=8) | st.text("aé {}\x85\u0301STOP\n", max_size=8))
def test_the_verdict_is_that_of_each_rule_by_itself(text):
    controls = [c for c in text if unicodedata.category(c) == "Cc" and c not in "\t\n"]
    unsafe = (
        not text
        or text != text.strip()
        or bool(controls)
        or any(c in text for c in "{}\ufffd\u2028\u2029")
        or any(token in text for token in SPECIAL if token.strip())
        or unicodedata.normalize("NFC", text) != text
    )
    assert (HYGIENE.fault(text) is not None) == unsafe


@pytest.mark.parametrize(
    ("token", "normalizer", "texts", "clean"),
    [
        (
            AddedToken("quiet river", normalized=True),
            normalizers.Lowercase(),
            ["by the Quiet River", "a quiet river, é"],
            ["a quiet road by the river"],
        ),
        (
            AddedToken("quiet river", normalized=False),
            normalizers.Lowercase(),
            ["a quiet river"],
            ["Quiet river"],
        ),
        (
            AddedToken("art", normalized=True, single_word=True),
            normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()]),
            ["the ART of it", "art-house", "é art"],
            ["the party", "articles, é"],
        ),
        (AddedToken("art", normalized=False, single_word=True), None, ["an art."], ["a party", "a party, é"]),
        (AddedToken("river", normalized=True), normalizers.NFC(), ["a river"], ["River"]),
        (AddedToken("a▁b", normalized=True), normalizers.Replace(" ", "▁"), ["see a b c"], ["see ab c"]),
        (AddedToken("end", normalized=False, lstrip=True, rstrip=True), None, ["the  end ."], ["the En d"]),
    ],
)
def test_added_tokens_are_found_where_the_tokenizer_itself_finds_them(token, normalizer, texts, clean):
    hygiene = hygiene_of(token, normalizer=normalizer)
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, "a"))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.add_tokens([token])
    added = tokenizer.token_to_id(token.content)
    for text in texts:
        assert added in tokenizer.encode(text).ids, text
        assert "the special token" in (hygiene.fault(text) or ""), text
    for text in clean:
        assert added not in tokenizer.encode(text).ids, text
        assert hygiene.fault(text) is None, text
