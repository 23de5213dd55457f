"""Atoms stay one token beside each other, leads are told apart, and texts have the ids they claim."""

from __future__ import annotations

from functools import cache

import pytest
from kit.sets import chat, family, raw, spec_of
from tokenizers import Tokenizer, models, pre_tokenizers

from wlgen.build.ready import load_encoding
from wlgen.encodings import Encoding, Framing
from wlgen.errors import WlgenError
from wlgen.text.english import SENTENCE_TOKENS
from wlgen.text.lexicon import BANK, BLOCK, Atom, Chunk, Leads, Lexicon

FAMILIES = ["chatml", "llama2", "mistral", "gemma", "plain", "t5", "bert"]
STREAM = ("test", 1)


@cache
def lexicon_of(name: str) -> Lexicon:
    return Lexicon(load_encoding(spec_of(encoding=chat(name))), 1)


def every(leads: Leads) -> list[Atom]:
    """Return all leads in their order."""
    found = []
    while leads.at(len(found))[1] == 0:
        found.append(leads.at(len(found))[0])
    return found


def one_token_each(words: list[str]) -> list[Atom]:
    return [Atom(word, int(word)) for word in words if int(word) % 3]


def test_leads_count_from_the_front_and_from_the_back():
    leads = Leads([str(n) for n in range(5000)], one_token_each)
    good = [n for n in range(5000) if n % 3]
    assert [leads.at(n) for n in (0, 1, 2000)] == [(Atom(str(good[n]), good[n]), 0) for n in (0, 1, 2000)]
    assert [leads.at(n) for n in (-1, -2, -3000)] == [
        (Atom(str(good[n]), good[n]), 0) for n in (-1, -2, -3000)
    ]


def test_leads_are_used_again_once_all_are_used():
    leads = Leads([str(n) for n in range(5000)], one_token_each)
    good = [n for n in range(5000) if n % 3]
    for ordinal in (len(good), 3 * len(good) + 7, 10**15):
        turn, place = divmod(ordinal, len(good))
        assert leads.at(ordinal) == (Atom(str(good[place]), good[place]), turn)
    for ordinal in (-len(good) - 1, -(10**15)):
        turn, place = divmod(-1 - ordinal, len(good))
        assert leads.at(ordinal) == (Atom(str(good[-1 - place]), good[-1 - place]), turn)


def test_a_lead_is_encoded_when_it_is_reached_and_once():
    asked: list[str] = []

    def check(words: list[str]) -> list[Atom]:
        asked.extend(words)
        return one_token_each(words)

    leads = Leads([str(n) for n in range(5000)], check)
    for _ in range(2):
        leads.at(0)
        leads.at(-1)
    assert len(asked) == len(set(asked)) == BLOCK + 5000 % BLOCK


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [(0, 0, True), (-1, 0, True), (-400, 265, True), (-400, 266, False), (-667, -1, False), (-2, 700, False)],
)
def test_leads_suffice_until_the_two_sides_meet(least, most, expected):
    leads = Leads([str(n) for n in range(1000)], one_token_each)
    assert leads.suffice(least, most) is expected
    ids = [leads.at(n)[0].id for n in range(least, most + 1)]
    assert (len(set(ids)) == len(ids)) is expected


def test_no_lead_at_all_is_an_error_about_the_vocabulary():
    with pytest.raises(WlgenError, match="tokenizer vocabulary: expected words that can start a stream"):
        Leads(["0", "3"], one_token_each).at(0)


@pytest.mark.parametrize("name", FAMILIES)
def test_leads_fill_no_text_and_are_all_different(name):
    lexicon = lexicon_of(name)
    words = {atom.id for atom in lexicon.words} | {atom.id for atom in lexicon.marks.values()}
    for leads in (every(lexicon.start_leads), every(lexicon.inner_leads)):
        assert len(leads) > 500
        assert len({atom.id for atom in leads}) == len(leads)
        assert not words & {atom.id for atom in leads}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_atom_keeps_its_id_between_others(name):
    """Checked in chains of other neighbours than those it was found with."""
    lexicon = lexicon_of(name)
    encoding = lexicon.encoding
    before = encoding.encode(encoding.frame(("user",)).texts[0] + "The")
    atoms = [*lexicon.words, *every(lexicon.inner_leads)]
    chain = [atom for pair in zip(atoms, reversed(atoms), strict=True) for atom in pair]
    for start in range(0, len(chain), 50):
        part = chain[start : start + 50]
        text = encoding.frame(("user",)).texts[0] + "The" + "".join(atom.text for atom in part)
        assert encoding.encode(text)[len(before) :] == [atom.id for atom in part]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_start_lead_is_one_token_behind_the_head(name):
    lexicon = lexicon_of(name)
    framing = lexicon.encoding.frame(("user",))
    for atom in every(lexicon.start_leads)[::7]:
        ids = lexicon.encoding.encode(f"{framing.texts[0]}{atom.text}: the")
        assert ids[: len(framing.ids[0]) + 1] == [*framing.ids[0], atom.id]


def assert_encoded(lexicon: Lexicon, chunk: Chunk, after: str = " the") -> None:
    """Check that a chunk has its ids behind a word and before `after`."""
    encoding = lexicon.encoding
    head = encoding.frame(("user",)).texts[0] + "The the"
    before, rest = encoding.encode(head), encoding.encode(head + after)[len(encoding.encode(head)) :]
    assert encoding.encode(head + chunk.text + after) == [*before, *chunk.ids.tolist(), *rest]


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_of_every_length_have_that_many_tokens_and_their_ids(name):
    lexicon = lexicon_of(name)
    for tokens in [*range(1, 2 * SENTENCE_TOKENS + 2), 1000]:
        for text in (lexicon.prose(STREAM, tokens), lexicon.random_words(STREAM, tokens)):
            assert len(text.ids) == tokens
            assert_encoded(lexicon, text)
        to_stop = lexicon.prose_to_stop(STREAM, tokens)
        assert len(to_stop.ids) == tokens
        assert_encoded(lexicon, to_stop, after=".")


def test_fewer_tokens_are_the_start_of_more():
    lexicon = lexicon_of("chatml")
    for draw in (lexicon.prose, lexicon.random_words):
        long = draw(STREAM, 500)
        for tokens in (0, 1, 15, 16, 17, 499):
            short = draw(STREAM, tokens)
            assert long.ids[:tokens].tolist() == short.ids.tolist()
            assert long.text.startswith(short.text)


def test_texts_look_like_language():
    deepseek = Lexicon(load_encoding(spec_of(encoding={"name": "deepseek-v4"})), 1)
    text = deepseek.prose(STREAM, 20 * SENTENCE_TOKENS).text
    sentences = text.strip().removesuffix(".").split(". ")
    assert len(sentences) == 20
    for sentence in sentences:
        words = sentence.replace(",", "").split()
        assert len(words) in (14, 15)
        assert words[0].istitle()
        assert all(word.islower() for word in words[1:])


def test_another_stream_or_random_seed_gives_another_text():
    lexicon = lexicon_of("chatml")
    assert lexicon.prose(STREAM, 50).text != lexicon.prose(("test", 2), 50).text
    other = Lexicon(lexicon.encoding, 2)
    assert lexicon.prose(STREAM, 50).text != other.prose(STREAM, 50).text
    assert [lexicon.start_leads.at(n)[0] for n in range(9)] != [other.start_leads.at(n)[0] for n in range(9)]


def test_the_bank_is_whole_sentences():
    ids, texts = lexicon_of("chatml").bank
    assert ids.shape == (BANK, SENTENCE_TOKENS)
    stop = lexicon_of("chatml").marks["."].id
    assert set(ids[:, -1].tolist()) == {stop}
    assert all(len(text) == SENTENCE_TOKENS for text in texts)
    assert len({"".join(text) for text in texts}) > 0.99 * BANK


def wordless() -> Encoding:
    """Return an encoding whose tokenizer knows digits only."""
    tokenizer = Tokenizer(models.WordLevel({str(n): n for n in range(10)} | {"[UNK]": 10}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return Encoding(
        name="digits",
        tokenizer=tokenizer,
        tokenizer_sha256="",
        render=lambda messages: messages[0].content,
        frame=lambda _roles: Framing(texts=("", ""), ids=((), ())),
    )


def test_a_vocabulary_without_words_is_one_clear_error():
    with pytest.raises(WlgenError, match="tokenizer vocabulary: expected words that stay one token"):
        _ = Lexicon(wordless(), 1).words


def test_a_fixed_text_that_merges_with_its_neighbours_is_refused_with_a_way_out():
    lexicon = lexicon_of("chatml")
    with pytest.raises(WlgenError, match="Use the task `words`"):
        lexicon.fixed("man and the")


def test_an_unknown_word_is_no_atom():
    """WordPiece makes one [UNK] of any word it cannot write: one token, but no word of the vocabulary."""
    lexicon = Lexicon(load_encoding(spec_of(encoding=raw("bert"))), 1)
    unknown = Tokenizer.from_file(str(family("bert") / "tokenizer.json")).token_to_id("[UNK]")
    atoms = [*lexicon.words, *every(lexicon.start_leads), *every(lexicon.inner_leads)]
    assert unknown not in {atom.id for atom in atoms}
