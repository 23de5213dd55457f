"""Whatever the tokenizer, each row of a set is exact, or the build refuses it and leaves nothing.

The tokenizers here are made to betray the proof: what they do to one rare pair of words shows in no atom, in
no seam, and in none of the rows that are encoded whole.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from kit.families import GPT4, training_text, words
from kit.oracle import broken_promises
from kit.sets import family, spec_of
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from wlgen.build.build import build
from wlgen.errors import WlgenError
from wlgen.spec.model import Spec

ROWS = {"cached": {"max_tokens": 0}, "body_len": 640, "formal": {"total": 40}, "seed": None}


def spec_with(folder: Path, **changes: Any) -> Spec:
    return spec_of(encoding={"name": "raw", "path": str(folder)}, **ROWS | changes)


def rewritten(folder: Path, name: str, change: Any) -> Path:
    """Write the tokenizer of a family with some of its JSON changed."""
    fields = json.loads((family(name) / "tokenizer.json").read_text())
    change(fields)
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(fields))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return folder


def rare_pair(folder: Path, output: Path) -> tuple[str, str]:
    """Return two words that stand beside each other in the middle of one late row only."""
    rows = list(build(spec_with(folder), output).workload.rows(["formal"]))
    found = [Counter(pairwise(re.findall(r" ?[A-Za-z]+|[.,:\n]+", r.messages[0].content))) for r in rows]
    often = sum((Counter(set(pairs)) for pairs in found), Counter[tuple[str, str]]())
    late = next(pairs for row, pairs in zip(rows, found, strict=True) if row.id == "formal-r01-000012")
    return next(p for p in late if often[p] == 1 and all(re.fullmatch(" [a-z]{3,}", w) for w in p))


def one_piece(fields: dict[str, Any], pair: tuple[str, str]) -> None:
    """Let the pre-tokenizer keep a pair together, and the vocabulary hold it as one token."""
    first, second = (word.replace(" ", "Ġ") for word in pair)
    fields["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": f"{pair[0]}{pair[1]}|{GPT4}"}
    vocabulary = fields["model"]["vocab"]
    vocabulary[first + second] = max(vocabulary.values(), default=0) + 100
    fields["model"]["merges"].append([first, second])


def test_a_pre_tokenizer_that_keeps_one_rare_pair_together_is_found_out(tmp_path):
    plain = rewritten(tmp_path / "plain", "chatml", lambda _fields: None)
    pair = rare_pair(plain, tmp_path / "a")
    made = rewritten(tmp_path / "made", "chatml", lambda fields: one_piece(fields, pair))
    tokenizer = Tokenizer.from_file(str(made / "tokenizer.json"))
    assert len(tokenizer.encode("".join(pair)).ids) == 1
    late = "row formal-r01-000012: expected a text that the tokenizer of raw encodes to the planned ids"
    with pytest.raises(WlgenError, match=late):
        build(spec_with(made), tmp_path / "b")
    assert not (tmp_path / "b").exists()
    whole = build(spec_with(plain), tmp_path / "c").workload.manifest
    assert whole.proof["method"] == "atoms"  # the tokenizer that it was made of keeps its short proof


@pytest.mark.parametrize("strip", [{}, {"lstrip": True, "rstrip": True}, {"single_word": True}])
def test_an_added_token_that_matches_only_what_the_normalizer_leaves_is_in_no_row(tmp_path, strip):
    plain = rewritten(tmp_path / "plain", "bert", lambda _fields: None)
    pair = rare_pair(plain, tmp_path / "a")
    content = "".join(pair).strip()

    def change(fields: dict[str, Any]) -> None:
        added = {
            "id": len(fields["model"]["vocab"]),
            "content": content.upper(),
            "special": False,
            "normalized": True,
        }
        flags = {"single_word": False, "lstrip": False, "rstrip": False} | strip
        fields["added_tokens"].append(added | flags)

    made = rewritten(tmp_path / "made", "bert", change)
    tokenizer = Tokenizer.from_file(str(made / "tokenizer.json"))
    assert (
        tokenizer.token_to_id(content.upper())
        in tokenizer.encode(f"the {content}.", add_special_tokens=False).ids
    )
    with pytest.raises(
        WlgenError, match="row formal-r01-000012: expected safe text, found the special token"
    ):
        build(spec_with(made), tmp_path / "b")
    assert not (tmp_path / "b").exists()


def merging(folder: Path, pattern: str, marks: str) -> Path:
    """Write a tokenizer that keeps words and the marks behind them together, and merges half of them."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    lines = [f"{w.capitalize()} {w} {w}{m} {w}\n" * 4 for w in words()[1::2] for m in marks]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=12000, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([*training_text(), *lines], trainer)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return folder


@pytest.mark.parametrize("marks", [",", ":", ".", ".,:"])
def test_a_vocabulary_that_merges_words_with_marks_is_used_without_them_or_refused_at_once(tmp_path, marks):
    """The words that merge fill no text; where none is left of the copy task's own, it is refused early."""
    folder = merging(tmp_path / "model", r" ?\S+|\s+", marks)
    assert broken_promises(build(spec_with(folder, task="words"), tmp_path / "a").workload.folder) == []
    try:
        workload = build(spec_with(folder), tmp_path / "b").workload
    except WlgenError as refused:
        assert "." in marks
        assert "expected fixed tokens for the text" in str(refused)  # noqa: PT017
        assert "Use the task `words` with this tokenizer" in str(refused)  # noqa: PT017
    else:
        assert broken_promises(workload.folder) == []
