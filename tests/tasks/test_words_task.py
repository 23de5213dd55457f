"""The task words: every token behind a stream's first two is drawn alone."""

from __future__ import annotations

from collections import Counter

from kit.sets import spec_of

from wlgen.build.ready import blueprint


def test_words_are_drawn_uniformly():
    ready = blueprint(spec_of(task="words"))
    drawn = Counter(ready.tasks[0].shared(("test",), 100_000).ids.tolist())
    words = {atom.id for atom in ready.lexicon.words}
    assert set(drawn) == words
    mean = 100_000 / len(words)
    assert 0.5 * mean < min(drawn.values()) <= max(drawn.values()) < 1.6 * mean


def test_any_length_will_do():
    task = blueprint(spec_of(task="words")).tasks[0]
    assert task.least_own(1024) == 0
    for tokens in range(5):
        assert len(task.own(("test",), tokens, 1024).ids) == tokens


def test_a_set_may_be_as_short_as_its_first_two_tokens():
    ready = blueprint(spec_of(task="words", body_len=2, cached={"max_tokens": 0}))
    row = ready.composer().compose(next(ready.plan.rows("formal", 0)))
    assert ready.encoding.prompt_ids(row.messages) == row.prompt_ids.tolist()
    assert row.plan.body_len == 2
