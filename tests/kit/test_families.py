"""The small tokenizers that other tests build with are like the real ones where it matters."""

from __future__ import annotations

import pytest
from kit import families
from tokenizers import Tokenizer


@pytest.mark.parametrize("name", families.FAMILIES)
def test_each_family_has_many_words_of_one_token(name, tmp_path):
    """A set needs a first token of its own for each row."""
    folder = families.FAMILIES[name](tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    found = tokenizer.encode_batch([f"So {word} so" for word in families.words()], add_special_tokens=False)
    assert sum(len(encoded.ids) == len(found[0].ids) for encoded in found) > 0.95 * families.WORDS


@pytest.mark.parametrize("name", families.FAMILIES)
def test_each_family_trains_to_the_same_bytes(name, tmp_path):
    """Tests of whole builds compare hashes."""
    write = families.FAMILIES[name]
    first = (write(tmp_path) / "tokenizer.json").read_bytes()
    getattr(families, f"_{name}").cache_clear()
    assert (write(tmp_path) / "tokenizer.json").read_bytes() == first
