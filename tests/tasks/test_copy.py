"""The task copy: a passage of at least output_len tokens, asked for twice, in the row's own part."""

from __future__ import annotations

import re
from typing import Any

import pytest
from kit.sets import chat, spec_of

from wlgen.build.ready import blueprint
from wlgen.errors import WlgenError
from wlgen.text.english import SENTENCE_TOKENS

BODY = re.compile(
    r"(?s).*\.\n\nCopy the passage below word for word, from its first word to its last\. Add nothing\."
    r"\n\nPassage:(?P<passage> .*)\.\n\nNow write the passage again, word for word\."
)


def texts_of(**changes: Any) -> list[str]:
    ready = blueprint(spec_of(**changes))
    rows = [ready.composer().compose(plan) for plan in ready.plan.rows("formal", 0)]
    return ["".join(piece.text for piece in row.pieces[0] if not piece.segment.kept) for row in rows]


@pytest.mark.parametrize("cached", [{"min_ratio": 0.5}, {"max_tokens": 0}])
@pytest.mark.parametrize("output_len", [1, 14, 15, 16, 17, 100])
def test_the_own_part_ends_with_instruction_passage_instruction(output_len, cached):
    ready = blueprint(spec_of(body_len=600, output_len=output_len, cached=cached))
    for text in texts_of(body_len=600, output_len=output_len, cached=cached):
        found = BODY.fullmatch(text)
        assert found
        tokens = len(ready.encoding.encode("The" + found["passage"] + ".")) - 1
        assert output_len <= tokens <= output_len + SENTENCE_TOKENS


def test_the_passage_is_whole_sentences():
    ready = blueprint(spec_of(encoding={"name": "deepseek-v4"}, body_len=600, output_len=60))
    row = ready.composer().compose(next(ready.plan.rows("formal", 0)))
    found = BODY.fullmatch(row.messages[0].content)
    assert found
    assert found["passage"][1].isupper()
    assert len(found["passage"].split(". ")) == 4


def test_no_two_rows_have_the_same_passage():
    passages = [BODY.fullmatch(text)["passage"] for text in texts_of(formal={"total": 20})]
    assert len(set(passages)) == len(passages)


def test_a_passage_longer_than_the_own_part_is_refused_with_what_would_fit():
    changes = {"body_len": 320, "output_len": 300, "cached": {"max_tokens": 0}}
    with pytest.raises(WlgenError) as failure:
        blueprint(spec_of(**changes))
    (problem,) = failure.value.problems
    needed = re.search(r"at least (\d+) tokens for the task copy with output_len 300", problem.expected)
    assert needed
    assert problem.place == "spec requests.body_len"
    assert f"Use body_len: {needed[1]}" in problem.remedy
    assert blueprint(spec_of(**changes | {"body_len": int(needed[1])}))
    with pytest.raises(WlgenError):
        blueprint(spec_of(**changes | {"body_len": int(needed[1]) - 1}))


@pytest.mark.parametrize("name", ["llama2", "gemma", "mistral", "t5", "bert"])
def test_the_least_own_part_can_be_composed_with_any_tokenizer(name):
    spec = spec_of(encoding=chat(name), output_len=1, body_len=1000, cached={"max_tokens": 16})
    least = 2 + blueprint(spec).tasks[0].least_own(1)
    ready = blueprint(spec_of(encoding=chat(name), output_len=1, body_len=least, cached={"max_tokens": 16}))
    row = ready.composer().compose(next(ready.plan.rows("formal", 0)))
    assert ready.encoding.prompt_ids(row.messages) == row.prompt_ids.tolist()
