"""For any body a message may have, the prompt is head, something, tail; and what follows is untouched."""

from __future__ import annotations

import string
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import families

from wlgen.encodings import Message, chat_template, deepseek_v4, raw

FIRST = st.characters(categories=["Lu", "Ll", "Lo", "Nd"])
INNER = st.characters(categories=["L", "N", "P", "Sm", "Sc", "Zs"], include_characters="\n\t")
WORDS = st.lists(st.sampled_from([*families.words()[:300], "The end.", "No, 42!", "\n", string.punctuation]))
BODIES = st.one_of(
    st.builds(lambda first, rest: (first + rest).rstrip(), FIRST, st.text(INNER, max_size=30)),
    st.builds(lambda first, rest: " ".join([first, *rest]).rstrip(), FIRST, WORDS),
)


@cache
def encoding(name):
    if name == "deepseek-v4":
        return deepseek_v4.load(deepseek_v4.Options(thinking="max"), place="")
    family, _, kind = name.partition(" ")
    folder = str(families.FAMILIES[family](Path(mkdtemp())))
    if kind == "raw":
        return raw.load(raw.Options(path=folder, add_special_tokens=True), place="")
    kwargs = {"date_string": "26 Jul 2024"} if family == "llama3" else {}
    return chat_template.load(chat_template.Options(path=folder, template_kwargs=kwargs), place="")


@pytest.mark.parametrize("name", ["deepseek-v4", *families.FAMILIES, "llama2 raw", "t5 raw", "bert raw"])
@settings(max_examples=100, deadline=None)
@given(body=BODIES)
def test_any_prompt_begins_with_the_head_and_ends_with_the_tail(name, body):
    framing = encoding(name).frame(("user",))
    ids = encoding(name).prompt_ids([Message("user", body)])
    head, tail = framing.ids
    assert tuple(ids[: len(head)]) == head
    assert tuple(ids[len(ids) - len(tail) :]) == tail
    assert len(ids) > framing.tokens


@pytest.mark.parametrize("name", ["deepseek-v4", *families.FAMILIES])
@settings(max_examples=50, deadline=None)
@given(first=BODIES, other=BODIES, answer=BODIES, last=BODIES)
def test_another_question_leaves_every_token_from_the_answer_on(name, first, other, answer, last):
    roles = ("user", "assistant", "user")
    framing = encoding(name).frame(roles)

    def prompt(question):
        return encoding(name).prompt_ids(
            [Message(role, body) for role, body in zip(roles, (question, answer, last), strict=True)]
        )

    one, two = prompt(first), prompt(other)
    rest = framing.tokens - len(framing.ids[0]) + 2  # the gaps behind the question, and a token of each body
    assert one[-rest:] == two[-rest:]
    assert tuple(one[: len(framing.ids[0])]) == framing.ids[0]
