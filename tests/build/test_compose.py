"""Composed rows have the very ids that the tokenizer gives their text, and the same on every run."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from kit.oracle import server_ids, shared
from kit.sets import chat, raw, spec_of

from wlgen.build import compose
from wlgen.build.compose import Composed
from wlgen.build.ready import Blueprint, blueprint, load_encoding
from wlgen.workload.splits import SPLITS

ENCODINGS = [
    {"name": "deepseek-v4"},
    *(chat(name) for name in ("chatml", "llama3", "llama2", "gemma", "mistral", "plain", "t5", "bert")),
    raw("gemma"),
    raw("llama2", add_special_tokens=True),
]
pytestmark = pytest.mark.usefixtures("small_bank")

GROUPS = {"prefix": {"shared_by": "group", "groups": 3}, "formal": {"total": 9}}


def composed(ready: Blueprint) -> list[Composed]:
    composer = ready.composer()
    ranks = range(ready.spec.dp_ranks)
    plans = (row for split in SPLITS for rank in ranks for row in ready.plan.rows(split, rank))
    return [composer.compose(row) for row in plans]


@pytest.mark.parametrize("task", ["copy", "words"])
@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: e.get("path", "deepseek").rsplit("/", 1)[-1])
def test_ids_are_those_of_the_servers_own_encoding(encoding, task):
    ready = blueprint(spec_of(encoding=encoding, task=task, **GROUPS))
    for row in composed(ready):
        messages = [message._asdict() for message in row.messages]
        ids = server_ids(ready.spec.content["encoding"], messages)
        assert row.prompt_ids.tolist() == ids
        assert len(ids) == row.plan.prompt_len
        assert row.prompt_sha256 == hashlib.sha256(np.array(ids, dtype="<u4").tobytes()).hexdigest()


@pytest.mark.parametrize("task", ["copy", "words"])
def test_every_body_length_comes_out_exactly(task):
    encoding = load_encoding(spec_of())
    for body_len in range(80, 97):
        ready = blueprint(
            spec_of(body_len=body_len, output_len=1, task=task, cached={"max_tokens": 0}), encoding
        )
        row = composed(ready)[-1]
        assert len(row.prompt_ids) == len(row.framing.ids[0]) + body_len + len(row.framing.ids[-1])
        assert ready.encoding.prompt_ids(row.messages) == row.prompt_ids.tolist()


def test_rows_are_the_same_from_a_composer_that_forgets_its_prefixes(monkeypatch):
    spec = spec_of(**GROUPS)
    kept = composed(blueprint(spec))
    monkeypatch.setattr(compose, "KEPT_TOKENS", 1)
    forgotten = composed(blueprint(spec))
    assert [row.prompt_sha256 for row in kept] == [row.prompt_sha256 for row in forgotten]
    assert [row.messages for row in kept] == [row.messages for row in forgotten]


def test_a_shared_prefix_is_composed_once():
    rows = composed(blueprint(spec_of(formal={"total": 9})))
    assert len({id(row.pieces[0][0]) for row in rows}) == 1


def test_a_row_does_not_depend_on_the_rows_before_it():
    ready = blueprint(spec_of(**GROUPS))
    alone = ready.composer().compose(list(ready.plan.rows("formal", 1))[-1])
    (same,) = [row for row in composed(ready) if row.plan.id == alone.plan.id]
    assert alone.messages == same.messages
    assert alone.prompt_sha256 == same.prompt_sha256


def test_a_text_is_escaped_as_json_writes_it():
    row = composed(blueprint(spec_of()))[-1]
    assert "\n\n" in row.pieces[0][-1].text
    assert rb"\n\nNow write the passage again" in bytes(row.pieces[0][-1].escaped)


def test_a_stream_of_fewer_tokens_is_the_start_of_one_of_more():
    """So a prefix can grow with its ratio and a longer set shares what the shorter one had."""
    short, long = (
        composed(blueprint(spec_of(cached={"min_ratio": ratio})))[0].pieces[0][0] for ratio in (0.3, 0.6)
    )
    assert long.ids[: len(short.ids)].tolist() == short.ids.tolist()
    assert long.text.startswith(short.text)


def test_another_random_seed_shares_no_page_of_16():
    for cached in ({"min_ratio": 0.5}, {"max_tokens": 0}):
        rows = [composed(blueprint(spec_of(random_seed=seed, cached=cached))) for seed in (1, 2)]
        head = rows[0][0].framing.ids[0]
        for one in rows[0]:
            for other in rows[1]:
                found = shared(one.prompt_ids.tolist(), other.prompt_ids.tolist())
                assert len(head) <= found < len(head) + 16
