"""What build proves of its rows: each fault of a composer or a task stops it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kit.sets import chat, family, raw, spec_of
from tokenizers import AddedToken, Tokenizer

from wlgen.build import compose
from wlgen.build.build import build
from wlgen.build.compose import Composed, Piece
from wlgen.build.evidence import Evidence, method_of
from wlgen.build.prove import Prover
from wlgen.build.ready import Blueprint, blueprint
from wlgen.errors import WlgenError
from wlgen.text.lexicon import Chunk
from wlgen.workload.splits import SPLITS

Change = Callable[[Composed], Composed]


def rows_of(ready: Blueprint) -> list[Composed]:
    composer, ranks = ready.composer(), range(ready.spec.dp_ranks)
    return [composer.compose(plan) for s in SPLITS for r in ranks for plan in ready.plan.rows(s, r)]


def proof(
    ready: Blueprint, change: Change = lambda row: row, at: str = "formal-r01-000002"
) -> dict[str, Any]:
    """Prove the rows of a plan, one of them changed."""
    method = method_of(ready.lexicon, ready.tasks)
    evidence, rows = Evidence(method), rows_of(ready)
    whole = evidence.whole(row.plan for row in rows)
    prover = Prover(ready.lexicon, method, crowded=ready.crowded)
    for row in rows:
        prover.add(change(row) if row.plan.id == at else row, whole=row.plan.id in whole)
    prover.finish()
    return evidence.proof()


def told(row: Composed, text: str | None = None, ids: list[int] | None = None) -> Composed:
    """Return the row with another text or other ids of its own part."""
    own = row.pieces[0][-1]
    new_ids = own.ids if ids is None else np.array(ids, dtype=np.uint32)
    piece = Piece(own.segment, Chunk(ids=new_ids, text=own.text if text is None else text))
    return replace(row, pieces=((*row.pieces[0][:-1], piece),))


@pytest.mark.parametrize("prefix", [{"shared_by": "all"}, {"shared_by": "group", "groups": 3}])
def test_the_proof_counts_what_was_encoded(prefix):
    ready = blueprint(spec_of(prefix=prefix, formal={"total": 12}))
    rows, groups = len(rows_of(ready)), prefix.get("groups", 1)
    found = proof(ready)
    assert (found["method"], found["prefixes"]) == ("atoms", groups)
    assert found["whole_rows"] >= max(groups, 3 * 2)
    assert found["seams"] == 2 * (rows - found["whole_rows"])  # the prefix's and the tail's


def test_every_row_is_encoded_whole_where_words_are_not_isolated():
    ready = blueprint(spec_of(encoding=chat("gemma"), formal={"total": 12}))
    found = proof(ready)
    assert (found["method"], found["whole_rows"], found["seams"]) == ("whole", len(rows_of(ready)), 0)


def test_a_prefix_is_proved_once_though_the_composer_forgets_it(monkeypatch):
    """Else each row of many long prefixes in turn is encoded whole, and all of them are held."""
    spec = spec_of(prefix={"shared_by": "group", "groups": 3}, formal={"total": 30})
    kept = proof(blueprint(spec))
    monkeypatch.setattr(compose, "KEPT_TOKENS", 1)
    assert proof(blueprint(spec)) == kept


@pytest.mark.parametrize("encoding", [chat(), chat("gemma"), raw(), raw("gemma")])
@pytest.mark.parametrize("cached", [{"min_ratio": 0.5}, {"max_tokens": 0}])
@pytest.mark.parametrize("at", ["seed-r00-000000", "check-r00-000000", "formal-r01-000002"])
def test_a_text_with_other_ids_than_planned_is_found_at_a_seam(encoding, cached, at):
    """The first and last words of an own part, in a row that is proved by its seams alone too."""
    ready = blueprint(
        spec_of(encoding=encoding, cached=cached, cache_rule={"engine": "sglang", "page_size": 32})
    )
    if at.startswith("seed") and "max_tokens" in cached:
        return
    for wrong in (lambda text: "Zyx" + text[1:], lambda text: text[:-1] + "s"):
        with pytest.raises(WlgenError, match=f"row {at}: expected a text that the tokenizer"):
            proof(ready, lambda row, wrong=wrong: told(row, text=wrong(row.pieces[0][-1].text)), at)


def test_ids_that_are_not_the_texts_are_found_at_a_seam():
    ready = blueprint(spec_of())

    def change(row: Composed) -> Composed:
        ids = row.pieces[0][-1].ids.tolist()
        return told(row, ids=[*ids[:1], ids[2], ids[1], *ids[3:]])

    with pytest.raises(WlgenError, match="row formal-r01-000002: expected a text that the tokenizer"):
        proof(ready, change)


@pytest.mark.parametrize("at", ["formal-r00-000000", "check-r00-000000"])
def test_a_drift_in_the_middle_is_found_in_the_rows_that_are_encoded_whole(at):
    ready = blueprint(spec_of())

    def change(row: Composed) -> Composed:
        text = row.pieces[0][-1].text
        middle = text.index(" the ", len(text) // 4)
        return told(row, text=text[:middle] + " thee " + text[middle + 5 :])

    with pytest.raises(WlgenError, match=f"row {at}: expected a text"):
        proof(ready, change, at)


class Drifting:
    """A task that is no chain of atoms, and whose text drifts in the middle of a late row."""

    proved = False

    def __init__(self, task: Any) -> None:
        self._task = task
        self._made = 0
        self.least_own = task.least_own
        self.shared = task.shared

    def own(self, stream: Any, tokens: int, output_len: int) -> Chunk:
        self._made += 1
        chunk = self._task.own(stream, tokens, output_len)
        late = self._made == 7
        return Chunk(ids=chunk.ids, text=chunk.text.replace(" the ", " thee ", 1)) if late else chunk


def test_a_task_that_is_not_proved_has_every_row_encoded_whole():
    ready = blueprint(spec_of())
    drifting = replace(ready, tasks=(Drifting(ready.tasks[0]),))
    with pytest.raises(WlgenError, match="expected a text that the tokenizer"):
        proof(drifting)


@pytest.mark.parametrize("cached", [{"min_ratio": 0.5}, {"max_tokens": 112}])
def test_a_long_head_without_a_space_near_its_end_is_no_drift(cached):
    """Llama 3 ends its head in 52 characters of special tokens; its window holds all of a run then."""
    date = "26 Jul 2024 " + "and another day in the same long month " * 12
    encoding = {"path": str(family("llama3")), "template_kwargs": {"date_string": date}}
    ready = blueprint(spec_of(encoding=encoding, cached=cached, body_len=640, formal={"total": 20}))
    assert ready.plan.head_len > 100
    prover = Prover(ready.lexicon, "atoms", crowded=0)
    for row in rows_of(ready):  # none is encoded whole, as where other processes do that
        prover.add(row, whole=False)
    prover.finish()


def test_a_row_below_its_bound_is_found():
    ready = blueprint(spec_of())
    wrong = replace(rows_of(ready)[-1].plan, cached_len=160)
    with pytest.raises(WlgenError, match=r"row formal-r01-000002: expected \d+ to \d+ cached tokens"):
        proof(ready, lambda row: replace(row, plan=wrong))


def test_two_rows_with_one_first_token_are_found():
    ready = blueprint(spec_of())
    first = next(row for row in rows_of(ready) if row.plan.id == "formal-r00-000000").pieces[0][-1]
    with pytest.raises(WlgenError, match="expected first tokens that no other row has"):
        proof(ready, lambda row: told(row, text=first.text, ids=first.ids.tolist()))


@pytest.mark.parametrize("unsafe", [" {x}", " \x07.", " <|im_end|> x", " \ufffd x", " "])
def test_unsafe_text_is_found(unsafe):
    ready = blueprint(spec_of())
    with pytest.raises(WlgenError, match="row formal-r01-000002: expected safe text"):
        proof(ready, lambda row: told(row, text=row.pieces[0][-1].text + unsafe))


def test_a_common_word_that_is_a_special_token_is_in_no_text(tmp_path):
    tokenizer = Tokenizer.from_file(str(family("plain") / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken("river", normalized=False)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    spec = spec_of(encoding={"name": "raw", "path": str(tmp_path)}, formal={"total": 40}, body_len=900)
    workload = build(spec, tmp_path / "output").workload
    assert all("river" not in row.messages[0].content for row in workload.rows())
