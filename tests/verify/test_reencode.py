"""Re-encoding a common beginning once gives the ids that encoding each text whole gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from kit.sets import chat, raw, spec_of

from wlgen.build.ready import blueprint, load_encoding
from wlgen.encodings import Encoding, Message
from wlgen.verify import reencode
from wlgen.verify.reencode import Reencoder
from wlgen.workload.rows import Row
from wlgen.workload.splits import SPLITS


class CountingTokenizer:
    """A tokenizer that adds up the characters it is given."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.normalizer = tokenizer.normalizer
        self.pre_tokenizer = tokenizer.pre_tokenizer
        self.characters = 0

    def encode(self, text: str, *, add_special_tokens: bool) -> Any:
        self.characters += len(text)
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def encode_batch_fast(self, texts: Sequence[str], *, add_special_tokens: bool) -> Any:
        self.characters += sum(map(len, texts))
        return self._tokenizer.encode_batch_fast(texts, add_special_tokens=add_special_tokens)


def row_of(name: str, text: str, group: str = "all") -> Row:
    return Row(
        id=name,
        split="formal",
        dp_rank=0,
        group=group,
        round=0,
        messages=(Message("user", text),),
        body_len=1,
        prompt_len=1,
        shared_len=1,
        cached_len=1,
        output_len=1,
        prompt_sha256="",
    )


def warm_rows(encoding: dict[str, Any]) -> tuple[Encoding, list[Row]]:
    """Return the rows of a set whose prefix is long enough to be worth a cut."""
    spec = spec_of(
        encoding=encoding,
        body_len=1500,
        cached={"min_ratio": 0.6},
        prefix={"shared_by": "group", "groups": 2},
    )
    ready = blueprint(spec)
    composer = ready.composer()
    plans = [plan for split in SPLITS for rank in range(2) for plan in ready.plan.rows(split, rank)]
    rows = [row_of(plan.id, composer.compose(plan).messages[0].content, plan.group) for plan in plans]
    return ready.encoding, rows


def assert_same_ids(encoding: Encoding, rows: list[Row]) -> None:
    found = list(Reencoder(encoding, whole=False).ids(rows))
    assert [row.id for row, _ in found] == [row.id for row in rows]
    for row, ids in found:
        assert ids.tolist() == encoding.prompt_ids(row.messages), row.id


@pytest.mark.parametrize("name", ["chatml", "llama2", "gemma", "mistral", "t5", "bert"])
def test_ids_are_those_of_whole_texts(name):
    assert_same_ids(*warm_rows(chat(name)))
    assert_same_ids(*warm_rows(raw(name)))


def test_a_common_beginning_is_encoded_once():
    encoding, rows = warm_rows(chat())
    counting = CountingTokenizer(encoding.tokenizer)
    list(Reencoder(replace(encoding, tokenizer=counting), whole=False).ids(rows))  # type: ignore[arg-type]
    whole = sum(len(encoding.render(row.messages)) for row in rows)
    assert counting.characters < 0.8 * whole


@pytest.mark.parametrize("name", ["chatml", "llama2", "gemma", "mistral"])
def test_every_text_is_encoded_whole_where_asked_for_or_where_merges_may_reach_far(name):
    """SentencePiece's BPE merges over a whole text: nothing bounds how far a change reaches."""
    encoding, rows = warm_rows(chat(name))
    counting = CountingTokenizer(encoding.tokenizer)
    whole = name == "chatml"
    list(Reencoder(replace(encoding, tokenizer=counting), whole=whole).ids(rows))  # type: ignore[arg-type]
    assert counting.characters == sum(len(encoding.render(row.messages)) for row in rows)


def test_texts_that_part_early_late_or_in_the_margin_keep_their_own_ids():
    encoding, rows = warm_rows(chat())
    text = rows[0].messages[0].content
    cuts = [0, 5, 100, 2000, len(text) - 300, len(text) - 200, len(text) - 1]
    broken = [row_of(f"cut-{at}", text[:at] + " Xyz " + text[at + 3 :]) for at in cuts]
    assert_same_ids(encoding, [row_of("first", text), *broken, row_of("last", text), row_of("short", "Hi")])
    assert_same_ids(encoding, [row_of("short", "Hi"), row_of("first", text), *broken])


def test_a_beginning_without_a_space_is_never_cut():
    encoding = load_encoding(spec_of())
    assert_same_ids(encoding, [row_of("one", "x" * 5000 + " a"), row_of("two", "x" * 5000 + " b")])


def test_rows_come_in_order_across_batches(monkeypatch):
    monkeypatch.setattr(reencode, "BATCH_CHARACTERS", 3000)
    assert_same_ids(*warm_rows(chat()))


def test_no_rows_are_no_ids():
    assert list(Reencoder(load_encoding(spec_of()), whole=False).ids([])) == []
